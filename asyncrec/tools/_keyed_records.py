"""`KeyedRecords` are all records of a selection with their keys; `write_new` writes such records as something new.

Every tool that makes a data set of another is made of these two: what is written appears whole or not at all, what was
read is not touched, and keys, schema and metadata go with the records.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Literal

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions, parse_compression
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.position import RecordBatch
from asyncrec._records.reading.reader import RecordReader
from asyncrec._records.writing.object_limits import MAX_SHARD_BYTES
from asyncrec._records.writing.write_batch import KEY_BYTES, PAIR_BYTES
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
from asyncrec.tools._parameters import Advance, Progress
from asyncrec.tools._report_json import json_of
from asyncrec.tools._salvaged import SalvagedShard, ShardLoss, open_salvaged
from asyncrec.tools._selection import SelectedShard, Selection
from asyncrec.tools._shard_reading import ShardKeys, key_bytes_of, open_shard

KeptCompression = Literal["keep", "", "none", "GZIP", "gzip", "ZLIB", "zlib"] | int | CompressionOptions | None


@dataclass(slots=True, kw_only=True)
class WriteReport:
    """What a tool read and wrote.

    Attributes:
        sources: the paths that were read, without secrets.
        read: how many records were read.
        records, bytes: how many were written; bytes are those of the files.
        shards: their names.
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
    """Where something new is to be written, and how.

    Attributes:
        path: a data set's, or that of a single file where the name holds ``.tfrec``.
        compression: ``"keep"`` is the source's.
        max_shard_bytes: of a data set's shards; 256 MiB.
        max_record_bytes: of a single file; the manifest of a data set tells its readers.
    """

    path: str | os.PathLike[str]
    compression: KeptCompression = "keep"
    max_shard_bytes: Size | None = None
    max_record_bytes: Size = MAX_RECORD_BYTES
    storage: Storage | None = None
    storage_options: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Refuse a path that means a file of another format.

        Raises:
            ArgumentValueError: it does.
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
    """Write these records, which come from ``selections``; the report lacks what was read.

    Args:
        made: how, for the metadata of the data set.
        carries: whether the progress of the sources holds for what is written, too: all records are in it.

    Raises:
        ObjectExistsError: something is there already.
        FormatError: the source is damaged; nothing is left of the target.
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
        assert writer.published is not None, "a clean exit published"
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
    """Write those records of a selection that ``choose`` gives of all; the report is whole.

    Args:
        made, carries, and the errors: as for `write_new`.
        count: as for `KeyedRecords`.
    """
    async with AsyncExitStack() as stack:
        records = KeyedRecords(selection, stack, progress, count=count)
        report = await write_new(target, choose(records), [selection], made, carries=carries)
        report.read = records.given
        return report


def carried_of(selections: Sequence[Selection]) -> dict[str, Any]:
    """How far the sources of the data sets were read, for one that has all records of them."""
    return carried_from(dataset.manifest for selection in selections for dataset in selection.datasets)


def schema_of_all(selections: Sequence[Selection]) -> Mapping[str, Any] | None:
    """The schema that all of them have; `None` where they do not agree."""
    schemas = [selection.schema for selection in selections]
    return schemas[0] if schemas and all(schema == schemas[0] for schema in schemas) else None


def metadata_of(selections: Sequence[Selection], made: Mapping[str, Any]) -> dict[str, Any]:
    """What the data sets said of themselves, and how something was made of them."""
    metadata: dict[str, Any] = {}
    for selection in selections:
        for dataset in selection.datasets:
            metadata.update(dataset.manifest.metadata)
    return {**metadata, **made}


async def kept_compression(given: KeptCompression, selections: Sequence[Selection]) -> CompressionOptions:
    """The compression that was asked for; of ``"keep"`` the one that most records have."""
    if given != "keep":
        return parse_compression(given)
    counts = await in_thread(_records_by_compression, selections)
    if not counts:  # of files in no manifest the first tells: asking each would be a request for each
        first = next(((each.storage, shard) for each in selections for shard in each.shards if shard.size), None)
        if first is not None:
            entry, _ = await unlisted_entry(first[0], first[1].key)
            counts[entry.compression] = 1
    return parse_compression(max(counts, key=lambda kind: counts[kind], default=""))


def _records_by_compression(selections: Sequence[Selection]) -> Counter[str]:
    """How many records the manifests say have which. Blocks: there may be a million shards."""
    counts: Counter[str] = Counter()
    for selection in selections:
        for shard in selection.shards:
            if shard.entry is not None:
                counts[shard.entry.compression] += shard.entry.records
    return counts


def has_keys(selection: Selection) -> bool:
    """Whether any of its shards has keys."""
    return any(shard.entry is not None and shard.entry.keys is not None for shard in selection.shards)


class ShardsInTurn:
    """The shards of a selection, one open at a time, with their keys where any has keys: for whoever gives the records.

    Left early, ``stack`` closes what is open.
    """

    def __init__(
        self, selection: Selection, stack: AsyncExitStack, progress: Progress, *, keyed: bool | None = None
    ) -> None:
        self._selection = selection
        self._stack = stack
        self._advance = Advance(progress, selection.bytes)
        self._keyed = has_keys(selection) if keyed is None else keyed
        self._key_bytes = key_bytes_of(selection) if self._keyed else KEY_BYTES
        self._waiting = iter(selection.shards)
        self._shard: SelectedShard | None = None
        self._keys: ShardKeys | None = None

    async def _open(self, shard: SelectedShard) -> None:
        """Open the records of a shard, within the stack."""
        raise NotImplementedError

    async def _has_shard(self) -> bool:
        """Open the next shard, unless one is open; `False` behind the last."""
        if self._shard is None:
            self._shard = next(self._waiting, None)
            if self._shard is None:
                return False
            if self._keyed:
                self._keys = await self._stack.enter_async_context(
                    ShardKeys(self._selection, self._shard, width=self._key_bytes)
                )
            await self._open(self._shard)
        return True

    async def _end_shard(self) -> None:
        assert self._shard is not None, "one was read to its end"
        await self._stack.aclose()
        self._advance(self._shard.size)
        self._shard = None


class KeyedRecords(ShardsInTurn):
    """All records, in order, with their keys where any shard has keys. Left early, ``stack`` closes what is open.

    Args:
        count: how many records were counted before, where what is done with them depends on it: other than so many are
            a DatasetError.
        losses: shards are read past their damage, and what was lost of each is added to this list.

    Attributes:
        given: how many were given.
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
        self._reader: RecordReader

    def __aiter__(self) -> KeyedRecords:
        return self

    async def __anext__(self) -> KeyedBatch:
        while await self._has_shard():
            batch = await self._reader.next_batch()
            if batch is not None:
                keys = await self._keys_of(batch, self._keys) if self._keys else None
                self.given += len(batch.records)
                if self._count is not None and self.given > self._count:
                    raise self._changed("more")
                return KeyedBatch(batch.records, keys)
            if self._losses is not None and self._salvaged is not None and (loss := self._salvaged.loss()):
                self._losses.append(loss)
            await self._end_shard()
        if self._count is not None and self.given < self._count:
            raise self._changed(f"only {self.given:,}")
        raise StopAsyncIteration

    async def _open(self, shard: SelectedShard) -> None:
        if self._losses is None:
            self._reader = await self._stack.enter_async_context(open_shard(self._selection, shard))
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
    """Those records of a batch that are in a set; ``behind`` is the number of the record behind the batch."""
    first = behind - len(batch.records)
    positions = chosen.between(first, behind) - first
    return batch if len(positions) == len(batch.records) else picked(batch, positions.tolist())


def picked(batch: KeyedBatch, positions: Sequence[int]) -> KeyedBatch:
    """Those records of a batch, with their keys."""
    keys = None if batch.keys is None else [batch.keys[at] for at in positions]
    return KeyedBatch([batch.records[at] for at in positions], keys)
