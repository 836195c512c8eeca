"""Records in a known order into shards with known boundaries: written one after the other, committed together.

Only one shard is being filled at a time, however many there are: memory and open files do not grow with their number.
What the data set has already is safe until everything is written: a shard whose name is listed now is kept unpublished
(with its file open) until all are complete; one whose name is new is published at once, and not listed before the one
segment that makes all of them the data set. A failure takes those back again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import anyio

from asyncrec.framing.compression import CompressionOptions
from asyncrec.framing.frames import encode_frames
from asyncrec.records.budget import ByteBudget
from asyncrec.records.slab import Slab, batched
from asyncrec.shards.commit import Committer, Shard
from asyncrec.shards.manifest import Manifest
from asyncrec.shards.naming import fixed_shard_name, new_writer_id
from asyncrec.shards.segment import ShardEntry
from asyncrec.shards.sizing import shard_boundaries
from asyncrec.storage.base import Storage
from asyncrec.tasks import in_thread

__all__ = ["Replaced", "write_shards"]

# Chunks are not what bounds the memory here: one shard is filled at a time, and one that waits holds no chunk.
_ANY_NUMBER_OF_CHUNKS = 1 << 62


@dataclass(frozen=True, slots=True)
class Replaced:
    """What was there before.

    Attributes:
        manifest: of the data set, where it had one.
        listed: names of all shards that readers may know of, by a manifest or otherwise.
    """

    manifest: Manifest | None
    listed: Collection[str]


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
    before: Replaced,
) -> tuple[list[ShardEntry], list[str]]:
    """Write ``records`` records, in the order of ``batches``, and make them the data set ``name``.

    ``batches`` blocks, and is driven in worker threads. Returns the shards, and the keys that are of no use now:
    objects of the data set before that no new ones replaced. On any exception the data set is the one it was, but for
    the window `asyncrec.open_sharded_writer` describes for ``mode="replace"``: a store that fails between the
    publication of the first and the last of shards whose names stay.
    """
    committer = Committer(
        folder,
        name,
        new_writer_id(),
        compression=compression,
        with_index=True,
        schema=schema,
        metadata=metadata,
        on_commit=None,
        budget=ByteBudget(_ANY_NUMBER_OF_CHUNKS),
        after=before.manifest,
    )
    boundaries = shard_boundaries(records, num_shards)
    supply = _Supply(batches)
    new: list[ShardEntry] = []
    waiting: list[tuple[Shard, float]] = []
    try:
        async with AsyncExitStack() as complete:
            for number in range(num_shards):
                key = fixed_shard_name(name, number, num_shards)
                opening = committer.open_shard(key, exclusive=False)
                count = boundaries[number + 1] - boundaries[number]
                begun = anyio.current_time()
                if key in before.listed:
                    shard = await complete.enter_async_context(opening)
                    await _fill(shard, supply, count)
                    waiting.append((shard, begun))
                else:
                    async with opening as shard:
                        await _fill(shard, supply, count)
                    new.append(committer.entry_of(shard, begun, anyio.current_time()))
        entries = new + [committer.entry_of(shard, begun, anyio.current_time()) for shard, begun in waiting]
        entries.sort(key=lambda entry: entry.path)
        old = before.manifest.shards if before.manifest else ()
        names = {entry.path for entry in entries}  # adding one again replaces it
        await committer.close(entries, remove=tuple(entry.path for entry in old if entry.path not in names))
    except BaseException as error:
        if not committer.unsettled:
            await committer.take_back(_objects(new))
        if touched := sorted(shard.key for shard, _ in waiting if shard.beside_published):
            error.add_note(
                f"{folder.root}: what was there before is damaged: {len(waiting)} shards were to be replaced together, "
                f"and {len(touched)} were, or their indexes: {', '.join(touched[:3])}; write the split again"
            )
        raise
    kept = set(_objects(entries))
    stale = dict.fromkeys([*before.listed, *_objects(old)])
    return entries, [key for key in stale if key not in kept]


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


def _objects(entries: Collection[ShardEntry] | tuple[ShardEntry, ...]) -> list[str]:
    return [key for entry in entries for key in (entry.path, entry.index, entry.keys) if key]
