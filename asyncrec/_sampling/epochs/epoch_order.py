"""`EpochOrder` maps positions of an epoch to records, for a data set whose record counts are known. It does no I/O.

An order is computed in two steps. First, the records are arranged in a sequence in one of three ways:

- ``"block"``: runs of neighbouring records, in an order that is permuted over the entire data set;
- ``"buffer"``: shards in a seeded order, interleaved as in tf.data (`InterleaveOrder`);
- ``"global"``: a permutation of all records.

Then this sequence is cut into windows of ``window`` records, and each window is shuffled separately. (``"global"`` does
not need the second step.) A window mixes records as well as a reservoir of the same size, but which records it contains
depends only on its position. Any number of workers can therefore resume an order at any position, which is a single
number. See docs/design/shuffled-epochs.md.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from asyncrec._sampling.epochs.permutation import key_of, permutation, permuted
from asyncrec._sampling.interleave.order import InterleaveOrder

Mode = Literal["block", "buffer", "global"]
Indices = NDArray[np.int64]


class EpochOrder:
    """The order of one epoch of n records: which record is at each of the positions 0 .. n - 1.

    Args:
        mode: how the records are arranged before windows are shuffled.
        starts: int64 (shards + 1,), the number of each shard's first record, followed by n.
        blocks: for ``"block"``, int64 (blocks + 1,), the first record of each run, followed by n. No run spans shards.
        window: the number of records that are shuffled together.
        key: the key of this epoch.
        cycle_length, block_length: for ``"buffer"``, as for `asyncrec.interleave`.
    """

    def __init__(
        self,
        mode: Mode,
        starts: Indices,
        *,
        blocks: Indices,
        window: int,
        key: int,
        cycle_length: int,
        block_length: int,
    ) -> None:
        self.count = int(starts[-1])
        self.window = window
        self._key = key
        self._shuffles = mode != "global"
        self._entered: tuple[int, Indices] = (-1, np.empty(0, np.int64))
        self._entering: _Blocks | _Interleaved | _Everywhere
        if mode == "block":
            self._entering = _Blocks(blocks, key)
        elif mode == "buffer":
            self._entering = _Interleaved(starts, key, cycle_length, block_length)
        else:
            self._entering = _Everywhere(self.count, key)

    def at(self, start: int, stop: int) -> Indices:
        """Return the records at the positions ``[start, stop)`` as int64. The positions must lie in one window."""
        number = start // self.window
        if self._entered[0] != number:
            begin = number * self.window
            entered = self._entering.between(begin, min(self.count, begin + self.window))
            if self._shuffles:
                entered = entered[permutation(len(entered), key_of(self._key, "window", number))]
            self._entered = (number, entered)
        begin = number * self.window
        return self._entered[1][start - begin : stop - begin]

    def across(self, position: int) -> tuple[int, int] | None:
        """Return the block that has records on both sides of a position, as the range ``[first, last)`` of its records.

        Return `None` if a block begins at the position, if the position is the end, or if the mode is not ``"block"``.
        """
        return self._entering.across(position) if isinstance(self._entering, _Blocks) else None


class _Everywhere:
    def __init__(self, count: int, key: int) -> None:
        self._count, self._key = count, key

    def between(self, start: int, stop: int) -> Indices:
        return permuted(np.arange(start, stop), self._count, self._key)


class _Blocks:
    def __init__(self, blocks: Indices, key: int) -> None:
        order = permutation(len(blocks) - 1, key)
        self._first = blocks[:-1][order]
        # The positions at which each block begins and ends.
        sizes = np.diff(blocks)[order]
        self._ends = np.cumsum(sizes)
        self._begins = self._ends - sizes

    def between(self, start: int, stop: int) -> Indices:
        positions = np.arange(start, stop)
        block = np.searchsorted(self._ends, positions, side="right")
        found: Indices = self._first[block] + positions - self._begins[block]
        return found

    def across(self, position: int) -> tuple[int, int] | None:
        block = int(np.searchsorted(self._ends, position, side="right"))
        if block == len(self._ends) or self._begins[block] == position:
            return None
        first = int(self._first[block])
        return first, first + int(self._ends[block] - self._begins[block])


class _Interleaved:
    """An interleaved order, computed block by block from the beginning.

    Computing a block takes about a microsecond, so skipping a million records takes about 60 ms.
    """

    def __init__(self, starts: Indices, key: int, cycle_length: int, block_length: int) -> None:
        self._cycle_length = cycle_length
        self._block_length = block_length
        order = permutation(len(starts) - 1, key)
        self._first = starts[:-1][order].tolist()
        self._last = starts[1:][order].tolist()
        self._begin()

    def _begin(self) -> None:
        self._order = InterleaveOrder(
            len(self._first), cycle_length=self._cycle_length, block_length=self._block_length
        )
        self._next = list(self._first)
        self._position = 0
        self._left: tuple[int, int] = (0, 0)  # the part of the last run that the previous call did not use

    def between(self, start: int, stop: int) -> Indices:
        if start < self._position:
            self._begin()
        runs: list[Indices] = []
        while self._position < stop:
            first, last = self._left
            if first == last:
                first, last = self._take()
            size = min(last - first, stop - self._position)
            if self._position + size > start:
                runs.append(np.arange(first + max(0, start - self._position), first + size))
            self._position += size
            self._left = (first + size, last)
        return np.concatenate(runs) if runs else np.empty(0, np.int64)

    def _take(self) -> tuple[int, int]:
        take = self._order.next()
        assert take is not None, "more records follow"
        first = self._next[take.source]
        last = min(first + take.count, self._last[take.source])
        self._next[take.source] = last
        # As with a reader, an input that returns fewer records than requested has ended.
        self._order.took(last - first, ended=last - first < take.count)
        return first, last
