"""`FrameSearch` looks for the next frame behind damage, in bytes of which nothing is known.

A frame is found at the first byte where a length and its checksum agree and the data's checksum holds. Any byte may
begin one, and each of a million headers may claim 64 MiB, so two things keep the search linear: headers are looked for
by NumPy, a window at a time, and the data of large candidates is checked from one running CRC over the bytes, kept
every 4 KiB, from which the CRC of any range follows. No candidate is given up for want of time.
"""

from __future__ import annotations

from array import array
from collections import deque

from asyncrec._framing.crc import (
    Buffer,
    crc32c,
    crcs_between,
    length_of,
    mask_all,
    masked_crc32c,
    masked_crc32c_of_lengths,
)
from asyncrec._framing.encoding import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES
from asyncrec._numpy import np

# The next frame is most often near: windows begin small, so that little is looked at twice, and grow.
_FIRST_WINDOW = 1 << 10
_WINDOW = 1 << 18

# In any data but zeros and small integers, next to no eight bytes are a length that may be.
_MANY = 8

# Data up to here is checked directly: an overlapping claim on every 12 bytes then costs a microsecond or two each.
_DIRECT = 16 << 10
_STRIDE = 4096


def find_headers(data: Buffer, max_length: int) -> list[tuple[int, int]]:
    """Find ``(position, length)`` of every whole header in ``data`` whose checksum holds, of at most ``max_length``."""
    count = len(data) - HEADER_BYTES + 1
    if count <= 0:
        return []
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the four bytes from each byte on
    small = words[4 : 4 + count] <= max_length >> 32
    if np.count_nonzero(small) > count // _MANY:  # zeros, most likely, which one length alone has for its checksum
        small &= (words[8 : 8 + count] != 0) | (words[:count] == length_of(0))
    at = np.flatnonzero(small)
    lengths = words[at].astype(np.uint64) | words[at + 4].astype(np.uint64) << np.uint64(32)
    believed = (lengths <= max_length) & (masked_crc32c_of_lengths(lengths) == words[at + 8])
    return list(zip(at[believed].tolist(), lengths[believed].tolist(), strict=True))


