"""Tasks and threads with an owner: `TaskScope` and `in_thread`.

`TaskScope` is a task group for tasks that own something (a shard, a source) on behalf of a caller's body. What it adds
to `anyio.create_task_group`:

- The body's exception leaves as itself, never inside an exception group, on asyncio and on trio.
- A task never cancels the body. Tasks are expected to keep their own errors for those who ask; one that escapes a task
  is raised at the exit.
- Cancelling the body does not reach the tasks: they go on until they return or `TaskScope.cancel` is called, so that
  whoever owns the scope can still have them finish what they hold. Leaving with an exception cancels them.
- `TaskScope.shield` protects the rest of the body, and the exit, from cancellation, for a limited time.

Entered and left in one task, as every task group.

`in_thread` is `anyio.to_thread.run_sync`, but never leaves a function running behind its caller's back.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TypeVar, TypeVarTuple

import anyio
from anyio import to_thread

__all__ = ["TaskScope", "in_thread"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TaskScope:
    """An async context manager; see the module."""

    def __init__(self) -> None:
        self._outer = anyio.CancelScope()
        self._group = anyio.create_task_group()
        self._running: set[anyio.CancelScope] = set()
        self._idle = anyio.Event()
        self._cancelled = False
        self._errors: list[Exception] = []

    async def __aenter__(self) -> TaskScope:
        self._outer.__enter__()
        try:
            await self._group.__aenter__()
        except BaseException as error:
            self._outer.__exit__(type(error), error, error.__traceback__)
            raise
        return self

    def start_soon(self, func: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
        """Run ``func(*args)`` as a task. After `cancel`, it is cancelled at its first await."""
        scope = anyio.CancelScope(shield=True)
        if self._cancelled:
            scope.cancel()
        if not self._running:
            self._idle = anyio.Event()
        self._running.add(scope)
        self._group.start_soon(self._run, scope, func, args)

    def cancel(self) -> None:
        """Cancel the tasks, those still to be started included; the body goes on."""
        self._cancelled = True
        for scope in list(self._running):
            scope.cancel()

    def shield(self, timeout: float) -> None:
        """From now on no cancellation from outside reaches the body or the exit, for ``timeout`` seconds.

        After that they are cancelled, and the exit raises `TimeoutError`. Called again, the later call's time holds.
        A cancellation that was delivered already is the caller's to hand on: raise it again when done. (asyncio's own
        ``task.cancel()`` knows no shield, and still interrupts an await.)
        """
        self._outer.deadline = anyio.current_time() + timeout if timeout < math.inf else math.inf
        self._outer.shield = True

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        """Wait for the tasks; on an exception, or when cancelled while waiting, cancel them and wait.

        Raises:
            TimeoutError: the time given to `shield` ran out.
            Exception: what escaped a task, when the body ended well; more than one as an `ExceptionGroup`.
        """
        error = exc
        if exc is None and self._running:
            try:
                await self._idle.wait()
            except BaseException as interruption:
                error = interruption
        if error is not None:
            self.cancel()
        while self._running:
            try:
                # Not limited in time here: each task limits its own clean-up.
                with anyio.CancelScope(shield=True):
                    await self._idle.wait()
            except BaseException as interruption:  # asyncio's own cancellation, KeyboardInterrupt
                error = interruption
        # The group has nothing to wait for but its book-keeping, which a cancellation must not turn into a group.
        self._outer.shield = True
        try:
            await self._group.__aexit__(None, None, None)
        except BaseException as interruption:
            error = error or interruption
        self._outer.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        if self._outer.cancelled_caught:
            raise TimeoutError("the time for finishing ran out; what was still to be done was cancelled") from exc
        if error is not None:
            for lost in self._errors:
                error.add_note(f"a background task failed too: {lost!r}")
            if error is exc:
                return False
            raise error
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise ExceptionGroup("background tasks failed", self._errors)
        return False

    async def _run(self, scope: anyio.CancelScope, func: Callable[[*Ts], Awaitable[object]], args: tuple[*Ts]) -> None:
        try:
            with scope:
                await func(*args)
        except Exception as error:
            self._errors.append(error)
        finally:
            self._running.discard(scope)
            if not self._running:
                self._idle.set()


async def in_thread(func: Callable[[*Ts], T], *args: *Ts, limiter: anyio.CapacityLimiter | None = None) -> T:
    """``func(*args)`` in a worker thread.

    Cancelled before it began, it never begins; once begun, this returns or raises only after it has ended, so that
    what it works on (a file descriptor, a buffer) may be taken apart by the caller's clean-up. anyio sees to that for
    its own cancellation, which then waits for the next await; asyncio's ``task.cancel()`` goes through anyio's shield,
    and is held here until the function has ended, whose result is then lost.
    """
    claim = threading.Lock()
    ended = threading.Event()

    def run() -> T:
        if not claim.acquire(blocking=False):
            raise RuntimeError("given up before it began")
        try:
            return func(*args)
        finally:
            ended.set()

    try:
        return await to_thread.run_sync(run, limiter=limiter)
    except BaseException:
        if not claim.acquire(blocking=False):  # it has begun
            while not ended.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await to_thread.run_sync(ended.wait)
                except BaseException:  # cancelled once more; the first one is raised below
                    continue
        raise
