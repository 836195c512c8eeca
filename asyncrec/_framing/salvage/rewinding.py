"""`Rewinding`: where a salvager is in an object, and how often it may go back."""

from __future__ import annotations

# Going back: twice over all bytes is what a file takes in which every member is damaged.
_AGAIN_FACTOR = 4
_AGAIN_AT_LEAST = 16 << 20
# What is charged at least: for a request to a store, and for what is in memory still.
_AGAIN_EACH = 8 << 10
_AGAIN_HERE = 1 << 10


class Rewinding:
    """A place in an object, with a budget for going back that grows with the bytes fed.

    Attributes:
        position: the byte to be fed next.
        at_end: whether the object ends at ``position``.
    """

    def __init__(self, start: int) -> None:
        self.position = start
        self.at_end = False
        self._furthest = start
        self._budget = _AGAIN_AT_LEAST
        self._block = (start, b"")  # fed last, and its place

    def feed(self, data: bytes) -> None:
        """Take the bytes at ``position``; none say that the object ends there."""
        if data:
            self._block = (self.position, data)
        else:
            self.at_end = True
        self.position += len(data)
        if self.position > self._furthest:
            self._budget += _AGAIN_FACTOR * (self.position - self._furthest)
            self._furthest = self.position

    def may_go_back(self, byte: int) -> bool:
        """Tell whether the budget allows it; if so, it is charged."""
        cost = _AGAIN_HERE if self._block[0] <= byte else max(self.position - byte, _AGAIN_EACH)
        if cost > self._budget:
            return False
        self._budget -= cost
        return True

    def go_back(self, byte: int) -> bytes:
        """Return the bytes from there on that are in memory still; where there are none, they have to be fed again."""
        place, block = self._block
        if place <= byte:
            return block[byte - place :]
        self.position = byte
        self.at_end = False
        return b""
