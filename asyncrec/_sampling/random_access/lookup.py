"""`RecordLookup` reads records by number, each in the fastest possible of three ways.

Records that can be read without waiting are read on the event loop, for about half a millisecond at most. Other records
of uncompressed shards in a local folder are read in a worker thread (`LocalShards`), in one hop per call unless the
call is large. `RangeReader` reads the remaining records, and also any record that is not as expected, because its
errors describe the problem.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, SupportsIndex, TypeVar

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.map import concurrently
from asyncrec._sampling.random_access.indexes import Indexes
from asyncrec._sampling.random_access.local_shards import LocalReads, LocalShards
from asyncrec._sampling.random_access.range_read import RangeRead
from asyncrec._sampling.random_access.range_reader import RangeReader
from asyncrec._sampling.random_access.record_numbers import are_ascending, distinct_numbers, number_of
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec._shards.manifest.loading import in_thread_unless

T = TypeVar("T")
Numbers = NDArray[np.int64]

# Sorting up to `_FEW` numbers takes less time than a thread hop, and so does checking whether `_MANY` are sorted.
_FEW = 1000
_MANY = 20_000
# The time in seconds for which one call may read on the event loop. The last shard may take nearly as long again.
_MOST_SECONDS = 0.0005
# The number of tasks that read the shards of one call, and the number of tasks that read the parts of each shard.
# `RangeReader` limits the number of concurrent reads.
_TASKS = 16


class RecordLookup:
    """Reads the records of a data set by their numbers.

    Args:
        starts: the number of each shard's first record, followed by the number of records.

    Attributes:
        reader: the reader of byte ranges of any shard.
    """

    def __init__(self, files: ShardFiles, indexes: Indexes, starts: Numbers) -> None:
        self._indexes = indexes
        self._starts = starts
        self._borders = memoryview(starts.data)  # its items are read as ints, but not stored as objects
        self._count = int(starts[-1])
        self.reader = RangeReader(files)
        self._local = LocalShards.of(files)
        self._closed = False

    def check_open(self) -> None:
        """Raise ClosedResourceError if `close` was called. Any thread may call this."""
        if self._closed:
            raise anyio.ClosedResourceError("a data set must be read inside its `async with`")

    async def close(self) -> None:
        """Close the open files. From now on, reading raises ClosedResourceError."""
        self._closed = True
        if self._local is not None:
            await self._local.close()

    def one(self, number: SupportsIndex, *, waits: bool) -> bytes | None:
        """Return a record if it is intact and can be read in the calling thread, else `None`.

        Args:
            waits: whether this may wait for a disk. It must be `False` on the event loop.
        """
        self.check_open()
        place = self._place(number_of(number))
        if place is None:
            return None
        shard, within = place
        index = self._indexes.held(shard)
        if index is None:
            return None
        if index.members is not None:
            return self.reader.at_hand(shard, index, within)
        return None if self._local is None else self._local.record(shard, index, within, waits=waits)

    def many_here(self, wanted: Numbers) -> list[bytes] | None:
        """Like `many`, but in the calling thread. Blocks.

        Return `None` unless all records are intact and in uncompressed local shards whose indexes are in memory.
        """
        self.check_open()
        if self._local is None:
            return None
        distinct, inverse = distinct_numbers(wanted)
        found: list[Any] = [None] * len(distinct)
        parts = []
        for shard, first, last in self._shards(distinct):
            part = self._part(shard, distinct, first, last)
            if part is None:
                return None
            parts.append(part)
        reads = LocalReads(self._local, parts, found)
        while reads.step():
            pass
        return None if reads.refused else _in_order(found, inverse)

    async def many(self, wanted: Numbers, records_of: Callable[[RangeRead], Awaitable[list[T]]]) -> list[T]:
        """Return the records with these numbers, in the same order. A number may occur more than once.

        ``records_of`` reads the parts of shards that cannot be read in a faster way.
        """
        self.check_open()
        few = len(wanted) <= _FEW
        little = few or (len(wanted) <= _MANY and are_ascending(wanted))
        distinct, inverse = await in_thread_unless(little, distinct_numbers, wanted)
        found: list[Any] = [None] * len(distinct)
        shards, refused = self._shards(distinct), list[RangeRead]()
        if self._local is not None:
            shards, refused = await self._read_near(self._local, shards, distinct, found, few=few)

        async def read(part: RangeRead) -> None:
            nonlocal found
            records = await records_of(part)
            if len(records) == len(found):  # the usual case in a store
                found = records
            else:
                found[part.first : part.first + len(records)] = records

        async def read_parts(parts: list[RangeRead]) -> None:
            await concurrently(read, (read for part in parts for read in self.reader.reads(part)), tasks=_TASKS)

        async def read_shard(place: tuple[int, int, int]) -> None:
            shard, first, last = place
            index = await self._indexes.get(shard)
            parts = [RangeRead(shard, index, distinct[first:last] - self._starts[shard], first)]
            if self._local is not None and index.members is None:
                parts = await self._read_in_thread(self._local, parts, found)
            await read_parts(parts)

        await concurrently(read_shard, shards, tasks=_TASKS)
        await read_parts(refused)
        return _in_order(found, inverse)

    async def _read_near(
        self, local: LocalShards, shards: list[tuple[int, int, int]], distinct: Numbers, found: list[Any], *, few: bool
    ) -> tuple[list[tuple[int, int, int]], list[RangeRead]]:
        """Read the records in uncompressed local shards whose indexes are in memory.

        Return the other shards, and the parts that must be read in another way.
        """
        left: list[tuple[int, int, int]] = []

        def parts_of(shards: Iterable[tuple[int, int, int]]) -> Iterator[RangeRead]:
            for shard, first, last in shards:
                part = self._part(shard, distinct, first, last)
                if part is None:
                    left.append((shard, first, last))
                else:
                    yield part

        if not few:  # the parts are also made in the thread
            return left, await self._read_in_thread(local, parts_of(shards), found)
        began = time.perf_counter()
        waiting = []
        for part in parts_of(shards):
            records = local.cached(part) if time.perf_counter() - began < _MOST_SECONDS else None
            if records is None:
                waiting.append(part)
            else:
                found[part.first : part.first + len(records)] = records
        return left, await self._read_in_thread(local, waiting, found) if waiting else []

    async def _read_in_thread(
        self, local: LocalShards, parts: Iterable[RangeRead], found: list[Any]
    ) -> list[RangeRead]:
        """Read parts of uncompressed local shards. Return the parts that must be read in another way."""
        reads = LocalReads(local, parts, found)
        while await local.in_thread(reads.step):
            pass
        return reads.refused

    def _place(self, number: int) -> tuple[int, int] | None:
        """Return the shard of a record and its number in the shard, or `None` if there is no such record."""
        if number < 0:
            number += self._count
        if not 0 <= number < self._count:
            return None
        shard = bisect_right(self._borders, number) - 1
        return shard, number - self._borders[shard]

    def _shards(self, distinct: Numbers) -> list[tuple[int, int, int]]:
        """Return each shard that has wanted records, and the range of ``distinct`` that contains their numbers."""
        if not len(distinct):
            return []
        shards = np.searchsorted(self._starts, distinct, side="right") - 1
        firsts = np.concatenate(([0], np.flatnonzero(np.diff(shards)) + 1))
        return list(zip(shards[firsts].tolist(), firsts.tolist(), [*firsts[1:].tolist(), len(distinct)], strict=True))

    def _part(self, shard: int, distinct: Numbers, first: int, last: int) -> RangeRead | None:
        """Return the wanted records of one shard, or `None` if it is compressed or its index is not in memory."""
        index = self._indexes.held(shard)
        if index is None or index.members is not None:
            return None
        return RangeRead(shard, index, distinct[first:last] - self._starts[shard], first)


def _in_order(found: list[Any], inverse: Numbers | None) -> list[Any]:
    return found if inverse is None else list(map(found.__getitem__, inverse.tolist()))
