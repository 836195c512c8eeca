"""Tasks and threads with an owner: `TaskScope`, `in_thread`, and results that a cancelled caller does not lose.

`TaskScope` is a task group for tasks that own something (a shard, a source) on behalf of a caller's body. What it adds
to `anyio.create_task_group`:

- The body's exception leaves as itself, never inside an exception group, on asyncio and on trio.
- A task never cancels the body. Tasks are expected to keep their own errors for the callers that ask; an error that
  escapes a task is raised at the exit.
- Cancelling the body does not reach the tasks: they go on until they return or `TaskScope.cancel` is called, so that
  the owner of the scope can let them finish what they hold. Leaving with an exception cancels them.
- `TaskScope.shield` protects the rest of the body, and the exit, from cancellation, for a limited time.

A scope is entered and left in one task, like every task group.

`in_thread` is `anyio.to_thread.run_sync`, but never leaves a function running after its caller has left. If the caller
is cancelled, the result is lost, which is right for work that can be done again. A result that must be released (a
lock, a descriptor) comes from `acquire_in_thread`, which releases it if the caller is cancelled. If the function moves
something on (a decoder, a decompressor, an iterator) and the caller may call again, use a `ThreadedStep`, which keeps
the result. What one task makes for another that may be cancelled goes through a `Handover`, which keeps each item.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Generic, TypeVar, TypeVarTuple

import anyio
from anyio import to_thread

from asyncrec._concurrency.ending import is_refused_by_the_end
from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.processors import computing

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class TaskScope:
    """An async context manager that owns tasks on behalf of its body.

    A task never cancels the body; an exception that escapes a task is raised at the exit. The body's own exception is
    raised as itself, never inside an exception group, and cancels the tasks. A cancellation that comes while the body
    runs does not reach the tasks: they go on until they return or `cancel` is called. Entered and left in one task.
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
        """Run ``func(*args)`` as a task. After `cancel`, it is cancelled at its first await."""
        scope = anyio.CancelScope(shield=True)
        if self._cancelled:
            scope.cancel()
        if not self._running:
            self._idle = anyio.Event()
        self._running.add(scope)
        self._group.start_soon(self._run, scope, func, args)

    def cancel(self) -> None:
        """Cancel the tasks, including those that have not started; the body continues."""
        self._cancelled = True
        for scope in list(self._running):
            scope.cancel()

    def shield(self, timeout: float) -> None:
        """Protect the body and the exit from outside cancellation, from now on for ``timeout`` seconds.

        After that they are cancelled, and the exit raises `TimeoutError`. If it is called again, the later time counts.
        A cancellation that was delivered already is the caller's to pass on: raise it again when done. (asyncio's own
        ``task.cancel()`` ignores shields, and still interrupts an await.)
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
            except GeneratorExit:  # collected, its loop gone: nothing will ever come
                raise
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

    If the call is cancelled before the function began, the function never begins. Otherwise this returns or raises only
    after the function has ended, so that the caller may clean up what it works on (a file descriptor, a buffer). anyio
    ensures that for its own cancellation, which then takes effect at the next await. asyncio's ``task.cancel()`` goes
    through anyio's shield, and is held here until the function has ended, whose result is then lost.

    If Python starts no thread because it is ending, the function is called here.
    """
    claim = threading.Lock()
    ended = threading.Event()
    # Taken out to be called: the thread keeps what it was given until it has its turn again, and that may be late.
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
        if not claim.acquire(blocking=False):  # it has begun
            while not ended.is_set():
                try:
                    with anyio.CancelScope(shield=True):
                        await to_thread.run_sync(ended.wait)
                except GeneratorExit:  # collected, its loop gone: nothing will ever come
                    raise
                except BaseException:  # cancelled once more; the first one is raised below
                    continue
            raise
        if not is_refused_by_the_end(error):
            raise
    return func(*args)


async def surely_in_thread(
    func: Callable[[*Ts], object], *args: *Ts, limiter: anyio.CapacityLimiter | None = None
) -> None:
    """Call ``func(*args)`` in a worker thread, shielded: for clean-up that has to happen.

    asyncio's ``task.cancel()`` goes through every shield; it is raised when the function has ended.
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


async def acquire_in_thread(
    func: Callable[[], T], release: Callable[[T], object], *, limiter: anyio.CapacityLimiter | None = None
) -> T:
    """Acquire something in a worker thread: the caller gets what ``func`` returns, or ``release`` is called with it.

    asyncio's ``task.cancel()`` can reach a caller when the function has ended and the result is on its way; ``release``
    then runs in a worker thread before the cancellation is raised.
    """
    got: list[T] = []
    try:
        await in_thread(lambda: got.append(func()), limiter=limiter)
    except GeneratorExit:  # collected, its loop gone: nothing can be awaited any more
        for each in got:
            release(each)
        raise
    except BaseException:
        if got:
            await surely_in_thread(release, got.pop(), limiter=limiter)
        raise
    return got.pop()


class ThreadedStep(Generic[T]):
    """A function that computes in a worker thread, step by step: no result of it is lost. Used by one task.

    A caller that is cancelled while the function runs leaves when the function has ended (see `in_thread`). Its result
    or error is kept: the next `take` returns or raises that, and runs nothing.
    """

    def __init__(self) -> None:
        self._given: list[T] = []  # the result of a run, until it is taken
        self._error: Exception | None = None

    @property
    def waits(self) -> bool:
        """Whether the result of an earlier run has not been taken yet."""
        return bool(self._given) or self._error is not None

    async def take(self, func: Callable[[*Ts], T], *args: *Ts) -> T:
        """Return the result of an earlier run, if it was not taken, else of ``func(*args)``. Pass the same ``func``."""

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
    """A queue from one task to one other: an item stays in it until it is taken, even if a task is cancelled.

    (anyio's memory object streams hand an item to a waiting receiver: if asyncio's ``task.cancel()`` reaches that
    receiver in the same moment, the item is lost.)

    Args:
        size: how many items may wait.
        what: what is read, for errors.
    """

    def __init__(self, size: int, what: str) -> None:
        self._size = size
        self._what = what
        self._items: deque[T] = deque()
        self._ended = False
        self._error: Exception | None = None
        self._changed = anyio.Event()  # for the taker
        self._room = anyio.Event()  # for the putter
        on_fork(self)

    def forked(self) -> None:
        """Refuse to be used in the child of a fork: the task that puts stayed with the parent."""
        self._items.clear()
        self._error = forked_error(self._what)

    async def put(self, item: T) -> None:
        """Put an item, after waiting for room. If this is cancelled, the item was not put."""
        while len(self._items) >= self._size:
            self._room = anyio.Event()
            await self._room.wait()
        self._items.append(item)
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """Note that nothing more will be put."""
        self._ended, self._error = True, error
        self._changed.set()

    def close(self) -> None:
        """Drop the items that wait; `take` raises ClosedResourceError from now on."""
        self._items.clear()
        self.end(anyio.ClosedResourceError(f"{self._what} must be read inside its `async with`"))

    async def take(self) -> T:
        """Return the next item.

        Raises:
            StopAsyncIteration: every item was taken, and `end` was called.
            Exception: the error that `end` was given, behind the last item; and again at each later call.
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
