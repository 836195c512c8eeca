"""`Held`: the part of an `Owner` that runs on the event loop. One task enters, uses and exits an async context."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

import anyio

T = TypeVar("T")
A = TypeVar("A")


class Held(Generic[A]):
    """The state of the owner's task on the loop. The task enters and exits the context.

    Attributes:
        entered: an event that is set once the context has been entered, or entering it has failed.
        opened: whether the context was entered successfully.
        ended: whether the context has been exited, or entering it has failed.
        suppressed: whether the context's exit suppressed the error.
        rescue: a function that writes pending data. It is awaited before the context exits if the owner was
            garbage-collected or Python is exiting. It must limit its own time, must not raise, and must not refer to
            the owner or its handle.
    """

    value: A
    rescue: Callable[[], Awaitable[None]] | None = None

    def __init__(self, context: AbstractAsyncContextManager[A], what: str) -> None:
        self._context = context
        self._what = what
        self._jobs: deque[_Job] = deque()
        self.leaving: tuple[BaseException | None] | None = None
        self.entered = threading.Event()
        self.opened = False
        self.ended = False
        self.suppressed = False

    async def hold(self) -> None:
        self._wake = anyio.Event()
        try:
            async with _Released(self._context, self) as self.value:
                self.opened = True
                self.entered.set()
                await self._serve()
        finally:
            self.ended = True
            self.entered.set()
            for job in self._jobs:
                job.done.set()

    async def _serve(self) -> None:
        while self.leaving is None:
            await self._wake.wait()
            self._wake = anyio.Event()
            while self._jobs:
                await self._jobs.popleft().run()

    def check_open(self) -> None:
        """Raise ClosedResourceError if the context has been exited. Safe to call from any thread."""
        if self.ended or self.leaving is not None:
            raise anyio.ClosedResourceError(f"{self._what} is closed; use it inside its `with`")

    async def inside(self, work: Callable[[], Awaitable[T]]) -> T:
        self.check_open()
        job = _Job(work)
        self._jobs.append(job)
        self._wake.set()
        try:
            await job.done.wait()
        except BaseException:
            job.scope.cancel()
            with anyio.CancelScope(shield=True):  # no timeout, because the job limits its own clean-up
                await job.done.wait()
            raise
        if job.error is not None:
            raise job.error
        if not job.succeeded:
            raise anyio.ClosedResourceError(f"{self._what} was closed while it was in use")
        result: T = job.result
        return result

    def leave(self, error: BaseException | None) -> None:
        self.leaving = (error,)
        self._wake.set()


class _Released(Generic[A]):
    """A wrapper that exits the owner's context with the error of the caller's body, not one of the owner's task."""

    def __init__(self, context: AbstractAsyncContextManager[A], held: Held[A]) -> None:
        self._context = context
        self._held = held

    async def __aenter__(self) -> A:
        return await self._context.__aenter__()

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if exc is not None:  # cancelled: the exit was interrupted, the owner was collected, or Python is exiting
            if self._held.rescue is not None:
                with anyio.CancelScope(shield=True):
                    await self._held.rescue()
            return bool(await self._context.__aexit__(exc_type, exc, traceback))
        assert self._held.leaving is not None, "only leave() exits without an error"
        (error,) = self._held.leaving
        try:
            traceback = error.__traceback__ if error else None
            suppressed = await self._context.__aexit__(type(error) if error else None, error, traceback)
        except BaseException as raised:
            if raised is not error:
                raise
        else:
            self._held.suppressed = error is not None and bool(suppressed)
        return False


class _Job:
    """A call to be made in the owner's task."""

    def __init__(self, work: Callable[[], Awaitable[Any]]) -> None:
        self._work = work
        self.scope = anyio.CancelScope()
        self.done = anyio.Event()
        self.succeeded = False
        self.result: Any = None
        self.error: BaseException | None = None

    async def run(self) -> None:
        try:
            with self.scope:
                self.result = await self._work()
                self.succeeded = True
        except (Exception, KeyboardInterrupt, SystemExit) as error:
            self.error = error
        finally:
            self.done.set()
