"""`Fingerprints` tell which hashes came before, in 16 bytes a key; no step is long enough to hold the event loop.

(`_shards.writing.keys.KeySet` is exact and as small, but takes in a hundred thousand keys by sorting a million, which
holds the interpreter for a third of a second.)
"""

from __future__ import annotations

from struct import Struct

_HALVES = Struct("<QQ").unpack


class Fingerprints:
    """A table of 64-bit fingerprints of 16-byte hashes, as many as ``capacity``; those beyond are not kept.

    A hash that was never added is taken for one that was with a chance of 1 in 2^60: who has to be sure looks it up.
    """

    def __init__(self, capacity: int) -> None:
        slots = 1 << (2 * max(capacity, 1) - 1).bit_length()  # half of them stay empty: a search is short
        self._table = memoryview(bytearray(8 * slots)).cast("Q")  # zero is empty; memory is taken as it fills
        self._mask = slots - 1
        self._room = capacity

    def __contains__(self, digest: bytes) -> bool:
        value, slot = _HALVES(digest)
        value |= 1
        table, mask = self._table, self._mask
        while (found := table[slot & mask]) != value:
            if not found:
                return False
            slot += 1
        return True

    def add(self, digest: bytes) -> None:
        value, slot = _HALVES(digest)
        value |= 1
        table, mask = self._table, self._mask
        while (found := table[slot & mask]) != value:
            if not found:
                if self._room:
                    self._room -= 1
                    table[slot & mask] = value
                return
            slot += 1
