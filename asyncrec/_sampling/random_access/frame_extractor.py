"""`FrameExtractor` extracts records from the bytes of a read, and checks the records. It does no I/O.

The positions of the records are known from an index, so damage to one record does not affect its neighbours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asyncrec._framing.compression import Decompressor
from asyncrec._framing.damage import Damage, DamageReason
from asyncrec._framing.frames import FRAME_OVERHEAD, FrameDecoder
from asyncrec._native import native
from asyncrec.errors import (
    CorruptRecordError,
    DisagreesWithIndexError,
    FormatError,
    RecordTooLargeError,
    TruncatedError,
)

Indices = NDArray[np.int64]

_INFLATE_STEP = 256 << 10


def join_ranges(begins: Indices, ends: Indices, *, gap: int, most: int) -> Iterator[tuple[int, int]]:
    """Group ascending ranges that can be read together, with gaps of at most ``gap`` bytes between them.

    A group spans at most ``most`` bytes, but a range that is longer than ``most`` is a group of its own. Yield
    ``(first, last)`` for each group, which consists of the ranges ``first`` to ``last - 1``.
    """
    far = np.flatnonzero(begins[1:] - ends[:-1] > gap) + 1
    for first, last in pairwise([0, *far.tolist(), len(begins)]):
        while first < last:
            fits = int(np.searchsorted(ends[first:last], begins[first] + most, side="right"))
            yield first, first + max(1, fits)
            first += max(1, fits)


def split_ranges(begins: Indices, *, most: int, count: int) -> Iterator[tuple[int, int]]:
    """Group neighbouring records that can be extracted together.

    A group has about ``most`` bytes, and at most ``count`` records. ``begins`` are the positions of the records. Yield
    ``(first, last)``, as `join_ranges` does.
    """
    number = (begins - begins[0]) // most
    cuts = np.union1d(np.flatnonzero(np.diff(number)) + 1, np.arange(count, len(begins), count))
    return pairwise([0, *cuts.tolist(), len(begins)])


def cut_exactly(frames: bytes, lengths: list[int]) -> list[bytes] | None:
    """Return the records in ``frames``, or `None` unless all of them are complete and intact and have these lengths."""
    records: list[bytes] = []
    if native is not None:
        native.cut_frames(frames, 0, sys.maxsize, True, records)
    else:
        records = FrameDecoder(max_record_bytes=max(lengths)).feed(frames)
    return records if list(map(len, records)) == lengths else None


class FrameExtractor:
    """Extracts the records that are expected in one read of a shard, and checks each of them.

    To extract many records, use a worker thread.
    """

    def __init__(
        self, path: str, within: Indices, begins: Indices, sizes: Indices, *, member: int | None = None
    ) -> None:
        self._path = path
        self._within = within
        self._begins = begins
        self._sizes = sizes
        self._member = member

    def of(self, data: bytes, start: int) -> list[bytes]:
        """Return the records in ``data``, which begins at byte ``start``."""
        # Neighbouring records are extracted together. The bytes between such groups are neither needed nor checked.
        cuts = np.flatnonzero(np.diff(self._within) != 1) + 1
        firsts = np.concatenate([[0], cuts])
        lasts = np.concatenate([cuts, [len(self._within)]]) - 1
        begins = (self._begins[firsts] - start).tolist()
        ends = (self._begins[lasts] + self._sizes[lasts] - start).tolist()
        return self.of_pieces([data[begin:end] for begin, end in zip(begins, ends, strict=True)])

    def of_pieces(self, pieces: list[bytes]) -> list[bytes]:
        """Return the records in ``pieces``, which must consist of all wanted frames, in order."""
        # For many small records, checking all frames at once takes a third of the time.
        frames = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        records = cut_exactly(frames, (self._sizes - FRAME_OVERHEAD).tolist())
        if records is None:
            raise self._explain(frames)
        return records

    def whole_of(self, pieces: Sequence[bytes]) -> tuple[list[bytes | None], list[Damage]]:
        """Return the records in ``pieces`` (one frame each), with `None` for damaged or missing ones, and the damage.

        Raises:
            CorruptRecordError: the shard does not match its index, so the positions of its records are not known.
        """
        records: list[bytes | None] = []
        lost = []
        for at, within in enumerate(self._within.tolist()):
            begin, size = int(self._begins[at]), int(self._sizes[at])
            reason: DamageReason = "compression"
            if at < len(pieces):
                only = FrameExtractor(
                    self._path,
                    self._within[at : at + 1],
                    self._begins[at : at + 1],
                    self._sizes[at : at + 1],
                    member=self._member,
                )
                try:
                    records += only.of_pieces([pieces[at]])
                    continue
                except DisagreesWithIndexError:
                    raise
                except CorruptRecordError as error:
                    reason = "data" if error.part == "data" else "length"
            records.append(None)
            lost.append(Damage(begin, size, reason, within, self._member))
        return records, lost

    def _explain(self, frames: bytes) -> FormatError:
        """Return the error for the first record that is damaged or does not match the index."""
        ends = np.cumsum(self._sizes)
        for at, (begin, end) in enumerate(zip((ends - self._sizes).tolist(), ends.tolist(), strict=True)):
            decoder = FrameDecoder(max_record_bytes=max(1, end - begin))
            decoder.offset, decoder.records = int(self._begins[at]), int(self._within[at])
            try:
                records = decoder.feed(frames[begin:end])
                decoder.finish()
                if len(records) == 1:
                    continue
                error: FormatError = self._other("it has more records than the index lists", decoder)
            except (TruncatedError, RecordTooLargeError):
                error = self._other("a record is longer than the index says, or the shard was truncated", decoder)
            except FormatError as damage:
                error = damage
            error.path = self._path
            error.member_offset = self._member
            return error
        raise AssertionError("each record is intact individually, but not all together")

    def _other(self, problem: str, decoder: FrameDecoder) -> CorruptRecordError:
        return DisagreesWithIndexError(
            f"the shard does not match its index: {problem}; rebuild the index, or restore the shard from its source",
            offset=decoder.offset,
            record=decoder.records,
            part="length",
        )


class RangeInflater:
    """A decompressor that starts at a member, and keeps only ``ranges`` of its output. Use it in a worker thread.

    Args:
        ranges: the wanted ranges of decompressed bytes, in ascending order.

    Attributes:
        pieces: the bytes of the ranges that are complete.
        wanted: the number of bytes to decompress.
        made: the number of bytes decompressed so far.
    """

    def __init__(self, kind: Literal["GZIP", "ZLIB"], ranges: Sequence[tuple[int, int]]) -> None:
        self._decompressor = Decompressor(kind)
        self._ranges = ranges
        self._parts: list[bytes] = []
        self.wanted = ranges[-1][1]
        self.pieces: list[bytes] = []
        self.made = 0

    def feed(self, block: bytes) -> bool:
        """Decompress ``block``, and return whether all ranges are complete."""
        self._decompressor.feed(block)
        while len(self.pieces) < len(self._ranges):
            output = self._decompressor.read(_INFLATE_STEP)
            if not output:
                return False
            start, self.made = self.made, self.made + len(output)
            while len(self.pieces) < len(self._ranges):
                begin, end = self._ranges[len(self.pieces)]
                if begin >= self.made:
                    break
                self._parts.append(output[max(0, begin - start) : end - start])
                if end > self.made:
                    break
                self.pieces.append(b"".join(self._parts))
                self._parts = []
        return True

    def finish(self) -> None:
        self._decompressor.finish()
