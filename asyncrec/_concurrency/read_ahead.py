"""`ReadAhead` fetches one result ahead of its consumer; `iterated_ahead` iterates a few items ahead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Generic, TypeVar

import anyio

from asyncrec._concurrency.tasks import Handover, TaskScope

# The number of items that may wait for the consumer, in addition to the next one.
_WAITING = 2

P = TypeVar("P")
T = TypeVar("T")


@asynccontextmanager
async def iterated_ahead(
    make: Callable[[AsyncExitStack], AsyncIterator[T]], what: str
) -> AsyncIterator[AsyncIterator[T]]:
    """Iterate in a separate task, at most `_WAITING` items ahead of the consumer.

    Args:
        make: a function that returns the iterator, and enters the resources that the iterator needs on the given stack.
            The stack is closed in the same task.
        what: the name of the input, for error messages.
    """
    items: Handover[T] = Handover(_WAITING, what)

    async def iterate() -> None:
        try:
            async with AsyncExitStack() as stack:
                async for item in make(stack):
                    await items.put(item)
        except Exception as error:
            items.end(error)
        else:
            items.end()

    async with TaskScope() as scope:
        scope.start_soon(iterate)
        try:
            yield _Taken(items)
        finally:
            scope.cancel()


class _Taken(Generic[T]):
    def __init__(self, items: Handover[T]) -> None:
        self._items = items

    def __aiter__(self) -> _Taken[T]:
        return self

    async def __anext__(self) -> T:
        return await self._items.take()


class ReadAhead(Generic[P, T]):
    """Awaits ``fetch(plan)`` for each plan, one plan ahead of the consumer, in a task of ``scope``.

    There is at most one result at a time that is being fetched or waiting for the consumer.
    """

    def __init__(self, scope: TaskScope, plans: Iterator[P], fetch: Callable[[P], Awaitable[T]]) -> None:
        self._scope = scope
        self._plans = plans
        self._fetch = fetch
        self._coming: _Coming[T] | None = None
        self._making = anyio.CancelScope()

    async def next(self) -> T | None:
        """Return the next result, or `None` at the end. Once ``fetch`` has failed, every call raises its error."""
        if self._coming is None:
            self._begin()
        coming = self._coming
        if coming is None:
            return None
        await coming.done.wait()
        if coming.error is not None:
            raise coming.error
        self._coming = None
        self._begin()
        return coming.result

    def cancel(self) -> None:
        """Cancel the fetch in progress, and start no more."""
        self._plans = iter(())
        self._making.cancel()

    def _begin(self) -> None:
        for plan in self._plans:
            self._coming = _Coming()
            self._making = anyio.CancelScope()
            self._scope.start_soon(self._make, plan, self._coming, self._making)
            return

    async def _make(self, plan: P, coming: _Coming[T], scope: anyio.CancelScope) -> None:
        try:
            with scope:
                coming.result = await self._fetch(plan)
        except Exception as error:
            coming.error = error
        finally:
            coming.done.set()


class _Coming(Generic[T]):
    """A result that is being fetched or is waiting for the consumer."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None
