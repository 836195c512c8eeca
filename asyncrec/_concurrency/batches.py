"""`Batches` is the one iterator over batches that readers and streams give out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Batches(Generic[T]):
    """An async iterator over what ``next_batch`` returns, until that raises StopAsyncIteration.

    A class, since an async generator is not closed when its loop is left.
    """

    def __init__(self, next_batch: Callable[[], Awaitable[T]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Batches[T]:
        return self

    async def __anext__(self) -> T:
        return await self._next_batch()
