"""Records in a known order into shards, one after the other, committed together: all or nothing, in bounded memory.

As `_datasets.from_generator.ordered_writer`, for records that come from async code and may have keys. Only one shard is
open at a time, however many there are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions
from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec._records.writing.write_batch import Slab, batched
from asyncrec._shards.commit.commit import Shard
from asyncrec._shards.manifest.names import new_writer_id
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.job import Mode, open_job, whole_job_header
from asyncrec._shards.writing.shard_count import shard_boundaries
from asyncrec.storage._base import Storage

__all__ = ["KeyedBatch", "Limits", "write_ordered"]


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """Records, and the digest of each one's key where they have keys."""

    records: list[bytes]
    keys: list[bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a shard is full.

    Attributes:
        num_shards: exactly so many, for ``records`` records, which must then be known.
        max_bytes: of a shard's file, unless a single record is larger; with compression exceeded by what is in the
            compressor.
        max_records: of a shard.
    """

    num_shards: int | None = None
    records: int = 0
    max_bytes: int | None = None
    max_records: int | None = None


async def write_ordered(
    folder: Storage,
    name: str,
    batches: AsyncIterator[KeyedBatch],
    *,
    limits: Limits,
    compression: CompressionOptions,
    schema: Mapping[str, Any] | None,
    metadata: Mapping[str, Any],
    mode: Mode = "new",
    writer: str | None = None,
) -> list[ShardEntry]:
    """Write all of ``batches`` as the new data set ``name``, or to it, and commit it.

    ``writer`` is the id to commit under, where a second run is to find that the first one did.

    Raises:
        ObjectExistsError: there is a data set of this name, or a file of a shard's name.
        ConflictError: somebody else is making it.

    On any exception nothing of it is left.
    """
    header = whole_job_header(
        folder,
        name,
        writer=writer or new_writer_id(),
        num_shards=limits.num_shards,
        compression=compression,
        schema=schema,
        metadata=metadata,
    )
    supply = _Supply(batches)
    cuts = shard_boundaries(limits.records, limits.num_shards) if limits.num_shards else []
    entries: list[ShardEntry] = []
    async with open_job(folder, header, path=header.url, mode=mode) as job:
        try:
            number = 0
            while number < (limits.num_shards or 0) or (not limits.num_shards and await supply.any()):
                full = Limits(max_records=cuts[number + 1] - cuts[number]) if limits.num_shards else limits
                begun = anyio.current_time()
                async with job.committer.open_shard(job.shard_name(number)) as shard:
                    await _fill(shard, supply, full, compressed=bool(compression.type))
                entries.append(job.committer.entry_of(shard, begun, anyio.current_time()))
                number += 1
            await job.commit(entries)
        except BaseException:
            await job.take_back(entries)
            raise
    return entries


async def _fill(shard: Shard, supply: _Supply, limits: Limits, *, compressed: bool) -> None:
    records = 0
    while True:
        room = None if limits.max_bytes is None else limits.max_bytes - shard.output.size
        left = None if limits.max_records is None else limits.max_records - records
        if left == 0 or (room is not None and room <= 0) or not await supply.any():
            break
        batch = supply.take(left, None if compressed else room, at_least_one=not records)
        if not batch.records:
            break
        records += len(batch.records)
        await shard.output.write(await in_thread(_slabs, batch))
    await shard.output.finish()


class _Supply:
    """The batches, cut where a shard is full."""

    def __init__(self, batches: AsyncIterator[KeyedBatch]) -> None:
        self._batches = batches
        self._rest = KeyedBatch([])

    async def any(self) -> bool:
        """Whether there are more records."""
        while not self._rest.records:
            batch = await anext(self._batches, None)
            if batch is None:
                return False
            self._rest = batch
        return True

    def take(self, records: int | None, size: int | None, *, at_least_one: bool) -> KeyedBatch:
        """The next records: at most so many, and so many bytes of frames. After `any`."""
        rest = self._rest
        count = len(rest.records) if records is None else min(records, len(rest.records))
        if size is not None:
            ends = accumulate(len(record) + FRAME_OVERHEAD for record in rest.records[:count])
            count = max(int(at_least_one), sum(end <= size for end in ends))
        keys = rest.keys
        self._rest = KeyedBatch(rest.records[count:], None if keys is None else keys[count:])
        return KeyedBatch(rest.records[:count], None if keys is None else keys[:count])


def _slabs(batch: KeyedBatch) -> list[Slab]:
    """In a worker thread: the records, framed."""
    slabs = []
    at = 0
    for item in batched(batch.records):
        if isinstance(item, tuple):
            slab = Slab(0, 0.0)
            slab.records, slab.size = item
            count = len(slab.records)
            slab.keys = None if batch.keys is None else batch.keys[at : at + count]
            slab.seal()
        else:
            record, count = bytes(item), 1
            key = None if batch.keys is None else batch.keys[at]
            slab = Slab.of_large(record, encode_frames([record]), ticket=0, time=0.0, key=key)
        slabs.append(slab)
        at += count
    return slabs
