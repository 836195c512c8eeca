"""`SlicedInput` hands compressed bytes to a decompressor in slices."""

from __future__ import annotations

from collections import deque

# Both libraries copy the input they could not yet use at each call; in slices that cost stays linear.
# A fault takes the output of its slice along, so they are not larger than speed asks for.
_SLICE = 32 * 1024


class SlicedInput:
    """Blocks of compressed bytes that were fed, and are given out in slices.

    Attributes:
        consumed: how many bytes were used.
    """

    def __init__(self, fault: int | None) -> None:
        """``fault``: the byte from which on slices are single bytes, so that what is before the fault comes out."""
        self.consumed = 0
        self._fault = fault
        self._block = b""
        self._at = 0  # in the block
        self._blocks: deque[bytes] = deque()

    def feed(self, data: bytes) -> None:
        """Take the next block."""
        if data:
            self._blocks.append(data)

    def peek(self) -> memoryview:
        """Return the next slice; it is empty when everything was used."""
        if self._at == len(self._block):
            self._block = self._blocks.popleft() if self._blocks else b""
            self._at = 0
        size = _SLICE
        if self._fault is not None and self.consumed < self._fault + _SLICE:
            size = min(self._fault - self.consumed, _SLICE) if self.consumed < self._fault else 1
        return memoryview(self._block)[self._at : self._at + size]

    def advance(self, count: int) -> None:
        """So many bytes of the slice were used."""
        self._at += count
        self.consumed += count
