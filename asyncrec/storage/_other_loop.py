"""Make calls and enter contexts on an asyncio loop in another thread, from tasks of any event loop.

- The same asyncio task enters, uses and exits a context (of a storage, a sink or a source), so the context may contain
  task groups and cancel scopes.
- If a call is cancelled, its operation is cancelled on the asyncio loop and awaited in a shielded scope before the
  caller raises the cancellation. If the operation has succeeded in the meantime, its result is returned, and the
  cancellation is raised at the next await.
- A context that exits with an exception is cancelled on the asyncio loop. Its clean-up must have a time limit, as
  `Storage.open_sink` requires.
- Neither loop ever blocks while the other works, because messages are passed without waiting.
- A call in a context that is not open raises `ClosedResourceError`, as does a call after the loop has begun to end.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Generic, TypeVar

import anyio

from asyncrec._concurrency.deadline import Deadline, current_deadline
from asyncrec.storage._retry import fault_listener, telling_faults

T = TypeVar("T")
R = TypeVar("R")


def on_asyncio() -> bool:
    """Return whether the running event loop is asyncio's; otherwise it is trio's."""
    return anyio.get_cancelled_exc_class() is asyncio.CancelledError


class OtherLoop:
    """The asyncio loop of the thread that created this object, for use from other threads."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Without this copy, a callback would run in its caller's context, where sniffio detects the wrong async
        # library.
        self._context = contextvars.copy_context()
        self._ending = False

    def soon(self, func: Callable[..., object], *args: object) -> None:
        """Call ``func`` on the loop, without waiting. Calls from one thread keep their order.

        Raises:
            ClosedResourceError: `refuse` has been called.
        """
        if self._ending:
            raise anyio.ClosedResourceError("the storage is closed and can no longer be used")
        self._loop.call_soon_threadsafe(func, *args, context=self._context)

    def refuse(self) -> None:
        """Reject all later calls, because the loop is about to end. Earlier calls either finish or are cancelled."""
        self._ending = True


class OtherCall(Generic[T]):
    """A cancellable operation on the asyncio loop, and its outcome."""

    def __init__(self, loop: OtherLoop, operation: Callable[[], Awaitable[T]]) -> None:
        self._loop = loop
        self._operation = operation
        self._callers = current_deadline()
        self._listener = fault_listener()
        self._deadline = Deadline()  # the caller's deadline, by the asyncio loop's clock; set on cancellation
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self.outcome: Future[T] = Future()

    def start(self) -> None:
        """Run the operation in a new task. Called on the asyncio loop."""
        self._task = asyncio.create_task(self.run())  # the loop itself keeps only a weak reference

    async def run(self) -> None:
        """Run the operation, and store its result or error in `outcome`. Called on the asyncio loop."""
        with self._deadline.applied(), telling_faults(self._listener), anyio.CancelScope() as self._scope:
            if self._cancelled:
                self._scope.cancel()
            try:
                result = await self._operation()
                del self._operation  # release a sent chunk before its sender fills the next one
            except asyncio.CancelledError:
                self.outcome.cancel()
                raise
            except BaseException as error:
                self.outcome.set_exception(error)
            else:
                self.outcome.set_result(result)

    def cancel(self) -> None:
        """Cancel the operation from the caller's thread. The operation has ended when `outcome` is done."""
        left = math.inf if self._callers is None else self._callers.at - anyio.current_time()
        with suppress(anyio.ClosedResourceError):  # the loop is ending, and cancels all operations
            self._loop.soon(self._cancel, left)

    def _cancel(self, left: float) -> None:
        self._cancelled = True
        self._deadline.bring(anyio.current_time() + left)
        if self._scope is not None:
            self._scope.cancel()

    async def result(self) -> T:
        """Wait for the outcome on the caller's loop. If cancelled, cancel the operation and wait until it has ended.

        Raises:
            ClosedResourceError: the operation was cancelled on its loop, because its context has ended.
        """
        try:
            await _done(self.outcome)
        except anyio.get_cancelled_exc_class():
            self.cancel()
            with anyio.CancelScope(shield=True):
                await _done(self.outcome)
            if self.outcome.cancelled() or self.outcome.exception() is not None:
                raise
        if self.outcome.cancelled():
            raise anyio.ClosedResourceError
        return self.outcome.result()


