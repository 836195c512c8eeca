"""`RecordsInOrder` iterates over all records of a `Dataset` in order.

Nothing stays open between two steps, so an iteration may be abandoned at any time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from asyncrec._concurrency.batches import Batches

# The size of one step: large enough to hide a store's latency, but small enough to fit in memory.
_STEP_BYTES = 4 << 20
_STEP_RECORDS = 4096
# The approximate ratio of a record's decompressed size to its stored size.
_INFLATED = 4


class RecordsInOrder:
    """An async iterator over records. If a step is cancelled, the next one continues after the last record returned.

    Args:
        count: the number of records in the data set.
        step: the number of records that one step covers, whether they are wanted or not.
        wanted: ``wanted(first, last)`` returns the numbers of the wanted records in ``[first, last)``.
        get_many: returns the records with these numbers.
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
        """Iterate over the records in non-empty lists, from the current position."""
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
    """Return the number of records that one step covers, if ``records`` records take ``stored_bytes`` bytes."""
    each = max(1, stored_bytes * (_INFLATED if compressed else 1) // max(1, records))
    return max(1, min(_STEP_RECORDS, _STEP_BYTES // each))
