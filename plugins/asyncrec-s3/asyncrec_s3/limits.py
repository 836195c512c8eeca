"""`Limited`: how long a request may take, and what its failures are called."""

from __future__ import annotations

from typing import Any

import anyio

from asyncrec.errors import StorageError, TransientStorageError

from .errors import Condition, translate

__all__ = ["Limited"]

# Bytes per second below which a transfer counts as stalled; the timeouts of sockets do not see a store that reads
# nothing, or sends a byte now and then.
_SLOWEST = 64 << 10


class Limited:
    """A context that limits the time of a request, and translates its errors.

    Args:
        what: the operation and its object, for errors.
        condition: what the request asked for, which says what a refusal means.
        patience: seconds without a byte, those for connecting included.
        size: bytes that it transfers.

    Raises:
        StorageError: of the tree; `TransientStorageError` also when the time is over.
    """

    def __init__(self, what: str, condition: Condition, patience: float, size: int) -> None:
        self._what = what
        self._condition = condition
        self._seconds = patience + size / _SLOWEST
        self._scope = anyio.CancelScope()

    def __enter__(self) -> None:
        self._scope.deadline = anyio.current_time() + self._seconds
        self._scope.__enter__()

    def __exit__(self, exc_type: Any, exc: BaseException | None, traceback: Any) -> None:
        self._scope.__exit__(exc_type, exc, traceback)
        if self._scope.cancelled_caught:
            raise TransientStorageError(f"{self._what}: no end after {self._seconds:.0f} s")
        if isinstance(exc, Exception) and not isinstance(exc, StorageError):
            raise translate(exc, self._what, condition=self._condition) from exc