class FrameSearch:
    """Finds the first whole frame at or after ``start``, in a buffer that its owner fills and the search empties.

    Args:
        buffer: the bytes from ``base`` on. `find` drops those that no frame can begin in; so it holds at most a record
            of ``max_record_bytes`` and what was added last.
        base: the place of the buffer's first byte in the stream; so is every other place here.
    """

    def __init__(self, buffer: bytearray, *, base: int, start: int, max_record_bytes: int) -> None:
        self.base = base
        self._buffer = buffer
        self._max_record_bytes = max_record_bytes
        self._next = start  # the first place not looked at
        self._window = _FIRST_WINDOW
        self._candidates: deque[tuple[int, int]] = deque()  # place and length, ascending
        self._large: dict[int, bool] = {}  # of large candidates, once checked: whether they hold
        self._prefixes: _Prefixes | None = None

    def go_on(self, buffer: bytearray, *, base: int, start: int) -> None:
        """Look for the next frame at or after ``start``, behind the one found. Nothing is looked at twice.

        Damage may come every few bytes: a window of its own for each would cost a hundred times as much.
        """
        self.base, self._buffer = base, buffer
        self._prefixes = None
        if start > self._next:
            self._next, self._window = start, _FIRST_WINDOW
        while self._candidates and self._candidates[0][0] < start:
            self._large.pop(self._candidates.popleft()[0], None)

    def find(self, *, ended: bool) -> int | None:
        """Return where the frame begins; `None` if that takes more bytes, or, with ``ended``, if there is no frame."""
        while True:
            while self._candidates:
                holds = self._check(*self._candidates[0], ended)
                if holds is None:
                    self._drop(self._candidates[0][0])
                    return None
                place, _ = self._candidates.popleft()
                if holds:
                    return place
            end = self.base + len(self._buffer)
            if self._next + HEADER_BYTES > end:
                self._drop(min(self._next, end))
                return None
            begin = self._next
            stop = min(begin + self._window, end - HEADER_BYTES + 1)
            self._window = min(2 * self._window, _WINDOW)
            window = bytes(self._buffer[begin - self.base : stop - self.base + HEADER_BYTES - 1])
            self._candidates.extend((begin + at, length) for at, length in find_headers(window, self._max_record_bytes))
            self._next = stop

    def _check(self, place: int, length: int, ended: bool) -> bool | None:
        """Return whether a frame is whole; `None` if its end is not there yet."""
        if place + length + FRAME_OVERHEAD > self.base + len(self._buffer):
            return False if ended else None
        if length > _DIRECT:
            if place not in self._large:
                self._check_large()
            return self._large.pop(place)
        begin = place - self.base + HEADER_BYTES
        with memoryview(self._buffer) as view, view[begin : begin + length] as data:
            return masked_crc32c(data) == self._footer(place, length)

    def _check_large(self) -> None:
        """Check at once all large candidates whose ends are there."""
        end = self.base + len(self._buffer)
        chosen = [
            (place, length)
            for place, length in self._candidates
            if length > _DIRECT and place not in self._large and place + length + FRAME_OVERHEAD <= end
        ]
        if self._prefixes is None:
            self._prefixes = _Prefixes(self.base)
        self._prefixes.extend(self._buffer, self.base)
        crc_at = self._prefixes.crc_at
        with memoryview(self._buffer) as view:
            starts = [place + HEADER_BYTES for place, _ in chosen]
            before = np.array([crc_at(view, self.base, start) for start in starts], np.uint32)
            after = np.array(
                [crc_at(view, self.base, start + length) for start, (_, length) in zip(starts, chosen, strict=True)],
                np.uint32,
            )
        lengths = np.array([length for _, length in chosen], np.int64)
        footers = np.array([self._footer(*each) for each in chosen], np.uint32)
        holds = mask_all(crcs_between(before, after, lengths)) == footers
        self._large.update(zip([place for place, _ in chosen], holds.tolist(), strict=True))

    def _footer(self, place: int, length: int) -> int:
        at = place - self.base + HEADER_BYTES + length
        return int.from_bytes(self._buffer[at : at + FOOTER_BYTES], "little")

    def _drop(self, place: int) -> None:
        """Drop what lies before ``place``, except what the next CRC is computed from."""
        if self._prefixes is not None:
            self._prefixes.extend(self._buffer, self.base)
            place = max(self.base, place - _STRIDE)
        del self._buffer[: place - self.base]
        self.base = place


class _Prefixes:
    """Keeps the CRC of a stream from ``origin`` on, every 4 KiB: a thousandth of the bytes it stands for."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._crcs = array("I", [0])
        self._tail = (origin, 0)  # how far it has come, and the CRC there

    def extend(self, buffer: bytearray, base: int) -> None:
        """Compute the CRCs of ``buffer``, which begins at ``base`` and has every byte not computed yet."""
        done, crc = self._tail
        end = base + len(buffer)
        with memoryview(buffer) as view:
            while done < end:
                stop = min(done + _STRIDE - (done - self._origin) % _STRIDE, end)
                with view[done - base : stop - base] as piece:
                    crc = crc32c(piece, crc)
                done = stop
                if (done - self._origin) % _STRIDE == 0:
                    self._crcs.append(crc)
        self._tail = (done, crc)

    def crc_at(self, view: memoryview, base: int, place: int) -> int:
        """Compute the CRC of everything from the origin to ``place``, in ``view`` with the 4 KiB before it."""
        index = (place - self._origin) // _STRIDE
        begin = self._origin + index * _STRIDE
        with view[begin - base : place - base] as piece:
            crc: int = crc32c(piece, self._crcs[index])
        return crc
