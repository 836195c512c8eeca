"""`Batches`, the batch iterator of all readers and streams."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Batches(Generic[T]):
    """Async iterator that yields the results of ``next_batch`` until it raises StopAsyncIteration.

    This is a class because an async generator is not closed when the caller breaks out of its ``async for`` loop.
    """

    def __init__(self, next_batch: Callable[[], Awaitable[T]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Batches[T]:
        return self

    async def __anext__(self) -> T:
        return await self._next_batch()
