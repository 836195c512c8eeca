"""A shuffled epoch without async. Records and batches are transferred from the event loop in groups.

A call to the loop takes as long as reading a few dozen records. With one call per batch, batches of 32 records would
take four times as long as on the loop. Therefore, all batches that have already been read are transferred together. The
state is the position after the last record or batch that was returned to the caller. If the caller changes the batch
size, the next batch begins there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from asyncrec._concurrency.forks import OfOneProcess
from asyncrec._sampling.epochs import shuffled_stream
from asyncrec.blocking._owner import Owner
from asyncrec.blocking._streams import Stream

# With groups of this size, a call takes a tenth of a microsecond per record. A group adds at most 1 MiB to the
# read-ahead.
_RECORDS = 1024
_BYTES = 1 << 20


class ShuffledStream(Stream[bytes]):
    """`asyncrec.ShuffledStream`, iterated with ``for`` over records or `batches`, by one thread at a time."""

    def __init__(self, owner: Owner[Any], value: shuffled_stream.ShuffledStream) -> None:
        super().__init__(owner, value, chunk=1)
        self._begin(1)

    def _begin(self, size: int) -> None:
        self._groups = self._value.batches(size)
        self._size = size
        self._arrived: deque[Any] = deque()  # batches, or for size 1, records, with `None` for a damaged record

    def __next__(self) -> bytes:
        while True:
            record: bytes | None = self._next_batch(1)
            if record is not None:
                return record

    def batches(self, batch_size: int) -> Iterator[list[bytes]]:
        """Iterate over lists of ``batch_size`` records. See the stream's own ``batches``."""
        self._value.batches(batch_size)  # raises if the size is invalid
        return _Batches(self._next_batch, batch_size)

    def _next_batch(self, size: int) -> Any:
        """Return the next batch. For size 1, return its record, or `None` if that record is damaged and skipped.

        Raises:
            StopIteration: there are no more batches.
        """
        if size != self._size:
            if self._arrived:
                self._owner.call_sync(self._groups.give_back, list(self._arrived))
            self._begin(size)
        if not self._arrived:
            self._owner.call_inside(self._pull)
            if not self._arrived:
                raise StopIteration
        return self._arrived.popleft()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last record or batch returned, as JSON. See the stream's own ``state_dict``."""
        state: dict[str, Any] = self._owner.call_sync(lambda: self._groups.state_before(len(self._arrived)))
        return state

    async def _pull(self) -> None:
        with suppress(StopAsyncIteration):
            self._arrived.extend(await self._groups.take_group(_RECORDS, _BYTES))


class _Batches(OfOneProcess, Iterator[list[bytes]]):
    def __init__(self, next_batch: Callable[[int], Any], size: int) -> None:
        super().__init__()
        self._next = next_batch
        self._size = size

    def __next__(self) -> list[bytes]:
        batch = self._next(self._size)
        if self._size > 1:
            whole: list[bytes] = batch
            return whole
        return [] if batch is None else [batch]
