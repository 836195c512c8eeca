"""`ReadAhead` works one step ahead of the task that takes its results."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Generic, TypeVar

import anyio

from asyncrec._concurrency.tasks import TaskScope

__all__ = ["ReadAhead"]

P = TypeVar("P")
T = TypeVar("T")


class ReadAhead(Generic[P, T]):
    """Awaits ``fetch(plan)`` for each plan in turn, one of them ahead, in a task of ``scope``.

    What is held is one result that waits to be taken, or one that is being made.
    """

    def __init__(self, scope: TaskScope, plans: Iterator[P], fetch: Callable[[P], Awaitable[T]]) -> None:
        self._scope = scope
        self._plans = plans
        self._fetch = fetch
        self._coming: _Coming[T] | None = None
        self._making = anyio.CancelScope()

    async def next(self) -> T | None:
        """Return the next result; `None` at the end. An error in making it is raised here, and by every later call."""
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
        """Give up what is being made."""
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
    """A result that is being made, or waits to be taken."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.result: T | None = None
        self.error: Exception | None = None
