"""`FrameSearch` searches for the next frame after damage, in bytes of unknown content.

A frame is found at the first byte where a length and its data both match their checksums. A frame may begin at any
byte, and there may be a million headers, each of which states a length of 64 MiB. Two measures keep the search time
linear: NumPy finds the headers, a window at a time, and the data of large candidates is checked with one running CRC,
stored every 4 KiB, from which the CRC of any range can be derived. No candidate is skipped to save time.
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

# The next frame is usually near. Windows start small and grow, so that few bytes are searched twice.
_FIRST_WINDOW = 1 << 10
_WINDOW = 1 << 18

# In most data, far fewer than one position in eight has a possible length. Runs of zeros and small integers have more.
_MANY = 8

# The data of a candidate up to this size is checked directly, which takes a microsecond or two. This is fast enough
# even if there is a candidate every 12 bytes.
_DIRECT = 16 << 10
_STRIDE = 4096


def find_headers(data: Buffer, max_length: int) -> list[tuple[int, int]]:
    """Return the ``(position, length)`` of each valid header in ``data`` whose length is at most ``max_length``."""
    count = len(data) - HEADER_BYTES + 1
    if count <= 0:
        return []
    words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the four bytes at each position
    small = words[4 : 4 + count] <= max_length >> 32
    if np.count_nonzero(small) > count // _MANY:  # mostly zeros; only one length has the checksum 0
        small &= (words[8 : 8 + count] != 0) | (words[:count] == length_of(0))
    at = np.flatnonzero(small)
    lengths = words[at].astype(np.uint64) | words[at + 4].astype(np.uint64) << np.uint64(32)
    believed = (lengths <= max_length) & (masked_crc32c_of_lengths(lengths) == words[at + 8])
    return list(zip(at[believed].tolist(), lengths[believed].tolist(), strict=True))


class FrameSearch:
    """A search for the first complete frame from ``start`` on, in a buffer that the caller fills and `find` empties.

    Args:
        buffer: the bytes from ``base`` on. `find` discards bytes in which no frame can begin, so the buffer contains at
            most a record of ``max_record_bytes`` and the bytes added last.
        base: the place of the buffer's first byte. All places are offsets in the stream.
    """

    def __init__(self, buffer: bytearray, *, base: int, start: int, max_record_bytes: int) -> None:
        self.base = base
        self._buffer = buffer
        self._max_record_bytes = max_record_bytes
        self._next = start  # the first place not yet searched
        self._window = _FIRST_WINDOW
        self._candidates: deque[tuple[int, int]] = deque()  # place and length, ascending
        self._large: dict[int, bool] = {}  # whether each large candidate checked so far is valid, by its place
        self._prefixes: _Prefixes | None = None

    def go_on(self, buffer: bytearray, *, base: int, start: int) -> None:
        """Continue the search from ``start`` on, after the last frame found, without searching any byte twice.

        Damage may occur every few bytes, and starting a new window each time would take a hundred times as long.
        """
        self.base, self._buffer = base, buffer
        self._prefixes = None
        if start > self._next:
            self._next, self._window = start, _FIRST_WINDOW
        while self._candidates and self._candidates[0][0] < start:
            self._large.pop(self._candidates.popleft()[0], None)

    def find(self, *, ended: bool) -> int | None:
        """Return the place of the frame; `None` if more bytes are needed or, with ``ended``, if there is no frame."""
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
        """Return whether the candidate at ``place`` is a valid frame; `None` if its end has not yet been fed."""
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
        """Check all large candidates whose ends have been fed, in one pass."""
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
        """Discard the bytes before ``place``, except those that are needed to compute the next CRC."""
        if self._prefixes is not None:
            self._prefixes.extend(self._buffer, self.base)
            place = max(self.base, place - _STRIDE)
        del self._buffer[: place - self.base]
        self.base = place


class _Prefixes:
    """The running CRC of a stream from ``origin`` on, stored every 4 KiB, which takes a thousandth of its size."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        self._crcs = array("I", [0])
        self._tail = (origin, 0)  # the place up to which the CRC is computed, and the CRC there

    def extend(self, buffer: bytearray, base: int) -> None:
        """Compute the CRCs of ``buffer``, which begins at ``base`` and contains every byte not yet processed."""
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
        """Compute the CRC of the stream from the origin to ``place``. This reads at most 4 KiB of ``view``."""
        index = (place - self._origin) // _STRIDE
        begin = self._origin + index * _STRIDE
        with view[begin - base : place - base] as piece:
            crc: int = crc32c(piece, self._crcs[index])
        return crc