class OtherContext(Generic[T]):
    """A context on the asyncio loop, where one task enters it, runs the submitted calls one by one, and exits it."""

    def __init__(self, loop: OtherLoop, open_factory: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._loop = loop
        self._open = open_factory
        self._entered: Future[T] = Future()
        self._inbox: asyncio.Queue[OtherCall[Any] | None] = asyncio.Queue()  # at most one call: a sink has one user
        self._life = OtherCall(loop, self._live)
        self._begun = False
        self._left = False

    async def enter(self) -> T:
        """Enter the context, and return the object that it yields. If cancelled, wait until the context has exited.

        Raises:
            RuntimeError: the context was entered before.
        """
        if self._begun:
            raise RuntimeError("it is entered once")
        self._loop.soon(self._life.start)
        self._begun = True
        try:
            await _done(self._entered)
        except anyio.get_cancelled_exc_class():
            await self.leave(cancel=True)
            raise
        return self._entered.result()

    async def call(self, operation: Callable[[], Awaitable[R]]) -> R:
        """Run ``operation`` in the task that entered the context.

        Raises:
            ClosedResourceError: the context is not open.
            Exception: the context has ended early, with this error.
        """
        if not self._begun or self._left:
            raise anyio.ClosedResourceError("its context is not open")
        call = OtherCall(self._loop, operation)
        self._loop.soon(self._submit, call)
        try:
            return await call.result()
        except anyio.ClosedResourceError:
            if call.outcome.cancelled():
                # This call was not cancelled by its caller, so the context is ending or has ended.
                await _done(self._life.outcome)
                if not self._life.outcome.cancelled():
                    self._life.outcome.result()
            raise

    async def leave(self, *, cancel: bool) -> None:
        """Exit the context, either cleanly or by cancelling it. Errors of a cancelled context are not raised.

        Raises:
            RuntimeError: the context was not entered.
        """
        if not self._begun:
            raise RuntimeError("it was not entered")
        self._left = True
        if cancel:
            self._life.cancel()
            with anyio.CancelScope(shield=True):
                await _done(self._life.outcome)
        else:
            self._loop.soon(self._submit, None)
            await self._life.result()

    async def _live(self) -> None:
        try:
            async with self._open() as thing:
                self._entered.set_result(thing)
                while (call := await self._inbox.get()) is not None:
                    await call.run()
        except BaseException as error:
            if not self._entered.done():
                self._entered.set_exception(error)
            raise
        finally:
            # From now on, no task runs submitted calls, so they must be rejected.
            asyncio.get_running_loop().call_soon(self._refuse)

    def _submit(self, call: OtherCall[Any] | None) -> None:
        self._inbox.put_nowait(call)
        if self._life.outcome.done():
            self._refuse()

    def _refuse(self) -> None:
        while not self._inbox.empty():
            call = self._inbox.get_nowait()
            if call is not None:
                call.outcome.cancel()


async def _done(future: Future[Any]) -> None:
    """Wait on the caller's loop until a future of the asyncio thread is done."""
    event = anyio.Event()
    soon = run_soon()

    def wake(_: object) -> None:
        with suppress(RuntimeError):  # the caller's loop has ended, and so has the caller
            soon(event.set)

    # The callback runs in the asyncio thread, or in this thread if the future is already done. `soon` works in both.
    future.add_done_callback(wake)
    await event.wait()


def run_soon() -> Callable[[Callable[[], object]], object]:
    """Return a callable with which other threads run a function on the current event loop, without waiting for it.

    `anyio.from_thread` would wait, which would block one loop while the other works.
    """
    if on_asyncio():
        return asyncio.get_running_loop().call_soon_threadsafe
    import trio

    return trio.lowlevel.current_trio_token().run_sync_soon
