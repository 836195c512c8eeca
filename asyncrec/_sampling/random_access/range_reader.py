"""`RangeReader` reads chosen records of one shard: nearby ones by one read, GZIP by members, every checksum verified.

An uncompressed shard is read in ranges: records with little between them share one, up to a bound. Of a
compressed one, members are decompressed in a worker thread from their beginning; small ones are kept for a while, so
that neighbours come cheap. A file that is one large member (as TensorFlow writes them) is decompressed from its start
up to the last record wanted each time: correct, in bounded memory, and slow; asyncrec writes members of 4 MiB.

On damage from a remote store the range is read once more: then it was damaged on its way, or is so at rest, and the
error says which. So it is where a copy in the local cache turns out damaged, which is brought anew.

`ReadCost` learns what a read of a far store costs, so as to say which neighbours are worth one read. A read takes a
time before its first byte, and a time for each byte. What comes in the time before the first byte may as well be read
for nothing: that many bytes between two records, and they share a read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Literal, cast

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.lru_cache import AsyncLRUCache
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.damage import Damage
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.index import RecordIndex
from asyncrec._sampling.random_access.frame_extractor import FrameExtractor, RangeInflater, cut_exactly, join_ranges
from asyncrec._sampling.random_access.shard_files import ShardFiles
from asyncrec.errors import CorruptRecordError, FormatError

Indices = NDArray[np.int64]

# Bytes read for nothing rather than in a read of their own: what comes in the time that a read takes to begin. Of a
# file that is 0.3 ms (opening, closing, hops to threads); of a store it is measured.
_GAP = 512 << 10
# One read at most. Of a store, so large that a request's own cost does not count; of a file less, since a thread that
# cuts more at once makes the event loop wait longer for the interpreter.
_MOST_READ_REMOTE = 8 << 20
_MOST_READ_LOCAL = 1 << 20
# Reads at once: enough to hide a store's delay, few enough for its connections; times a read it bounds what is held
# beside the records themselves.
_CONCURRENT = 16
# Bytes of decompressed members in memory, and of the largest among them: sixteen of those asyncrec writes.
_CACHED_BYTES = 64 << 20
_MOST_CACHED = 16 << 20
_READ_BYTES = 1 << 20
# Cutting and checking less than this costs less than the hop to a thread.
_CUT_ON_LOOP = 64 << 10
_FEW_RUNS = 8


class RangeRead:
    """One read of a shard, or all that is wanted of it.

    Attributes:
        within: the numbers of the wanted records in the shard, ascending and distinct.
        first: the place of the first of them among all those asked for.
    """

    __slots__ = ("first", "index", "shard", "within")

    def __init__(self, shard: int, index: RecordIndex, within: Indices, first: int) -> None:
        self.shard = shard
        self.index = index
        self.within = within
        self.first = first


class RangeReader:
    """Reads chosen records of the shards of a data set, nearby ones together. Used by any number of tasks."""

    def __init__(self, files: ShardFiles) -> None:
        self._files = files
        self._members: AsyncLRUCache[tuple[int, int], bytes] = AsyncLRUCache(_CACHED_BYTES, len)
        self._most_read = _MOST_READ_REMOTE if files.remote else _MOST_READ_LOCAL
        # With a cache on the disk the store is read in whole shards.
        self._cost = ReadCost() if files.remote and not files.cached else None
        self._limiter = anyio.CapacityLimiter(_CONCURRENT)
        # Cutting holds the interpreter: a second thread at it gains nothing, and makes the event loop wait for both.
        self._extracting = anyio.CapacityLimiter(1)

    def reads(self, whole: RangeRead) -> Iterator[RangeRead]:
        """The reads that give what is wanted of one shard."""
        index, within = whole.index, whole.within
        if index.members is not None:
            cuts = np.flatnonzero(np.diff(index.members[within])) + 1
            parts: Iterable[tuple[int, int]] = pairwise([0, *cuts.tolist(), len(within)])
        else:
            begins = index.offsets[within]
            parts = join_ranges(begins, begins + index.sizes[within], gap=self._gap, most=self._most_read)
        for first, last in parts:
            yield RangeRead(whole.shard, index, within[first:last], whole.first + first)

    @property
    def _gap(self) -> int:
        return _GAP if self._cost is None else self._cost.gap

    def at_hand(self, shard: int, index: RecordIndex, within: int) -> bytes | None:
        """A record of a member that is in memory, decompressed, if it is whole. Waits for nothing."""
        assert index.members is not None, "asked for where there are members"
        member = self._members.held((shard, index.members.item(within)))
        size, begin = index.sizes.item(within), index.offsets.item(within)
        if member is None or size > _CUT_ON_LOOP:
            return None
        records = cut_exactly(member[begin : begin + size], [size - FRAME_OVERHEAD])
        return None if records is None else records[0]

    async def records(self, read: RangeRead) -> list[bytes]:
        """The records of one read, in its order.

        Raises:
            FormatError: with path, record and offset, when one of them is damaged; others may be.
        """
        async with self._limiter:
            try:
                return await self._records(read)
            except FormatError as error:
                first = error
            dropped = await self._files.drop_damaged(read.shard)
            if not dropped and not self._files.remote:
                raise first
            try:
                return await self._records(read)
            except FormatError as error:
                error.add_note("read twice, and damaged both times: damaged at rest, not in transit")
                raise

    async def whole(self, read: RangeRead) -> tuple[list[bytes | None], list[Damage]]:
        """As `records`, but `None` for each that is damaged, and what of the shard that is.

        Raises:
            CorruptRecordError: the shard does not agree with its index.
        """
        try:
            return list(await self.records(read)), []
        except FormatError:
            pass
        index, within = read.index, read.within
        begins, sizes = index.offsets[within], index.sizes[within]
        member = None if index.members is None else int(index.members[within[0]])
        extractor = FrameExtractor(self._files.display_path(read.shard), within, begins, sizes, member=member)
        async with self._limiter:
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

    async def _records(self, read: RangeRead) -> list[bytes]:
        if read.index.members is not None:
            return await self._of_member(read)
        begins = read.index.offsets[read.within]
        sizes = read.index.sizes[read.within]
        start, end = int(begins[0]), int(begins[-1] + sizes[-1])
        began = anyio.current_time()
        data = await self._files.read(read.shard, start, end)
        if self._cost is not None:
            self._cost.took(len(data), anyio.current_time() - began)
        extractor = FrameExtractor(self._files.display_path(read.shard), read.within, begins, sizes)
        if len(data) <= _CUT_ON_LOOP and len(read.within) <= _FEW_RUNS:
            return extractor.of(data, start)
        return await in_thread(extractor.of, data, start, limiter=self._extracting)

    async def _of_member(self, read: RangeRead) -> list[bytes]:
        index, within = read.index, read.within
        assert index.members is not None, "asked for where there are members"
        member = int(index.members[within[0]])
        after = int(np.searchsorted(index.members, member, side="right"))
        size = int(index.offsets[after - 1] + index.sizes[after - 1])
        begins, sizes = index.offsets[within], index.sizes[within]
        extractor = FrameExtractor(self._files.display_path(read.shard), within, begins, sizes, member=member)
        if size <= _MOST_CACHED:
            key = (read.shard, member)

            async def make() -> bytes:
                (whole,) = await self._inflate(read, RangeInflater(self._kind(read), [(0, size)]))
                return whole

            data = await self._members.get(key, make)
            try:
                if int(sizes.sum()) <= _CUT_ON_LOOP and len(within) <= _FEW_RUNS:
                    return extractor.of(data, 0)
                return await in_thread(extractor.of, data, 0, limiter=self._extracting)
            except FormatError:
                self._members.forget(key)
                raise
        pieces = await self._inflate(read, self._inflater(read))
        return await in_thread(extractor.of_pieces, pieces, limiter=self._extracting)

    def _kind(self, read: RangeRead) -> Literal["GZIP", "ZLIB"]:
        return cast(Literal["GZIP", "ZLIB"], self._files.shards[read.shard].compression)

    def _inflater(self, read: RangeRead) -> RangeInflater:
        begins, sizes = read.index.offsets[read.within], read.index.sizes[read.within]
        return RangeInflater(self._kind(read), list(zip(begins.tolist(), (begins + sizes).tolist(), strict=True)))

    async def _inflate(self, read: RangeRead, inflater: RangeInflater) -> list[bytes]:
        """The pieces: ranges of what a member, and where a record leads on those behind it, decompress to.

        Raises:
            FormatError: it does not decompress, or to less. Those before are in ``inflater.pieces``.
        """
        shard, members, record = read.shard, read.index.members, int(read.within[0])
        assert members is not None, "asked for where there are members"
        member = int(members[record])
        after = int(np.searchsorted(members, member, side="right"))
        shard_ends = self._files.shards[shard].bytes
        end = int(members[after]) if after < len(members) else shard_ends
        try:
            # Its own bytes; and where a record of another writer's ends in a later member, those as well.
            for start, stop in ((member, end), (end, shard_ends)):
                async with self._files.opened(shard, start, stop) as source:
                    while block := await source.receive(_READ_BYTES):
                        if await in_thread(inflater.feed, block):
                            return inflater.pieces
            inflater.finish()
        except FormatError as error:
            error.path = self._files.display_path(shard)
            error.record = record
            error.member_offset = member + (error.member_offset or 0) if self._kind(read) == "GZIP" else None
            raise
        raise CorruptRecordError(
            f"the member ends after {inflater.made:,} bytes, and the index says {inflater.wanted:,}: "
            "the index is of another version of the shard",
            path=self._files.display_path(shard),
            record=record,
            member_offset=member,
            part="compression",
        )


# Until a store was measured: 20 ms before the first byte, and 26 MB/s.
_LATENCY = 0.020
_BYTES_PER_SECOND = (512 << 10) / _LATENCY
# A read of at most so many bytes tells of the first byte, one of at least so many of each.
_SHORT = 32 << 10
_LONG = 512 << 10
# Of the last measurement against those before it: a burst of slow answers is forgotten after some dozens.
_WEIGHT = 1 / 8
# Whatever was measured: less is never worth a request, more never worth its memory.
_LEAST_GAP = 32 << 10
_MOST_GAP = 4 << 20


class ReadCost:
    """What reads have cost lately."""

    def __init__(self) -> None:
        self._latency = _LATENCY
        self._bytes_per_second = _BYTES_PER_SECOND

    @property
    def gap(self) -> int:
        """Bytes between two records up to which they are better read together."""
        return int(max(_LEAST_GAP, min(_MOST_GAP, self._latency * self._bytes_per_second)))

    def took(self, size: int, seconds: float) -> None:
        """Note a read that gave so many bytes after so long."""
        if size <= _SHORT:
            self._latency += _WEIGHT * (seconds - self._latency)
        elif size >= _LONG and seconds > self._latency:
            self._bytes_per_second += _WEIGHT * (size / (seconds - self._latency) - self._bytes_per_second)
