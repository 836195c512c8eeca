"""`Weave`: whole rounds of an interleave, put in order at once. Pure.

A round is one block of each input in turn. Of inputs that have blocks for many rounds at hand, all those rounds are
laid out by a few slices for each input, instead of a step for each block: a tenth of the time where blocks are small.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.provenance import Held, Origin

__all__ = ["Part", "Weave"]


class Part(NamedTuple):
    """What one input gives: the records of ``held`` from ``begin`` on, and where they end, those of ``coming``."""

    place: int
    held: Held
    begin: int
    coming: Held | None

    def records(self, count: int) -> tuple[list[bytes], int]:
        """A list, and the index in it from which on ``count`` are those of the part."""
        records = self.held.batch.records
        missing = self.begin + count - len(records)
        if missing <= 0:
            return records, self.begin
        assert self.coming is not None, "so many are at hand"
        return records[self.begin :] + self.coming.batch.records[:missing], 0

    def standing(self, index: int) -> tuple[Held, int]:
        """Which batch holds record ``index`` of the part, or what comes behind it, and where in it."""
        index += self.begin
        size = len(self.held.batch.records)
        if self.coming is None or index < size:
            return self.held, index
        return self.coming, index - size


class Weave:
    """``rounds`` rounds of ``block_length`` records of each of ``parts``, in the order of the parts.

    Each part has ``rounds * block_length`` records at least.

    Attributes:
        records: in order.
    """

    def __init__(self, parts: Sequence[Part], rounds: int, block_length: int) -> None:
        self._parts = parts
        self._block_length = block_length
        self._step = step = len(parts) * block_length
        count = rounds * block_length
        taken = [part.records(count) for part in parts]
        self.records: list[bytes]
        if rounds <= block_length:
            self.records = []
            for turn in range(0, count, block_length):
                for records, begin in taken:
                    self.records += records[begin + turn : begin + turn + block_length]
        else:
            self.records = [b""] * (step * rounds)
            for number, (records, begin) in enumerate(taken):
                for offset in range(block_length):
                    self.records[number * block_length + offset :: step] = records[
                        begin + offset : begin + count : block_length
                    ]

    def origins(self, begin: int, end: int) -> list[Origin]:
        """Of ``records[begin:end]``."""
        found = []
        for index in range(begin, end):
            turn, within = divmod(index, self._step)
            number, offset = divmod(within, self._block_length)
            held, at = self._parts[number].standing(turn * self._block_length + offset)
            found += held.origins(at, at + 1)
        return found

    def standing(self, count: int) -> dict[int, tuple[Held, int]]:
        """By the place of each part: which batch it stands in, and where, when ``count`` records were taken."""
        turns, within = divmod(count, self._step)
        found = {}
        for number, part in enumerate(self._parts):
            of_block = min(self._block_length, max(0, within - number * self._block_length))
            found[part.place] = part.standing(turns * self._block_length + of_block)
        return found

    def order(self, begun: InterleaveOrder, count: int) -> InterleaveOrder:
        """Where the order stands when ``count`` records were taken; ``begun``: before the first of them."""
        order = begun.copy()
        blocks, in_block = divmod(count % self._step, self._block_length)
        for _ in range(blocks):
            order.next()
            order.took(self._block_length, ended=False)
        if in_block:
            order.next()
            order.took(in_block, ended=False)
        return order
