"""`RangeReader` reads selected records of a shard, reads neighbouring records together, and verifies every checksum.

A shard is read in ranges. Wanted records with few bytes between them share a range, up to a limit. The records of an
uncompressed shard are extracted from the range as it arrives. If the range were first joined and then split in a
thread, it would be in memory twice, and its records would be in that thread's part of the heap. A range of a compressed
shard consists of members, which are decompressed in a worker thread from their beginning. Small decompressed members
are cached, so that reading neighbouring records is cheap. If a file is a single large member, as written by TensorFlow,
each read decompresses the file from its start up to the last wanted record. This is correct and takes bounded memory,
but is slow; asyncrec itself writes members of 4 MiB.

If the data of a range from a remote store is damaged, the range is read once more. If it is damaged again, the error
says that the stored object is damaged. A damaged copy in the local cache is downloaded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Literal, cast

import anyio
import numpy as np
from anyio.lowlevel import checkpoint

from asyncrec._concurrency.lru_cache import AsyncLRUCache
from asyncrec._concurrency.processors import processors
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.damage import Damage
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.index import RecordIndex
from asyncrec._sampling.random_access.frame_extractor import (
    FrameExtractor,
    RangeInflater,
    cut_exactly,
    join_ranges,
    split_ranges,
)
from asyncrec._sampling.random_access.range_read import RangeRead, ReadCost
from asyncrec._sampling.random_access.received import Blocks, Stored, receive_frames
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec.errors import CorruptRecordError, FormatError

# The maximum number of unwanted bytes to read rather than split a range. Reading them takes as long as starting another
# read. For a file, that takes 0.3 ms (opening, closing, thread hops). For a store, the time is measured.
_GAP = 512 << 10
# The maximum size of a read. For a store, it is large enough to make the cost of a request negligible. For a file, it
# is smaller, because a thread that splits more bytes into records at once makes the event loop wait longer for the GIL.
_MOST_READ_REMOTE = 8 << 20
_MOST_READ_LOCAL = 1 << 20
# The number of concurrent reads: enough for all blocks of a shuffled window, but not too many for a store's
# connections. The limit bounds the memory that is used in addition to the records. Reads of single small records need
# little memory, so more of them may run. With only 20 of them, a store with a latency of 20 ms would return 1,000
# records per second.
_CONCURRENT, _CONCURRENT_SINGLE = 20, 64
# The maximum total size of the cached decompressed members (sixteen members as asyncrec writes them), and the maximum
# size of one member.
_CACHED_BYTES = 64 << 20
_MOST_CACHED = 16 << 20
_READ_BYTES = 1 << 20
# Extracting and checking the records in this many bytes takes less time than a thread hop.
_CUT_ON_LOOP = 64 << 10
# The maximum part of a range that is split into records before other tasks get a turn. This takes about 0.2 ms.
_PIECE_BYTES = 512 << 10
_PIECE_RECORDS = 2048


class RangeReader:
    """A reader of selected records of a data set's shards. Any number of tasks may use it."""

    def __init__(self, files: ShardFiles) -> None:
        self._files = files
        self._members: AsyncLRUCache[tuple[int, int], bytes] = AsyncLRUCache(_CACHED_BYTES, len)
        self._most_read = _MOST_READ_REMOTE if files.remote else _MOST_READ_LOCAL
        # With a disk cache, the store is read in the pieces of the cache, regardless of the ranges.
        self._cost = ReadCost(files.folder.root) if files.remote and not files.cached else None
        self._limiter = anyio.CapacityLimiter(_CONCURRENT)
        self._of_single = anyio.CapacityLimiter(_CONCURRENT_SINGLE)
        # Extracting records holds the GIL, so a second thread would only make the event loop wait for both.
        self._extracting = anyio.CapacityLimiter(1)
        # More threads would not be faster, and each thread has its member in memory twice.
        self._inflating = anyio.CapacityLimiter(processors())

    def reads(self, whole: RangeRead) -> Iterator[RangeRead]:
        """Divide the wanted records of one shard into reads, and yield them."""
        index, within = whole.index, whole.within
        if index.members is None:
            begins = index.offsets[within]
            ends = begins + index.sizes[within]
        else:
            members = index.members[within]
            firsts = np.concatenate(([0], np.flatnonzero(np.diff(members)) + 1))
            begins = members[firsts]
            behind = np.searchsorted(index.members, begins, side="right")
            ends = np.append(index.members, self._files.shards[whole.shard].bytes)[behind]
            firsts = np.append(firsts, len(within))
        for first, last in join_ranges(begins, ends, gap=self._gap, most=self._most_read):
            if index.members is not None:
                first, last = int(firsts[first]), int(firsts[last])
            yield RangeRead(whole.shard, index, within[first:last], whole.first + first)

    @property
    def _gap(self) -> int:
        return _GAP if self._cost is None else self._cost.gap

    def at_hand(self, shard: int, index: RecordIndex, within: int) -> bytes | None:
        """Return a record if it is small and intact and its decompressed member is cached, else `None`."""
        assert index.members is not None, "the index has members"
        member = self._members.held((shard, index.members.item(within)))
        size, begin = index.sizes.item(within), index.offsets.item(within)
        if member is None or size > _CUT_ON_LOOP:
            return None
        records = cut_exactly(member[begin : begin + size], [size - FRAME_OVERHEAD])
        return None if records is None else records[0]

    async def records(self, read: RangeRead) -> list[bytes]:
        """Return the records of one read, in order.

        Raises:
            FormatError: a record is damaged. The error contains the path, the record and the offset. Other records may
                be damaged too.
        """
        async with self._of_single if read.is_single else self._limiter:
            neighbours = self._cost is not None and read.are_neighbours
            if neighbours and (records := await self._neighbours(read)) is not None:
                return records
            try:
                return await self._records(read)
            except FormatError as error:
                first = error
            if neighbours:
                raise _damaged_twice(first)
            if not await self._files.drop_damaged(read.shard) and not self._files.remote:
                raise first
            try:
                return await self._records(read)
            except FormatError as error:
                raise _damaged_twice(error) from None

    async def whole(self, read: RangeRead) -> tuple[list[bytes | None], list[Damage]]:
        """Like `records`, but return `None` in place of each damaged record, and also return the damaged ranges.

        Raises:
            CorruptRecordError: the shard does not match its index.
        """
        try:
            return list(await self.records(read)), []
        except FormatError:
            pass
        records, damage = list[bytes | None](), list[Damage]()
        async with self._limiter:
            for part in self._by_member(read):
                found, lost = await self._whole(part)
                records += found
                damage += lost
        return records, damage

    async def _whole(self, read: RangeRead) -> tuple[list[bytes | None], list[Damage]]:
        """Like `whole`, for a read of one member or of an uncompressed shard."""
        index, within = read.index, read.within
        begins, sizes = index.offsets[within], index.sizes[within]
        member = None if index.members is None else int(index.members[within[0]])
        extractor = FrameExtractor(self._files.display_path(read.shard), within, begins, sizes, member=member)
        if member is None:
            start, end = int(begins[0]), int(begins[-1] + sizes[-1])
            data = await self._files.read(read.shard, start, end)
            ranges = zip((begins - start).tolist(), (begins + sizes - start).tolist(), strict=True)
            pieces = [data[begin:stop] for begin, stop in ranges]
        else:
            inflater = self._inflater(read)
            with suppress(FormatError):
                await self._inflate(read, inflater)
            pieces = inflater.pieces
        return await in_thread(extractor.whole_of, pieces, limiter=self._extracting)

    def _stored(self, read: RangeRead) -> Stored:
        members = read.index.members
        assert members is not None, "the index has members"
        start, last = members[read.within[[0, -1]]].tolist()
        after = int(np.searchsorted(members, last, side="right"))
        end = int(members[after]) if after < len(members) else self._files.shards[read.shard].bytes

        async def receive() -> bytes:
            began = anyio.current_time()
            data = await self._files.read(read.shard, start, end)
            _took(self._cost, began, len(data), len(read.within), len(data))
            return data

        return Stored(start, end if end - start <= self._most_read else start, receive)

    def _by_member(self, read: RangeRead) -> Iterator[RangeRead]:
        """Yield the parts of a read that belong to each member, or the entire read if the shard is uncompressed."""
        cuts: list[int] = []
        if read.index.members is not None:
            cuts = (np.flatnonzero(np.diff(read.index.members[read.within])) + 1).tolist()
        for first, last in pairwise([0, *cuts, len(read.within)]):
            yield RangeRead(read.shard, read.index, read.within[first:last], read.first + first)

    async def _neighbours(self, read: RangeRead) -> list[bytes] | None:
        """Return consecutive records, extracted as their bytes arrive, or `None` if any is damaged or missing."""
        sizes, start = read.index.sizes[read.within], int(read.index.offsets[read.within[0]])
        size, began = int(sizes.sum()), anyio.current_time()
        async with self._files.opened(read.shard, start, start + size) as source:
            records = await receive_frames(source, sizes, limiter=self._extracting)
        _took(self._cost, began, size, len(sizes), size)
        return records

    async def _records(self, read: RangeRead) -> list[bytes]:
        records: list[bytes] = []
        if read.index.members is not None:
            stored = self._stored(read)
            for part in self._by_member(read):
                records += await self._of_member(part, stored)
            return records
        path = self._files.display_path(read.shard)
        begins, sizes = read.index.offsets[read.within], read.index.sizes[read.within]
        at, end = int(begins[0]), int(begins[-1] + sizes[-1])
        began = anyio.current_time()
        size = end - at
        async with self._files.opened(read.shard, at, end) as source:
            blocks = Blocks(source, size)
            for first, last in split_ranges(begins, most=_PIECE_BYTES, count=_PIECE_RECORDS):
                # Take this piece, and also the unwanted bytes between it and the next piece.
                until = end if last == len(begins) else int(begins[last])
                data = await blocks.take(until - at)
                if last == len(begins):
                    _took(self._cost, began, size, len(begins), int(sizes.sum()))
                extractor = FrameExtractor(path, read.within[first:last], begins[first:last], sizes[first:last])
                records += await self._cut(extractor, data, at, len(data))
                at = until
        return records

    async def _cut(self, extractor: FrameExtractor, data: bytes, at: int, size: int) -> list[bytes]:
        """Return the records in ``data``, which begins at byte ``at``. Their frames have ``size`` bytes in total."""
        if size > 2 * _PIECE_BYTES:  # one large record
            return await in_thread(extractor.of, data, at, limiter=self._extracting)
        records = extractor.of(data, at)
        if size > _CUT_ON_LOOP:
            await checkpoint()
        return records

    async def _of_member(self, read: RangeRead, stored: Stored) -> list[bytes]:
        index, within = read.index, read.within
        assert index.members is not None, "the index has members"
        member = int(index.members[within[0]])
        after = int(np.searchsorted(index.members, member, side="right"))
        size = int(index.offsets[after - 1] + index.sizes[after - 1])
        begins, sizes = index.offsets[within], index.sizes[within]
        path = self._files.display_path(read.shard)
        if size <= _MOST_CACHED:
            key = (read.shard, member)

            async def make() -> bytes:
                (whole,) = await self._inflate(read, RangeInflater(self._kind(read), [(0, size)]), stored)
                return whole

            data = await self._members.get(key, make)
            records: list[bytes] = []
            try:
                before = np.cumsum(sizes) - sizes
                for first, last in split_ranges(before, most=_PIECE_BYTES, count=_PIECE_RECORDS):
                    size = int(before[last - 1] + sizes[last - 1] - before[first])
                    extractor = FrameExtractor(
                        path, within[first:last], begins[first:last], sizes[first:last], member=member
                    )
                    records += await self._cut(extractor, data, 0, size)
                return records
            except FormatError:
                self._members.forget(key)
                raise
        pieces = await self._inflate(read, self._inflater(read))
        extractor = FrameExtractor(path, within, begins, sizes, member=member)
        return await in_thread(extractor.of_pieces, pieces, limiter=self._extracting)

    def _kind(self, read: RangeRead) -> Literal["GZIP", "ZLIB"]:
        return cast(Literal["GZIP", "ZLIB"], self._files.shards[read.shard].compression)

    def _inflater(self, read: RangeRead) -> RangeInflater:
        begins, sizes = read.index.offsets[read.within], read.index.sizes[read.within]
        return RangeInflater(self._kind(read), list(zip(begins.tolist(), (begins + sizes).tolist(), strict=True)))

    async def _inflate(self, read: RangeRead, inflater: RangeInflater, stored: Stored | None = None) -> list[bytes]:
        """Decompress a member, and the following members if a record continues in them. Return the wanted ranges.

        If ``stored`` has the bytes of the member, they are not read again.

        Raises:
            FormatError: the member cannot be decompressed, or is too short. The ranges before the error are in
                ``inflater.pieces``.
        """
        shard, members, record = read.shard, read.index.members, int(read.within[0])
        assert members is not None, "the index has members"
        member = int(members[record])
        after = int(np.searchsorted(members, member, side="right"))
        shard_ends = self._files.shards[shard].bytes
        end = int(members[after]) if after < len(members) else shard_ends
        try:
            # Read the member and, if needed, all later bytes, because other software may split a record across members.
            ranges = [(member, end), (end, shard_ends)]
            if stored is not None and stored.has(end):
                if await in_thread(inflater.feed, await stored.of(member, end), limiter=self._inflating):
                    return inflater.pieces
                del ranges[0]
            for start, stop in ranges:
                async with self._files.opened(shard, start, stop) as source:
                    while block := await source.receive(_READ_BYTES):
                        if await in_thread(inflater.feed, block, limiter=self._inflating):
                            return inflater.pieces
            inflater.finish()
        except FormatError as error:
            error.path = self._files.display_path(shard)
            error.record = record
            error.member_offset = member + (error.member_offset or 0) if self._kind(read) == "GZIP" else None
            raise
        raise CorruptRecordError(
            f"the GZIP member ends after {inflater.made:,} bytes, but the index says {inflater.wanted:,}: the index "
            "belongs to another version of the shard",
            path=self._files.display_path(shard),
            record=record,
            member_offset=member,
            part="compression",
        )


def _damaged_twice(error: FormatError) -> FormatError:
    error.add_note("both of two reads were damaged, so the stored object itself is damaged")
    return error


def _took(cost: ReadCost | None, began: float, size: int, records: int, wanted: int) -> None:
    if cost is not None:
        cost.took(size, anyio.current_time() - began, records=records, wanted=wanted)
