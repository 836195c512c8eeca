"""Tasks and threads that have an owner (`TaskScope`, `in_thread`), and results that survive a cancelled caller.

`TaskScope` is a task group for tasks that own a resource (a shard, a source) on behalf of the caller's body. It adds to
`anyio.create_task_group`:

- The body's exception is raised as itself, never inside an exception group, on asyncio and on trio.
- A task never cancels the body. Tasks are expected to report errors to their callers themselves. An error that
  escapes a task is raised at the exit.
- Cancelling the body does not cancel the tasks. They run until they return or `TaskScope.cancel` is called, so that
  the owner of the scope can let them finish. Exiting with an exception cancels them.
- `TaskScope.shield` protects the rest of the body, and the exit, from cancellation for a limited time.

Like every task group, a scope is entered and exited in the same task.

`in_thread` is `anyio.to_thread.run_sync`, but never returns while its function is still running. If the caller is
cancelled, the result is lost, which is fine for work that can be repeated. If the result must be released (a lock, a
descriptor), use `acquire_in_thread`, which releases the result if the caller is cancelled. If the function advances the
state of an object (a decoder, a decompressor, an iterator) and the caller may call again, use a `ThreadedStep`, which
keeps the result. To pass items between tasks that may be cancelled, use a `Handover`, which loses no item.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar, TypeVarTuple

import anyio
from anyio import to_thread

from asyncrec._concurrency.ending import is_refused_by_the_end
from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.processors import computing

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TaskScope:
    """Async context manager that owns tasks on behalf of its body.

    A task never cancels the body; an exception that escapes a task is raised at the exit. The body's own exception is
    raised as itself, never inside an exception group, and cancels the tasks. Cancelling the body while it runs does not
    cancel the tasks: they continue until they return or `cancel` is called. Enter and exit it in the same task.
    """

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
        """Run ``func(*args)`` as a task. After `cancel`, the task is cancelled at its first await."""
        scope = anyio.CancelScope(shield=True)
        if self._cancelled:
            scope.cancel()
        if not self._running:
            self._idle = anyio.Event()
        self._running.add(scope)
        self._group.start_soon(self._run, scope, func, args)

    def cancel(self) -> None:
        """Cancel the tasks, including those that have not yet started. The body continues."""
        self._cancelled = True
        for scope in list(self._running):
            scope.cancel()

    def shield(self, timeout: float) -> None:
        """Protect the body and the exit from outside cancellation for ``timeout`` seconds from now.

        After that time both are cancelled, and the exit raises `TimeoutError`. A second call replaces the first time
        limit. If the caller has already caught a cancellation, it must raise it again when done. (asyncio's own
        ``task.cancel()`` ignores shields, and still interrupts an await.)
        """
        self._outer.deadline = anyio.current_time() + timeout if timeout < math.inf else math.inf
        self._outer.shield = True

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> bool:
        """Wait for the tasks. On an exception, or if cancelled while waiting, cancel the tasks and wait for them.

        Raises:
            TimeoutError: the time passed to `shield` ran out.
            Exception: an error that escaped a task, if the body succeeded. Several errors are raised as an
                `ExceptionGroup`.
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
                # No time limit here: each task limits its own clean-up.
                with anyio.CancelScope(shield=True):
                    await self._idle.wait()
            except GeneratorExit:  # garbage-collected without its loop: no event will ever be set
                raise
            except BaseException as interruption:  # native asyncio cancellation, KeyboardInterrupt
                error = interruption
        # Only the group's book-keeping is left to await. A cancellation there must not be raised as an exception group.
        self._outer.shield = True
        try:
            await self._group.__aexit__(None, None, None)
        except BaseException as interruption:
            error = error or interruption
        self._outer.__exit__(type(error) if error else None, error, error.__traceback__ if error else None)
        if self._outer.cancelled_caught:
            raise TimeoutError("the remaining work did not finish in time and was cancelled") from exc
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
    """Call ``func(*args)`` in a worker thread.

    If the call is cancelled before the function begins, the function is never called. Otherwise this returns or raises
    only after the function has ended, so that the caller may release the objects that the function uses (a file
    descriptor, a buffer). anyio ensures that for its own cancellation, which then takes effect at the next await.
    asyncio's ``task.cancel()`` passes through anyio's shield. Here it is held back until the function has ended, and
    the result is lost.

    If Python cannot start a thread because it is shutting down, the function is called in this thread.
    """
    claim = threading.Lock()
    ended = threading.Event()
    # A list that `run` empties, because a worker thread keeps a reference to its work item until it runs the next one.
    given = [(func, args)]

    def run() -> T:
        if not claim.acquire(blocking=False):
            raise RuntimeError("the task was cancelled before it started")
        try:
            called, arguments = given.pop()
            return called(*arguments)
        finally:
            ended.set()

    try:
        return await to_thread.run_sync(run, limiter=limiter)
    except GeneratorExit:
        raise
    except BaseException as error:
        if not claim.acquire(blocking=False):  # the function has begun
            while not ended.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await to_thread.run_sync(ended.wait)
                except GeneratorExit:  # garbage-collected without its loop: no event will ever be set
                    raise
                except BaseException:  # cancelled again; the first cancellation is raised below
                    continue
            raise
        if not is_refused_by_the_end(error):
            raise
    return func(*args)


