"""Reading chosen records of one shard: nearby ones by one read, GZIP by members, every checksum verified.

An uncompressed shard is read in ranges: records with less than 512 KiB between them share one, up to a bound. Of a
compressed one, members are decompressed in a worker thread from their beginning; small ones are kept for a while, so
that neighbours come cheap. A file that is one large member (as TensorFlow writes them) is decompressed from its start
up to the last record wanted each time: correct, in bounded memory, and slow; asyncrec writes members of 4 MiB.

On damage from a remote store the range is read once more: then it was damaged on its way, or is so at rest, and the
error says which. So it is where a copy in the local cache turns out damaged, which is brought anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Literal, cast

import anyio
import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.lru_cache import KeptLately
from asyncrec._sampling.random_access.frame_extractor import Cutting, Inflating, join_ranges
from asyncrec._sampling.random_access.shard_files import Places
from asyncrec.errors import CorruptRecordError, FormatError
from asyncrec.framing.damage import Damage
from asyncrec.records.index import RecordIndex
from asyncrec.tasks import in_thread

__all__ = ["Reading", "ShardAccess"]

Indices = NDArray[np.int64]

# Bytes read for nothing rather than in a read of their own: what comes in the time that a read takes to begin. Of a
# store that is some 20 ms, of a file 0.3 ms (opening, closing, hops to threads), and both are worth about as much.
_GAP = 512 << 10
# One read at most. Of a store, so large that a request's own cost does not count; of a file less, since a thread that
# cuts more at once makes the event loop wait longer for the interpreter.
_MOST_READ_REMOTE = 8 << 20
_MOST_READ_LOCAL = 1 << 20
# Reads at once: enough to hide a store's delay, few enough for its connections; times a read it bounds what is held
# beside the records themselves.
_CONCURRENT = 16
# Decompressed members kept, and the largest that is: sixteen of those asyncrec writes.
_KEPT_BYTES = 64 << 20
_MOST_KEPT = 16 << 20
_READ_BYTES = 1 << 20
# Cutting and checking less than this costs less than the hop to a thread.
_CUT_ON_LOOP = 64 << 10
_FEW_RUNS = 8


class Reading:
    """One read: the records ``within`` a shard, ascending and distinct; the ``first`` of them as it was asked for."""

    __slots__ = ("first", "index", "shard", "within")

    def __init__(self, shard: int, index: RecordIndex, within: Indices, first: int) -> None:
        self.shard = shard
        self.index = index
        self.within = within
        self.first = first


class ShardAccess:
    """Cuts what is wanted of a shard into reads, and does them. Used by any number of tasks."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._members: KeptLately[tuple[int, int], bytes] = KeptLately(_KEPT_BYTES, len)
        self._most_read = _MOST_READ_REMOTE if places.remote else _MOST_READ_LOCAL
        self._limiter = anyio.CapacityLimiter(_CONCURRENT)
        # Cutting holds the interpreter: a second thread at it gains nothing, and makes the event loop wait for both.
        self._cutting = anyio.CapacityLimiter(1)

    def readings(self, shard: int, index: RecordIndex, within: Indices) -> Iterator[Reading]:
        """The reads that give these records, ascending and distinct."""
        if index.members is not None:
            cuts = np.flatnonzero(np.diff(index.members[within])) + 1
            parts: Iterable[tuple[int, int]] = pairwise([0, *cuts.tolist(), len(within)])
        else:
            begins = index.offsets[within]
            parts = join_ranges(begins, begins + index.sizes[within], gap=_GAP, most=self._most_read)
        for first, last in parts:
            yield Reading(shard, index, within[first:last], first)

    async def records(self, reading: Reading) -> list[bytes]:
        """The records of one read, in its order.

        Raises:
            FormatError: with path, record and offset, when one of them is damaged; others may be.
        """
        async with self._limiter:
            try:
                return await self._records(reading)
            except FormatError as error:
                first = error
            dropped = await self._places.drop_damaged(reading.shard)
            if not dropped and not self._places.remote:
                raise first
            try:
                return await self._records(reading)
            except FormatError as error:
                error.add_note("read twice, and damaged both times: damaged at rest, not in transit")
                raise

    async def whole(self, reading: Reading) -> tuple[list[bytes | None], list[Damage]]:
        """As `records`, but `None` for each that is damaged, and what of the shard that is.

        Raises:
            CorruptRecordError: the shard does not agree with its index.
        """
        try:
            return list(await self.records(reading)), []
        except FormatError:
            pass
        index, within = reading.index, reading.within
        begins, sizes = index.offsets[within], index.sizes[within]
        member = None if index.members is None else int(index.members[within[0]])
        cutting = Cutting(self._places.shown(reading.shard), within, begins, sizes, member=member)
        async with self._limiter:
            if member is None:
                start, end = int(begins[0]), int(begins[-1] + sizes[-1])
                data = await self._places.read(reading.shard, start, end)
                ranges = zip((begins - start).tolist(), (begins + sizes - start).tolist(), strict=True)
                pieces = [data[begin:stop] for begin, stop in ranges]
            else:
                inflating = self._inflating(reading)
                with suppress(FormatError):
                    await self._inflate(reading, inflating)
                pieces = inflating.pieces
            return await in_thread(cutting.whole_of, pieces, limiter=self._cutting)

    async def _records(self, reading: Reading) -> list[bytes]:
        if reading.index.members is not None:
            return await self._of_member(reading)
        begins = reading.index.offsets[reading.within]
        sizes = reading.index.sizes[reading.within]
        start, end = int(begins[0]), int(begins[-1] + sizes[-1])
        data = await self._places.read(reading.shard, start, end)
        cutting = Cutting(self._places.shown(reading.shard), reading.within, begins, sizes)
        if len(data) <= _CUT_ON_LOOP and len(reading.within) <= _FEW_RUNS:
            return cutting.of(data, start)
        return await in_thread(cutting.of, data, start, limiter=self._cutting)

    async def _of_member(self, reading: Reading) -> list[bytes]:
        index, within = reading.index, reading.within
        assert index.members is not None, "asked for where there are members"
        member = int(index.members[within[0]])
        after = int(np.searchsorted(index.members, member, side="right"))
        size = int(index.offsets[after - 1] + index.sizes[after - 1])
        begins, sizes = index.offsets[within], index.sizes[within]
        cutting = Cutting(self._places.shown(reading.shard), within, begins, sizes, member=member)
        if size <= _MOST_KEPT:
            key = (reading.shard, member)

            async def make() -> bytes:
                (whole,) = await self._inflate(reading, Inflating(self._kind(reading), [(0, size)]))
                return whole

            data = await self._members.get(key, make)
            try:
                return await in_thread(cutting.of, data, 0, limiter=self._cutting)
            except FormatError:
                self._members.forget(key)
                raise
        pieces = await self._inflate(reading, self._inflating(reading))
        return await in_thread(cutting.of_pieces, pieces, limiter=self._cutting)

    def _kind(self, reading: Reading) -> Literal["GZIP", "ZLIB"]:
        return cast(Literal["GZIP", "ZLIB"], self._places.shards[reading.shard].compression)

    def _inflating(self, reading: Reading) -> Inflating:
        begins, sizes = reading.index.offsets[reading.within], reading.index.sizes[reading.within]
        return Inflating(self._kind(reading), list(zip(begins.tolist(), (begins + sizes).tolist(), strict=True)))

    async def _inflate(self, reading: Reading, inflating: Inflating) -> list[bytes]:
        """The pieces: ranges of what a member, and where a record leads on those behind it, decompress to.

        Raises:
            FormatError: it does not decompress, or to less. Those before are in ``inflating.pieces``.
        """
        shard, members, record = reading.shard, reading.index.members, int(reading.within[0])
        assert members is not None, "asked for where there are members"
        member = int(members[record])
        after = int(np.searchsorted(members, member, side="right"))
        shard_ends = self._places.shards[shard].bytes
        end = int(members[after]) if after < len(members) else shard_ends
        try:
            # Its own bytes; and where a record of another writer's ends in a later member, those as well.
            for start, stop in ((member, end), (end, shard_ends)):
                async with self._places.opened(shard, start, stop) as source:
                    while block := await source.receive(_READ_BYTES):
                        if await in_thread(inflating.feed, block):
                            return inflating.pieces
            inflating.finish()
        except FormatError as error:
            error.path = self._places.shown(shard)
            error.record = record
            error.member_offset = member + (error.member_offset or 0) if self._kind(reading) == "GZIP" else None
            raise
        raise CorruptRecordError(
            f"the member ends after {inflating.made:,} bytes, and the index says {inflating.wanted:,}: "
            "the index is of another version of the shard",
            path=self._places.shown(shard),
            record=record,
            member_offset=member,
            part="compression",
        )
