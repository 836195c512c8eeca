"""The event loop behind `asyncrec.blocking`: one per process, in its own thread.

The loop is an asyncio loop, accessed through anyio's blocking portal. It starts when first needed, and ends with the
process, after the main thread and every other non-daemon thread that used it have ended. Objects that are still open at
that point are closed as after an exception.

A loop does not survive ``os.fork``, because its thread does not exist in the child. The child therefore starts its own
loop when it needs one. In the child, an object opened before the fork raises RuntimeError, because a call would
otherwise wait forever.

A call interrupted by ``KeyboardInterrupt`` is cancelled on the loop, and the exception propagates once the call has
cleaned up. A second interruption does not wait for the clean-up.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from contextvars import ContextVar
from typing import Generic, TypeVar, TypeVarTuple

import anyio
from anyio.from_thread import start_blocking_portal

from asyncrec._concurrency.ending import LastExecutor
from asyncrec._concurrency.forks import forked_error, on_fork

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# True in the loop's tasks, and in the worker threads for which these tasks wait. The threads end with the loop.
_of_the_loop = ContextVar("_of_the_loop", default=False)


class Portal:
    """Access to the event loop of the process that created the portal. Any number of threads may use it at once."""

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._context = start_blocking_portal("asyncio", name="asyncrec.blocking")
        self.portal = self._context.__enter__()
        self._thread = self.portal.call(threading.get_ident)
        self._loop = self.portal.call(_loop_that_ends_last)
        self._users: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self._noting = threading.Lock()
        self._noted = threading.local()
        self._note_user()
        self._before_end: list[Callable[[], object]] = []
        self.has_ended = False
        # At exit, Python first waits for all threads, and anyio's worker threads wait for their loop to end, so exit
        # handlers would run too late. Therefore the thread started here waits for the main thread, then ends the loop.
        # It is not a daemon thread, so Python waits for it, and for the clean-up of all objects that are still open.
        threading.Thread(target=self._end_with_main_thread, name="asyncrec.blocking exit").start()

    def check(self, what: str) -> None:
        """Raise an error if waiting for the loop would block forever.

        Raises:
            RuntimeError: ``what`` was opened in another process, this is the loop's own thread, or the loop has ended
                because Python is exiting.
        """
        if self.is_of_another_process():
            raise forked_error(what)
        if self.is_own_thread():
            raise RuntimeError(
                f"{what} was called on asyncrec.blocking's own event loop, where it would block forever; use the "
                "asynchronous API there"
            )
        if self.has_ended:
            raise RuntimeError(
                f"{what}: Python is exiting and has already closed all open objects, as after an exception; leave "
                "the with statement before that, not in an exit handler or a daemon thread"
            )
        self._note_user()

    def is_of_another_process(self) -> bool:
        return self._pid != os.getpid()

    def call_soon(self, func: Callable[[], object]) -> None:
        """Call ``func`` on the loop without waiting, unless the loop has ended. Safe in any thread or finaliser."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(func)

    def is_own_thread(self) -> bool:
        return self._thread == threading.get_ident()

    def run(self, func: Callable[[*Ts], Awaitable[T]], *args: *Ts, what: str = "asyncrec.blocking") -> T:
        """Await ``func(*args)`` on the loop, in a new task. If interrupted, cancel the task and wait until it ends."""
        self.check(what)
        return Call(self, func, *args).result()

    def before_end(self, func: Callable[[], object]) -> None:
        """Register a function to be called once, in any thread, between the last use of the loop and its end."""
        if func not in self._before_end:
            self._before_end.append(func)

    def _note_user(self) -> None:
        if not hasattr(self._noted, "thread") and not _of_the_loop.get():
            self._noted.thread = True
            with self._noting:
                self._users.add(threading.current_thread())

    def _living_users(self) -> list[threading.Thread]:
        with self._noting:
            return [thread for thread in self._users if thread.is_alive() and not thread.daemon]

    def _end_with_main_thread(self) -> None:
        # Objects that are garbage-collected in this thread may use the portal. That must not make this thread a user,
        # and must not acquire the lock twice.
        self._noted.thread = True
        threading.main_thread().join()
        while living := self._living_users():
            for thread in living:
                thread.join()
        try:
            for func in self._before_end:
                func()
        finally:
            self.has_ended = True
            self.portal.call(self.portal.stop, True)
            self._context.__exit__(None, None, None)


class Call(Generic[T]):
    """A call on the loop. An interruption at any point in `begin` or `result` cancels the call, if it has begun."""

    def __init__(self, portal: Portal, func: Callable[[*Ts], Awaitable[T]], *args: *Ts) -> None:
        self._portal = portal
        self._operation: Callable[[], Awaitable[T]] = lambda: func(*args)
        self._future: Future[T] | None = None
        self._scope: anyio.CancelScope | None = None
        self._ended = threading.Event()
        self._fatal: BaseException | None = None

    async def _run(self) -> T:
        _of_the_loop.set(True)
        with anyio.CancelScope() as self._scope:
            try:
                return await self._operation()
            except (KeyboardInterrupt, SystemExit) as error:
                # A user's function raised this error. It must reach the caller, but would make asyncio stop the loop.
                self._fatal = error
                raise RuntimeError("raised in the caller's thread") from error
            finally:
                self._ended.set()
        raise RuntimeError("the call was cancelled, and no thread waits for it")

    def begin(self) -> None:
        """Submit the call to the loop."""
        self._future = self._portal.portal.start_task_soon(self._run)

    def result(self) -> T:
        """Wait for the result. Begin the call first if necessary.

        Raises:
            RuntimeError: the loop ended because Python is exiting.
        """
        try:
            if self._future is None:
                self.begin()
            assert self._future is not None
            return self._future.result()
        except CancelledError:
            raise RuntimeError("the call was cancelled because Python is exiting") from None
        except BaseException:
            if self._fatal is not None:
                raise self._fatal from None
            if not self._ended.is_set():
                self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel the call if it has begun, and wait until it ends."""
        if self._future is not None:
            self._future.cancel()
        else:
            # `begin` was interrupted. If the loop received the call, a no-op queued now runs after the call starts.
            self._portal.portal.call(_nothing)
            if self._scope is None:
                return
            self._portal.call_soon(self._scope.cancel)
        self._ended.wait()

    def abandon(self) -> None:
        """Cancel the call without waiting. Safe in a finaliser and in any thread."""
        if self._future is not None:
            self._portal.call_soon(self._future.cancel)


def _nothing() -> None:
    pass


def _loop_that_ends_last() -> asyncio.AbstractEventLoop:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(LastExecutor(thread_name_prefix="asyncrec.blocking"))
    return loop


class _OfThisProcess:
    """The portal of the process, started when first needed."""

    def __init__(self) -> None:
        self._portal: Portal | None = None
        self._starting = threading.Lock()
        # The portals of parent processes, kept so that they are not finalised in this process, which lacks their loops.
        self._inherited: list[Portal] = []
        on_fork(self)

    def get(self) -> Portal:
        if self._portal is None:
            with self._starting:
                if self._portal is None:
                    self._portal = Portal()
        return self._portal

    def forked(self) -> None:
        if self._portal is not None:
            self._inherited.append(self._portal)
        self._portal = None
        self._starting = threading.Lock()  # a thread of the parent may have held the old lock


_of_this_process = _OfThisProcess()


def current_portal() -> Portal:
    """Return the portal of this process, started if necessary."""
    return _of_this_process.get()
