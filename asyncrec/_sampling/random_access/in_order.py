"""All records of a data set, in order: `Dataset` iterated over.

Nothing is open between two steps, so that an iteration may be left at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.batches import Batches

# Of one step: enough to hide a store's delay behind, and little to hold.
_STEP_BYTES = 4 << 20
_STEP_RECORDS = 4096
# What a compressed record becomes, roughly.
_INFLATED = 4


class RecordsInOrder:
    """An async iterator; cancelled, it goes on where the last call was given.

    Args:
        count: how many records there are.
        step: how many are looked at in one step.
        wanted: the numbers of those that are given, of the records from one number to behind the last.
    """

    def __init__(
        self,
        count: int,
        step: int,
        wanted: Callable[[int, int], Awaitable[NDArray[np.int64]]],
        get_many: Callable[[NDArray[np.int64]], Awaitable[list[bytes]]],
    ) -> None:
        self._count = count
        self._step = step
        self._wanted = wanted
        self._get_many = get_many
        self._next = 0
        self._records: Iterator[bytes] = iter(())

    def __aiter__(self) -> RecordsInOrder:
        return self

    async def __anext__(self) -> bytes:
        for record in self._records:
            return record
        self._records = iter(await self._batch())
        return next(self._records)

    def batches(self) -> Batches[list[bytes]]:
        """The records in lists. Goes on where the other stopped; no list is empty."""
        return Batches(self._batch)

    async def _batch(self) -> list[bytes]:
        if rest := list(self._records):
            return rest
        while self._next < self._count:
            end = min(self._count, self._next + self._step)
            found = await self._get_many(await self._wanted(self._next, end))
            self._next = end
            if found:
                return found
        raise StopAsyncIteration


def step_of(records: int, stored_bytes: int, *, compressed: bool) -> int:
    """How many records are read in one step, of so many that take so many bytes."""
    each = max(1, stored_bytes * (_INFLATED if compressed else 1) // max(1, records))
    return max(1, min(_STEP_RECORDS, _STEP_BYTES // each))
