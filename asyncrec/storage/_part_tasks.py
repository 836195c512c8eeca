"""An upload sends its parts in the background, in `PartTasks`, which its storage runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from asyncrec._concurrency.tasks import TaskScope


class PartTasks:
    """The tasks of one upload. The first that fails cancels the others, and its error is kept.

    Args:
        scope: of the storage, in which they run.
        release: is called with the slots of a task that has ended.

    Attributes:
        cancelled: whether `cancel` was called.
    """

    def __init__(self, scope: TaskScope, release: Callable[[int], None]) -> None:
        self._scope = scope
        self._release = release
        self._error: Exception | None = None
        self.cancelled = False
        self._running = 0
        self._idle = anyio.Event()
        self._scopes: set[anyio.CancelScope] = set()

    def start(self, job: Callable[[], Awaitable[None]], slots: int) -> None:
        """Run ``job`` in a task; at its end its slots are given back."""
        if not self._running:
            self._idle = anyio.Event()
        self._running += 1
        self._scope.start_soon(self._run, job, slots)

    def check(self) -> None:
        """Raise what one has failed with."""
        if self._error is not None:
            raise self._error

    async def wait(self) -> None:
        """Wait until none runs."""
        while self._running:
            await self._idle.wait()

    def cancel(self) -> None:
        """Cancel those that run, and those that are started from now on."""
        self.cancelled = True
        for scope in list(self._scopes):
            scope.cancel()

    async def _run(self, job: Callable[[], Awaitable[None]], slots: int) -> None:
        scope = anyio.CancelScope()
        self._scopes.add(scope)
        if self.cancelled or self._error is not None:
            scope.cancel()
        try:
            with scope:
                await job()
        except Exception as error:
            self._error = self._error or error
            for other in self._scopes - {scope}:
                other.cancel()
        finally:
            self._scopes.discard(scope)
            self._release(slots)
            self._running -= 1
            if not self._running:
                self._idle.set()
