"""`InterleaveRounds` arranges many complete rounds at once, in the order of `InterleaveOrder`. It does no I/O.

A round is one block of each input in turn. If all inputs have blocks for many rounds in memory, these rounds are
arranged with a few slices per input rather than with one step per block. If blocks are small, this takes a tenth of the
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.provenance import RecordSource, SourcedBatch


class RoundInput(NamedTuple):
    """The records of one input, starting at index ``begin`` of ``current``, followed by the records of ``next``."""

    place: int
    current: SourcedBatch
    begin: int
    next: SourcedBatch | None

    def records(self, count: int) -> tuple[list[bytes], int]:
        """Return a list, and the index in that list at which the first ``count`` records of this input begin."""
        records = self.current.records
        missing = self.begin + count - len(records)
        if missing <= 0:
            return records, self.begin
        assert self.next is not None, "enough records are available"
        return records[self.begin :] + self.next.records[:missing], 0

    def locate(self, index: int) -> tuple[SourcedBatch, int]:
        """Return the batch that contains record ``index`` of this input, and the record's index in that batch."""
        index += self.begin
        size = len(self.current.records)
        if self.next is None or index < size:
            return self.current, index
        return self.next, index - size


class InterleaveRounds:
    """The records of ``rounds`` complete rounds, each with ``block_length`` records of every input in turn.

    Each input must have at least ``rounds * block_length`` records.

    Attributes:
        records: the records of all rounds, in order.
    """

    def __init__(self, inputs: Sequence[RoundInput], rounds: int, block_length: int) -> None:
        self._inputs = inputs
        self._block_length = block_length
        self._step = step = len(inputs) * block_length
        count = rounds * block_length
        given = [each.records(count) for each in inputs]
        self.records: list[bytes]
        if rounds <= block_length:
            self.records = []
            for turn in range(0, count, block_length):
                for records, begin in given:
                    self.records += records[begin + turn : begin + turn + block_length]
        else:
            self.records = [b""] * (step * rounds)
            for number, (records, begin) in enumerate(given):
                for offset in range(block_length):
                    self.records[number * block_length + offset :: step] = records[
                        begin + offset : begin + count : block_length
                    ]

    def sources(self, begin: int, end: int) -> list[RecordSource]:
        """Return the source of each of ``records[begin:end]``."""
        found = []
        for index in range(begin, end):
            turn, within = divmod(index, self._step)
            number, offset = divmod(within, self._block_length)
            current, at = self._inputs[number].locate(turn * self._block_length + offset)
            found += current.sources(at, at + 1)
        return found

    def cursors_after(self, count: int) -> dict[int, tuple[SourcedBatch, int]]:
        """Return, by place, each input's current batch after ``count`` records, and the index of its next record."""
        turns, within = divmod(count, self._step)
        found = {}
        for number, each in enumerate(self._inputs):
            of_block = min(self._block_length, max(0, within - number * self._block_length))
            found[each.place] = each.locate(turns * self._block_length + of_block)
        return found

    def order_after(self, begun: InterleaveOrder, count: int) -> InterleaveOrder:
        """Return the order after ``count`` records of these rounds. ``begun`` is the order before the first record."""
        order = begun.copy()
        blocks, in_block = divmod(count % self._step, self._block_length)
        for _ in range(blocks):
            order.next()
            order.took(self._block_length, ended=False)
        if in_block:
            order.next()
            order.took(in_block, ended=False)
        return order
