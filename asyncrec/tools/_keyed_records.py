"""`KeyedRecords` iterates over all records of a selection with their keys; `write_new` writes records with their keys.

Every tool that makes one data set from another uses both. The target is published completely or not at all, the source
is not changed, and the keys, the schema and the metadata are kept.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions, parse_compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.position import RecordBatch
from asyncrec._records.reading.reader import RecordReader
from asyncrec._records.writing.object_limits import MAX_SHARD_BYTES
from asyncrec._records.writing.write_batch import PAIR_BYTES
from asyncrec._records.writing.writer import open_writer
from asyncrec._sampling.random_access.scan_manifest import unlisted_entry
from asyncrec._sampling.record_set import RecordSet
from asyncrec._shards.manifest.manifest import carried_from
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.writing.ordered_writer import KeyedBatch, Limits, write_ordered
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact
from asyncrec.tools._formats import FORMATS, RECORDS
from asyncrec.tools._parameters import Progress
from asyncrec.tools._read_through import ChecksummedStorage
from asyncrec.tools._report_json import json_of
from asyncrec.tools._salvaged import SalvagedShard, ShardLoss, open_salvaged
from asyncrec.tools._selection import SelectedShard, Selection
from asyncrec.tools._shard_reading import ShardKeys, key_bytes_of, open_committed
from asyncrec.tools._shards_in_turn import ShardsInTurn

KeptCompression = Literal["keep", "", "none", "GZIP", "gzip", "ZLIB", "zlib"] | int | CompressionOptions | None


@dataclass(slots=True, kw_only=True)
class WriteReport:
    """The input and output of a tool.

    Attributes:
        sources: the paths that were read, without secrets.
        read: the number of records that were read.
        records, bytes: the number of records written, and the total size of the files.
        shards: the names of the new shards.
    """

    sources: list[str]
    target: str
    read: int = 0
    records: int = 0
    bytes: int = 0
    shards: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "sources target read records bytes shards")


@dataclass(frozen=True, slots=True)
class NewTarget:
    """The path for new records, and the options for writing them.

    Attributes:
        path: the path of a data set, or of a single file if the name contains ``.tfrec``.
        compression: the compression; ``"keep"`` keeps the compression of the source.
        max_shard_bytes: the maximum size of a data set's shards; 256 MiB if `None`.
        max_record_bytes: the maximum size of a record in a single file; not used for a data set.
    """

    path: str | os.PathLike[str]
    compression: KeptCompression = "keep"
    max_shard_bytes: Size | None = None
    max_record_bytes: Size = MAX_RECORD_BYTES
    storage: Storage | None = None
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Reject the name of a file in another format.

        Raises:
            ArgumentValueError: the path is the name of such a file.
        """
        path = os.fspath(self.path)
        if (kind := FORMATS.of(path)) != RECORDS:
            raise ArgumentValueError(
                f"{redact(path)}: this is the name of a {kind} file, but this command writes TFRecord"
            ).with_remedy(
                "write to a data set or to NAME.tfrecord, and then use tools.convert() to make a file of that format",
                command="write to a data set or to NAME.tfrecord, and then use 'asyncrec convert' to make such a file",
            )

    @property
    def is_file(self) -> bool:
        return ".tfrec" in os.path.basename(os.fspath(self.path))


async def write_new(
    target: NewTarget,
    batches: AsyncIterator[KeyedBatch],
    selections: Sequence[Selection],
    made: Mapping[str, Any],
    *,
    carries: bool = False,
) -> WriteReport:
    """Write records of ``selections``. The report does not include the number of records read.

    Args:
        made: a description of how the records were made, for the metadata of the data set.
        carries: whether the progress of the selections also holds for the target, because it has all their records.

    Raises:
        ObjectExistsError: the target already exists.
        FormatError: the source is damaged; no part of the target remains.
        ObjectChangedError: a shard is not the one in its manifest; no part of the target remains.
    """
    report = WriteReport(sources=[each.path for each in selections], target=redact(os.fspath(target.path)))
    size = MAX_SHARD_BYTES if target.max_shard_bytes is None else byte_count(target.max_shard_bytes, "max_shard_bytes")
    compression = await kept_compression(target.compression, selections)
    options = None if target.storage_options is None else dict(target.storage_options)
    if target.is_file:
        async with open_writer(
            target.path,
            compression=compression,
            mode="x",
            max_record_bytes=target.max_record_bytes,
            storage=target.storage,
            storage_options=options,
        ) as writer:
            async for batch in batches:
                await writer.write_many(batch.records)
                report.records += len(batch.records)
        assert writer.published is not None, "a clean exit publishes the file"
        report.bytes, report.shards = writer.published.size, [report.target]
        return report
    async with dataset_at(target.path, storage=target.storage, storage_options=options) as (folder, name):
        shards = await write_ordered(
            folder,
            name,
            batches,
            limits=Limits(max_bytes=size),
            compression=compression,
            schema=schema_of_all(selections),
            metadata=metadata_of(selections, made),
            contents=await in_thread(key_bytes_of, *selections) == PAIR_BYTES,
            carried=carried_of(selections) if carries else None,
        )
    report.records = sum(shard.records for shard in shards)
    report.bytes = sum(shard.bytes for shard in shards)
    report.shards = [shard.path for shard in shards]
    return report


