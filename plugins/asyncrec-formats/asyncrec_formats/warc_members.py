"""`Members`: a GZIP file is inflated member by member, also where some are damaged. Pure.

The next member may begin within a damaged one, which is inflated anew from each place that looks like a beginning. That
has a budget in proportion to what was read; without one, reading goes on behind the damage.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

GZIP = b"\x1f\x8b\x08"
_STEP = 256 << 10
# A member's output waits for its checksum while it is no larger; beyond it goes on, and damage is reported afterwards.
_HELD_BYTES = 64 << 20
# Compressed bytes inflated at once: zlib copies what is left of them behind a member's end, so the first are few.
_FIRST_SLICE = 1 << 10
_SLICE = 64 << 10
# Bytes that may be inflated in vain for each byte read, and at the beginning; what is charged at least for a try. Of
# output, sixteen bytes take as long as one of input. A file in which every member is damaged takes one for each byte.
_AGAIN_FACTOR = 4
_AGAIN_AT_LEAST = 16 << 20
_AGAIN_EACH = 1 << 10
_OUTPUT_FOR_INPUT = 16


class Members:
    """GZIP: blocks in; ``(offset, output)`` of members out, or ``(offset, reason)`` for one that is damaged."""

    def __init__(self) -> None:
        self._held = bytearray()  # compressed, from the beginning of the member
        self._base = 0  # the byte of the file at which it begins
        self._inflater: Any = None
        self._fed = 0  # bytes of what is held
        self._slice = _FIRST_SLICE
        self._output: list[bytes] = []
        self._size = 0
        self._flowing = False
        self._searching = False  # for the next member; the damage was reported
        self._budget = _AGAIN_AT_LEAST

    def feed(self, block: bytes) -> Iterator[tuple[int, bytes | str]]:
        """``b""`` is the end."""
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
                    return  # the rest of it is to come
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
        """Inflate a slice of what is held."""
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
        if self._flowing:  # it is not looked through again
            self._drop(self._fed)

    def _may_go_back(self) -> bool:
        """Whether the next member may be looked for in the damaged one; what inflating that took is charged."""
        self._budget -= max(_AGAIN_EACH, self._fed, self._size // _OUTPUT_FOR_INPUT)
        return not self._flowing and self._budget >= 0

    def _look_for_next(self, start: int) -> None:
        self._inflater = None
        self._searching = True
        found = self._held.find(GZIP, start)
        # The last two bytes may be the beginning of it.
        self._drop(found if found >= 0 else max(start, len(self._held) - len(GZIP) + 1))

    def _drop(self, count: int) -> None:
        count = min(count, len(self._held))
        del self._held[:count]
        self._base += count
        self._fed = 0