async def surely_in_thread(
    func: Callable[[*Ts], object], *args: *Ts, limiter: anyio.CapacityLimiter | None = None
) -> None:
    """Call ``func(*args)`` in a worker thread, shielded, for clean-up that must happen.

    asyncio's ``task.cancel()`` passes through every shield. Such a cancellation is raised once the function has ended.
    """
    began = False

    def run() -> None:
        nonlocal began
        began = True
        func(*args)

    cancelled: BaseException | None = None
    with anyio.CancelScope(shield=True):
        while not began:
            try:
                await in_thread(run, limiter=limiter)
            except anyio.get_cancelled_exc_class() as error:
                cancelled = error
    if cancelled is not None:
        raise cancelled


async def acquire_in_thread(func: Callable[[], T], release: Callable[[T], object]) -> T:
    """Acquire a resource in a worker thread. The result of ``func`` is either returned or passed to ``release``.

    asyncio's ``task.cancel()`` can reach the caller after the function has ended but before the result is returned.
    ``release`` then runs in a worker thread before the cancellation is raised.
    """
    got: list[T] = []
    try:
        await in_thread(lambda: got.append(func()))
    except GeneratorExit:  # garbage-collected without its loop: nothing can be awaited any more
        for each in got:
            release(each)
        raise
    except BaseException:
        if got:
            await surely_in_thread(release, got.pop())
        raise
    return got.pop()


class ThreadedStep(Generic[T]):
    """Runs the steps of a computation in a worker thread, one at a time, and loses no result. Only one task may use it.

    If the caller is cancelled while the function runs, it waits until the function has ended (see `in_thread`). The
    function's result or error is kept, and the next `take` returns or raises it without calling any function.
    """

    def __init__(self) -> None:
        self._given: list[T] = []  # the result of a run, until `take` returns it
        self._error: Exception | None = None

    @property
    def waits(self) -> bool:
        """Whether the result of an earlier run has not yet been taken."""
        return bool(self._given) or self._error is not None

    async def take(self, func: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return the result of an earlier run if there is one left to take, or else the result of ``func(*args)``.

        Always pass the same ``func``.
        """

        def run() -> None:
            try:
                self._given.append(func(*args))
            except Exception as error:
                self._error = error

        if not self.waits:
            await in_thread(run, limiter=computing())
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._given.pop()


class Handover(Generic[T]):
    """A queue from one task to another. An item stays in the queue until it is taken, even if a task is cancelled.

    (anyio's memory object streams pass an item to a waiting receiver. If asyncio's ``task.cancel()`` reaches that
    receiver at the same moment, the item is lost.)

    Args:
        size: the number of items that may wait.
        what: the name of the input, for error messages.
    """

    def __init__(self, size: int, what: str) -> None:
        self._size = size
        self._what = what
        self._items: deque[T] = deque()
        self._ended = False
        self._error: Exception | None = None
        self._changed = anyio.Event()  # wakes the task that takes items
        self._room = anyio.Event()  # wakes the task that puts items
        on_fork(self)

    def forked(self) -> None:
        """Make `take` fail in a forked child, because the task that puts items exists only in the parent."""
        self._items.clear()
        self._error = forked_error(self._what)

    async def put(self, item: T) -> None:
        """Append an item, once there is room for it. If the call is cancelled, the item has not been added."""
        while len(self._items) >= self._size:
            self._room = anyio.Event()
            await self._room.wait()
        self._items.append(item)
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """Mark the end of the items. `take` raises ``error``, if given, after the last item."""
        self._ended, self._error = True, error
        self._changed.set()

    def close(self) -> None:
        """Discard the waiting items. From now on, `take` raises ClosedResourceError."""
        self._items.clear()
        self.end(anyio.ClosedResourceError(f"{self._what} must be read inside its `async with`"))

    async def take(self) -> T:
        """Return the next item.

        Raises:
            StopAsyncIteration: every item has been taken, and `end` was called.
            Exception: the error passed to `end`, after the last item; each later call raises it again.
        """
        while not self._items:
            if self._error is not None:
                raise self._error
            if self._ended:
                raise StopAsyncIteration
            self._changed = anyio.Event()
            await self._changed.wait()
        self._room.set()
        return self._items.popleft()