async def write_chosen(
    target: NewTarget,
    selection: Selection,
    choose: Callable[[KeyedRecords], AsyncIterator[KeyedBatch]],
    made: Mapping[str, Any],
    progress: Progress,
    *,
    count: int | None = None,
    carries: bool = False,
) -> WriteReport:
    """Write the records that ``choose`` selects from all records of a selection. Return a complete report.

    Args:
        made, carries: as for `write_new`, which also lists the errors.
        count: as for `KeyedRecords`.
    """
    async with AsyncExitStack() as stack:
        records = KeyedRecords(selection, stack, progress, count=count)
        report = await write_new(target, choose(records), [selection], made, carries=carries)
        report.read = records.given
        return report


def carried_of(selections: Sequence[Selection]) -> dict[str, Any]:
    """Return the progress for a data set that has all records of these selections."""
    return carried_from(dataset.manifest for selection in selections for dataset in selection.datasets)


def schema_of_all(selections: Sequence[Selection]) -> Mapping[str, Any] | None:
    """Return the schema shared by all selections, or `None` if the schemas differ."""
    schemas = [selection.schema for selection in selections]
    return schemas[0] if schemas and all(schema == schemas[0] for schema in schemas) else None


def metadata_of(selections: Sequence[Selection], made: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of the data sets, combined with the description of how the target was made."""
    metadata: dict[str, Any] = {}
    for selection in selections:
        for dataset in selection.datasets:
            metadata.update(dataset.manifest.metadata)
    return {**metadata, **made}


async def kept_compression(given: KeptCompression, selections: Sequence[Selection]) -> CompressionOptions:
    """Return the requested compression. For ``"keep"``, return the compression of most records in the sources."""
    if given != "keep":
        return parse_compression(given)
    counts = await in_thread(_records_by_compression, selections)
    if not counts:  # without a manifest, examine only the first file, because each file requires a request
        first = next(((each.storage, shard) for each in selections for shard in each.shards if shard.size), None)
        if first is not None:
            entry, _ = await unlisted_entry(first[0], first[1].key)
            counts[entry.compression] = 1
    return parse_compression(max(counts, key=lambda kind: counts[kind], default=""))


def _records_by_compression(selections: Sequence[Selection]) -> Counter[str]:
    """Return the number of records with each compression, according to the manifests. Blocks if shards are many."""
    counts: Counter[str] = Counter()
    for selection in selections:
        for shard in selection.shards:
            if shard.entry is not None:
                counts[shard.entry.compression] += shard.entry.records
    return counts


class KeyedRecords(ShardsInTurn):
    """All records in order, with their keys if any shard has keys.

    If the iteration ends early, ``stack`` closes the open shard.

    Args:
        count: the number of records counted before, if the caller relies on it. If a different number of records is
            read, DatasetError is raised.
        losses: if passed, damaged records are skipped, and the loss of each shard is added to this list.
    Attributes:
        given: the number of records returned so far.
    """

    def __init__(
        self,
        selection: Selection,
        stack: AsyncExitStack,
        progress: Progress,
        *,
        keyed: bool | None = None,
        count: int | None = None,
        losses: list[ShardLoss] | None = None,
    ) -> None:
        super().__init__(selection, stack, progress, keyed=keyed)
        self.given = 0
        self._count = count
        self._losses = losses
        self._salvaged: SalvagedShard | None = None
        self._passing: ChecksummedStorage  # through which the shard is read, unless damaged records are skipped
        self._reader: RecordReader

    def __aiter__(self) -> KeyedRecords:
        return self

    async def __anext__(self) -> KeyedBatch:
        while await self._has_shard():
            batch = await self._reader.next_batch()
            if batch is not None:
                keys = await self._keys_of(batch, self._keys) if self._keys else None
                self._in_shard += len(batch.records)
                self.given += len(batch.records)
                if self._count is not None and self.given > self._count:
                    raise self._changed("more")
                return KeyedBatch(batch.records, keys)
            if self._losses is None:
                await self._check_shard(self._passing.whole_crc32c)
            elif self._salvaged is not None and (loss := self._salvaged.loss()):
                self._losses.append(loss)
            await self._end_shard()
        if self._count is not None and self.given < self._count:
            raise self._changed(f"only {self.given:,}")
        raise StopAsyncIteration

    async def _open(self, shard: SelectedShard) -> None:
        if self._losses is None:
            self._passing = ChecksummedStorage(self._selection.storage)
            through = replace(self._selection, storage=self._passing)
            self._reader = await self._stack.enter_async_context(open_committed(through, shard))
            return
        self._salvaged = await self._stack.enter_async_context(open_salvaged(self._selection, shard))
        self._reader = self._salvaged.reader

    async def _keys_of(self, batch: RecordBatch, keys: ShardKeys) -> list[bytes]:
        if self._salvaged is None:
            return await keys.take(len(batch.records))
        return await keys.of(await in_thread(self._salvaged.numbers, batch))

    def _changed(self, found: str) -> DatasetError:
        return DatasetError(
            f"{self._selection.path}: {self._count:,} records were counted first, but {found} were read; the data "
            "set changed in between, so run the command again"
        )


def in_set(batch: KeyedBatch, behind: int, chosen: RecordSet) -> KeyedBatch:
    """Return the records of a batch that are in a set. ``behind`` is the number of the first record after the batch."""
    first = behind - len(batch.records)
    positions = chosen.between(first, behind) - first
    return batch if len(positions) == len(batch.records) else picked(batch, positions.tolist())


def picked(batch: KeyedBatch, positions: Sequence[int]) -> KeyedBatch:
    """Return the records of a batch at these positions, with their keys."""
    keys = None if batch.keys is None else [batch.keys[at] for at in positions]
    return KeyedBatch([batch.records[at] for at in positions], keys)
