"""`reshard` writes the same records to other shards: other in number or size, compression, order, or what stands
together.

As they are, records keep their order. ``shuffle`` puts them in a random order that depends on the seed and on the
order they have; ``group_by`` puts records with equal values of a feature side by side (as samplers that interleave
shards by class want them). Both sort by a hash, through files on disk once 64 MiB are held.
"""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._datasets.from_generator.shuffler import MEMORY_LIMIT
from asyncrec._framing.compression import CompressionOptions, parse_compression
from asyncrec._records.reading.reader import RecordReader
from asyncrec._records.writing.write_batch import KEY_BYTES
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.writing.keys import NO_KEY
from asyncrec._shards.writing.ordered_writer import KeyedBatch, Limits, write_ordered
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.storage._base import Storage
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly
from asyncrec.storage._url import redact
from asyncrec.tools._count import counts_of
from asyncrec.tools._progress import Advance, Progress
from asyncrec.tools._selection import SelectedShard, Selection, selected
from asyncrec.tools._shard_reading import open_shard
from asyncrec.tools._sorting import Order, Sorted, Sorter

__all__ = ["ReshardReport", "reshard"]

# Of a shard, where nothing else is said: as `open_sharded_writer`.
_MAX_SHARD_BYTES = 256 << 20


@dataclass(slots=True, kw_only=True)
class ReshardReport:
    """What `reshard` wrote. ``spilled_bytes`` went through files on disk to be sorted."""

    source: str
    target: str
    shards: list[ShardEntry] = field(default_factory=list)
    spilled_bytes: int = 0
    seconds: float = 0.0

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "records": self.records,
            "bytes": self.bytes,
            "spilled_bytes": self.spilled_bytes,
            "seconds": round(self.seconds, 3),
            "shards": [shard.to_json() for shard in self.shards],
        }


