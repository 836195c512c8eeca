"""`Members` inflates a GZIP file member by member, even if some members are damaged. This module does no I/O.

The next member may begin within a damaged one, so inflating is retried at each position that looks like a member's
beginning. The budget for retries is proportional to the bytes read. Once it is exhausted, reading continues after the
damage.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

GZIP = b"\x1f\x8b\x08"
_STEP = 256 << 10
# The output of a member up to this size is withheld until its checksum has been verified. The output of a larger member
# is yielded earlier, and any damage is reported afterwards.
_HELD_BYTES = 64 << 20
# The number of compressed bytes to inflate at a time, at first and at most. The first slice is small, because zlib
# copies the bytes after a member's end.
_FIRST_SLICE = 1 << 10
_SLICE = 64 << 10
# The budget for bytes inflated in vain: its growth per byte read, its initial size, the minimum charge for a damaged
# member, and the bytes of output whose inflation takes as long as one byte of input. A file in which all members are
# damaged needs one byte per byte read.
_AGAIN_FACTOR = 4
_AGAIN_AT_LEAST = 16 << 20
_AGAIN_EACH = 1 << 10
_OUTPUT_FOR_INPUT = 16


class Members:
    """An inflater of GZIP blocks. It yields ``(offset, output)`` for members, or ``(offset, reason)`` for damage."""

    def __init__(self) -> None:
        self._held = bytearray()  # the compressed bytes, from the beginning of the member
        self._base = 0  # the offset of `_held` in the file
        self._inflater: Any = None
        self._fed = 0  # the number of held bytes passed to the inflater
        self._slice = _FIRST_SLICE
        self._output: list[bytes] = []
        self._size = 0
        self._flowing = False
        self._searching = False  # whether to search for the next member, after reported damage
        self._budget = _AGAIN_AT_LEAST

    def feed(self, block: bytes) -> Iterator[tuple[int, bytes | str]]:
        """Yield the output of the members in a block. ``b""`` ends the file."""
        self._held += block
        self._budget += _AGAIN_FACTOR * len(block)
        while self._fed < len(self._held):
            if self._inflater is None:
                head = bytes(self._held[: len(GZIP)])
                if head == GZIP:
                    self._inflater = zlib.decompressobj(wbits=31)
                    self._output, self._size, self._flowing, self._searching = [], 0, False, False
                    self._slice = _FIRST_SLICE
                elif block and GZIP.startswith(head):
                    return  # the rest of the header is in the next block
                elif not any(self._held):  # padding
                    self._drop(len(self._held))
                    continue
                else:
                    if not self._searching:
                        yield self._base, "no GZIP member begins here"
                    self._look_for_next(1)
                    continue
            try:
                yield from self._inflate()
            except zlib.error as error:
                yield self._base, f"a GZIP member is damaged: {error}"
                self._look_for_next(1 if self._may_go_back() else max(1, self._fed))
        if not block and self._inflater is not None:
            yield self._base, "the file ends inside a GZIP member"
            self._inflater = None

    def _inflate(self) -> Iterator[tuple[int, bytes | str]]:
        """Inflate the next slice of the held bytes."""
        data = bytes(self._held[self._fed : self._fed + self._slice])
        self._fed += len(data)
        self._slice = min(2 * self._slice, _SLICE)
        while True:
            output = self._inflater.decompress(data, _STEP)
            if output:
                self._output.append(output)
                self._size += len(output)
            data = self._inflater.unconsumed_tail
            if self._flowing or max(self._size, self._fed) > _HELD_BYTES or self._inflater.eof:
                self._flowing = True
                for each in self._output:
                    yield self._base, each
                self._output = []
            if self._inflater.eof:
                rest = len(self._inflater.unused_data)
                self._inflater = None
                self._drop(self._fed - rest)
                return
            if not data and not output:
                break
        if self._flowing:  # output was yielded, so the member cannot be retried
            self._drop(self._fed)

    def _may_go_back(self) -> bool:
        """Charge the budget for a damaged member. Return whether to search for the next member within it."""
        self._budget -= max(_AGAIN_EACH, self._fed, self._size // _OUTPUT_FOR_INPUT)
        return not self._flowing and self._budget >= 0

    def _look_for_next(self, start: int) -> None:
        self._inflater = None
        self._searching = True
        found = self._held.find(GZIP, start)
        # Keep the last two bytes, with which a member may begin.
        self._drop(found if found >= 0 else max(start, len(self._held) - len(GZIP) + 1))

    def _drop(self, count: int) -> None:
        count = min(count, len(self._held))
        del self._held[:count]
        self._base += count
        self._fed = 0
