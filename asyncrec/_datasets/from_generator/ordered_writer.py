"""Records in a known order into shards with known boundaries: written one after the other, committed together.

Only one shard is being filled at a time, however many there are: memory and open files do not grow with their number.
No name is written over: what the data set has already is whole until the one segment that makes the new shards all of
it, and is deleted only then. A failure takes the new ones back again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions
from asyncrec._framing.frames import encode_frames
from asyncrec._records.writing.write_batch import Slab, batched
from asyncrec._shards.commit.commit import Shard
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.job import open_job, whole_job_header
from asyncrec._shards.writing.shard_count import shard_boundaries
from asyncrec.storage._base import Storage

__all__ = ["write_shards"]


async def write_shards(
    folder: Storage,
    name: str,
    batches: Iterator[list[bytes]],
    *,
    records: int,
    num_shards: int,
    compression: CompressionOptions,
    schema: dict[str, Any] | None,
    metadata: dict[str, Any],
) -> list[ShardEntry]:
    """Write ``records`` records, in the order of ``batches``, and make them the data set ``name``.

    ``batches`` blocks, and is driven in worker threads. Returns the shards. On any exception the data set is the one it
    was.

    Raises:
        ConflictError: somebody else is making, or has meanwhile replaced, the data set.
        StorageError: a store failed.
    """
    header = whole_job_header(
        folder,
        name,
        num_shards=num_shards,
        compression=compression,
        schema=schema,
        metadata=metadata,
    )
    boundaries = shard_boundaries(records, num_shards)
    supply = _Supply(batches)
    entries: list[ShardEntry] = []
    async with open_job(folder, header, path=header.url, mode="replace") as job:
        try:
            for number in range(num_shards):
                begun = anyio.current_time()
                async with job.committer.open_shard(job.shard_name(number)) as shard:
                    await _fill(shard, supply, boundaries[number + 1] - boundaries[number])
                entries.append(job.committer.entry_of(shard, begun, anyio.current_time()))
            await job.commit(entries)
        except BaseException:
            await job.take_back(entries)
            raise
    return sorted(entries, key=lambda entry: entry.path)


async def _fill(shard: Shard, supply: _Supply, count: int) -> None:
    while count:
        slabs = await in_thread(supply.next_slabs, count)
        count -= sum(len(slab.lengths) for slab in slabs)
        await shard.output.write(slabs)
    await shard.output.finish()


class _Supply:
    """The records, framed, as many at a time as are wanted. Blocks."""

    def __init__(self, batches: Iterator[list[bytes]]) -> None:
        self._batches = batches
        self._rest: list[bytes] = []

    def next_slabs(self, most: int) -> list[Slab]:
        batch = self._rest or next(self._batches)
        self._rest = batch[most:]
        slabs = []
        for item in batched(batch[:most]):
            if isinstance(item, tuple):
                slab = Slab(0, 0.0)
                slab.records, slab.size = item
                slab.seal()
            else:
                record = bytes(item)
                slab = Slab.of_large(record, encode_frames([record]), ticket=0, time=0.0)
            slabs.append(slab)
        return slabs