async def reshard(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    num_shards: int | None = None,
    max_shard_bytes: int | None = None,
    max_shard_records: int | None = None,
    compression: str | int | CompressionOptions | None = "",
    shuffle: bool = False,
    seed: int = 0,
    group_by: str | None = None,
    memory_limit: int = MEMORY_LIMIT,
    temporary_folder: str | os.PathLike[str] | None = None,
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> ReshardReport:
    """Write the records of ``source`` (whatever a path can name) as the new data set ``target``: all or nothing.

    Keys, the schema and the metadata of a data set go with them.

    Args:
        num_shards: exactly so many, with equally many records each to within one; or
        max_shard_bytes, max_shard_records: when a shard is full; 256 MiB where neither is given.
        shuffle: any record may come to stand anywhere; the same ``seed`` and source give the same order.
        group_by: a feature; records with equal values stand side by side, in their order or, with ``shuffle``, in a
            random one. Groups are in the order in which they first appear; those after 65,000 in that of a hash.
        memory_limit: bytes of records held to be sorted; beyond it they go to ``temporary_folder``, which needs room
            for all of them.

    Raises:
        FormatError: the source is damaged; nothing is left of the target.
        ObjectExistsError: there is a data set at the target.
        DatasetError: ``group_by`` a feature that no record has.
        ValueError: options that contradict each other.
    """
    if num_shards is not None and (max_shard_bytes is not None or max_shard_records is not None):
        raise ArgumentValueError("num_shards fixes the shards, and max_shard_bytes or max_shard_records has them roll")
    for option, value in {
        "num_shards": num_shards,
        "max_shard_bytes": max_shard_bytes,
        "max_shard_records": max_shard_records,
    }.items():
        if value is not None and value < 1:
            raise ArgumentValueError(f"{option} is {value}; it is at least 1")
    options = parse_compression(compression)
    report = ReshardReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    begun = time.monotonic()
    sorts = shuffle or group_by is not None
    async with AsyncExitStack() as stack:
        selection = await stack.enter_async_context(selected(source, storage=storage, storage_options=storage_options))
        target_options = None if target_storage_options is None else dict(target_storage_options)
        folder, name = await stack.enter_async_context(
            dataset_at(target, storage=target_storage, storage_options=target_options)
        )
        batches = _Batches(selection, await stack.enter_async_context(AsyncExitStack()), progress)
        ordered: AsyncIterator[KeyedBatch] = batches
        if sorts:
            sorter = Sorter(
                Order(
                    shuffle=shuffle,
                    seed=seed,
                    group_by=group_by,
                    total=0 if shuffle else sum(await counts_of(selection)),
                ),
                keyed=_has_keys(selection),
                memory_limit=memory_limit,
                temporary_folder=temporary_folder,
            )
            stack.push_async_callback(surely_in_thread, sorter.close)
            async for batch in batches:
                await in_thread(sorter.add, batch)
            if group_by is not None and sorter.records and not sorter.grouped:
                raise DatasetError(f"{report.source}: no record has a feature {group_by!r}")
            records = sorter.records
            ordered = Sorted(sorter)
        elif num_shards is not None:
            records = sum(await counts_of(selection))
        else:
            records = 0
        if max_shard_bytes is None and max_shard_records is None and num_shards is None:
            max_shard_bytes = _MAX_SHARD_BYTES
        report.shards = await write_ordered(
            folder,
            name,
            ordered,
            limits=Limits(
                num_shards=num_shards, records=records, max_bytes=max_shard_bytes, max_records=max_shard_records
            ),
            compression=options,
            schema=selection.schema,
            metadata=_metadata(selection, report.source, shuffle=shuffle, seed=seed, group_by=group_by),
        )
        report.spilled_bytes = sorter.spilled_bytes if sorts else 0
    report.seconds = time.monotonic() - begun
    return report


def _has_keys(selection: Selection) -> bool:
    return any(shard.entry is not None and shard.entry.keys is not None for shard in selection.shards)


def _metadata(selection: Selection, source: str, *, shuffle: bool, seed: int, group_by: str | None) -> dict[str, Any]:
    """What the data sets said, and where these shards come from."""
    metadata: dict[str, Any] = {}
    for dataset in selection.datasets:
        metadata.update(dataset.manifest.metadata)
    made: dict[str, Any] = {"source": source}
    if len(selection.datasets) == 1:
        made["snapshot"] = selection.datasets[0].manifest.id
    if shuffle:
        made["seed"] = seed
    if group_by is not None:
        made["group_by"] = group_by
    return {**metadata, "resharded": made}


class _Batches:
    """All records, in order, with their keys where any shard has keys. Left early, ``stack`` closes what is open."""

    def __init__(self, selection: Selection, stack: AsyncExitStack, progress: Progress) -> None:
        self._selection = selection
        self._stack = stack
        self._advance = Advance(progress, selection.bytes)
        self._keyed = _has_keys(selection)
        self._waiting = iter(selection.shards)
        self._shard: SelectedShard | None = None
        self._reader: RecordReader
        self._keys: _Keys | None = None

    def __aiter__(self) -> _Batches:
        return self

    async def __anext__(self) -> KeyedBatch:
        while True:
            if self._shard is None:
                self._shard = next(self._waiting, None)
                if self._shard is None:
                    raise StopAsyncIteration
                if self._keyed:
                    self._keys = await self._stack.enter_async_context(_Keys(self._selection, self._shard))
                self._reader = await self._stack.enter_async_context(open_shard(self._selection, self._shard))
            batch = await self._reader.next_batch()
            if batch is not None:
                return KeyedBatch(batch.records, await self._keys.take(len(batch.records)) if self._keys else None)
            await self._stack.aclose()
            self._advance(self._shard.size)
            self._shard = None


class _Keys:
    """A context: the keys of a shard, in order; none where it has no file of them."""

    def __init__(self, selection: Selection, shard: SelectedShard) -> None:
        self._shard = shard
        sidecar = shard.entry.keys if shard.entry else None
        name = None if sidecar is None else sidecar.path
        # Without a task: these files are small, and are read beside the shard itself.
        self._source = None if name is None else ResumingSource(selection.storage, shard.folder + name, read_ahead=0)

    async def __aenter__(self) -> _Keys:
        if self._source is not None:
            await self._source.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        if self._source is not None:
            await self._source.__aexit__(*error)

    async def take(self, count: int) -> list[bytes]:
        if self._source is None:
            return [NO_KEY] * count
        data = await receive_exactly(self._source, count * KEY_BYTES)
        if len(data) < count * KEY_BYTES:
            raise DatasetError(
                f"{self._shard.display_path}: its keys end before its records: 'asyncrec verify' says more"
            )
        return [data[at : at + KEY_BYTES] for at in range(0, len(data), KEY_BYTES)]
