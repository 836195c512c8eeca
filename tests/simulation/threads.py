"""The worker threads of a world, whose functions start and end at random later times.

Most functions run from start to end in one step of the loop. Some of them pause at some of their system calls while
other code runs. Such a function runs in a real thread, but only while the loop waits for that thread. If other code
waits for a lock that the function has taken, the function is resumed.
"""

from __future__ import annotations

import _thread
import asyncio
import random
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any, ClassVar

import anyio
from anyio._core._eventloop import set_current_async_library

from .process import PROCESS, Killed
from .scheduler import Loop, OfThread

__all__ = ["Event", "Lock", "Strand", "Threads"]

# The choices for the maximum delay. With a disk that takes seconds per operation, waits would only time out.
_MOST_LATE = (0.0, 0.0001, 0.001, 0.01, 0.1)


def _nothing() -> None:
    pass


class _Worker:
    """A real thread that is reused."""

    idle: ClassVar[list[_Worker]] = []

    def __init__(self) -> None:
        self.go = _thread.allocate_lock()
        self.back = _thread.allocate_lock()
        self.go.acquire()
        self.back.acquire()
        self.work: Callable[[], None] = _nothing
        threading.Thread(target=self._main, name="a strand of the simulation", daemon=True).start()

    def _main(self) -> None:
        while True:
            self.go.acquire()
            self.work()
            self.work = _nothing  # otherwise the work would keep its world alive
            self.back.release()


class Strand:
    """A function in a real thread, which runs only when resumed, and until it pauses itself at a system call."""

    running: ClassVar[Strand | None] = None

    def __init__(self, context: Context, run: Callable[[], None]) -> None:
        self._worker: _Worker | None = None
        self._context = context
        self._run = run
        self._aborted = False
        self.done = False

    def _work(self) -> None:
        try:
            self._context.run(self._run)
        finally:
            self.done = True

    def resume(self) -> None:
        """Let the function continue, and wait until it has paused or ended."""
        if self.done:
            return
        if self._worker is None:
            self._worker = _Worker.idle.pop() if _Worker.idle else _Worker()
            self._worker.work = self._work
        worker = self._worker
        outer, Strand.running = Strand.running, self
        worker.go.release()
        worker.back.acquire()
        Strand.running = outer
        if self.done:
            _Worker.idle.append(worker)

    def stop(self) -> None:
        """Pause until resumed. This is called by the function itself."""
        worker = self._worker
        assert worker is not None, "it runs"
        worker.back.release()
        worker.go.acquire()
        if self._aborted:
            raise Killed

    def abort(self) -> None:
        """End the function without further effects, because its process is dead or the world is over."""
        self._aborted = True
        if self._worker is None:
            self.done = True
        while not self.done:
            self.resume()


class Threads:
    """The threads of one world.

    Attributes:
        stopping: the share of functions that may pause at system calls.
    """

    def __init__(self, loop: Loop, rng: random.Random, *, stopping: float) -> None:
        self._loop = loop
        self._rng = rng
        self.stopping = stopping
        self._latest = rng.choice(_MOST_LATE)
        self._strands: list[Strand] = []

    async def run_sync(
        self, func: Callable[..., Any], *args: Any, abandon_on_cancel: bool = False, limiter: Any = None, **_: Any
    ) -> Any:
        """Replace `anyio.to_thread.run_sync`. anyio's cancellation waits for the thread; asyncio's own abandons it."""
        await asyncio.sleep(0)
        if limiter is not None:
            try:
                limiter.acquire_nowait()
            except anyio.WouldBlock:
                await limiter.acquire()
        try:
            with anyio.CancelScope(shield=not abandon_on_cancel):
                job = _Job(self, func, args)
                self._later(job.begin)
                return await job.future
        finally:
            if limiter is not None:
                limiter.release()

    def point(self) -> None:
        """Pause at a system call, with some probability, so that other code can run."""
        strand = Strand.running
        if strand is not None and self._rng.random() < 0.4:
            strand.stop()

    def close(self) -> None:
        for strand in self._strands:
            strand.abort()

    def _later(self, callback: Callable[[], None]) -> None:
        if late := self._rng.random() * self._latest if self._rng.random() < 0.5 else 0.0:
            self._loop.call_later(late, OfThread(callback))
        else:
            self._loop.call_soon(OfThread(callback))

    def _advance(self, strand: Strand, end: Callable[[], None]) -> None:
        strand.resume()
        if strand.done:
            self._later(end)
        else:
            self._later(lambda: self._advance(strand, end))


class _Job:
    def __init__(self, threads: Threads, func: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._threads = threads
        self._func = func
        self._args = args
        self.future = threads._loop.create_future()
        self._outcome: tuple[Any, BaseException | None] | None = None

    def begin(self) -> None:
        set_current_async_library(None)  # like anyio's threads, which have no loop
        owner = getattr(self._func, "__self__", None)
        if isinstance(owner, Event) and not owner.is_set():
            self._threads._loop.call_later(0.01, OfThread(self.begin))  # still waiting for another thread
            return
        threads = self._threads
        if threads._rng.random() < threads.stopping:
            strand = Strand(copy_context(), self._call)
            threads._strands.append(strand)
            threads._advance(strand, self.end)
            return
        self._call()
        threads._later(self.end)

    def _call(self) -> None:
        try:
            self._outcome = self._func(*self._args), None
        except Killed:
            pass
        except BaseException as error:
            self._outcome = None, error
        if self.future.done():  # no task waits for it, so release its result, as a real thread does
            self._outcome = None

    def end(self) -> None:
        outcome, self._outcome = self._outcome, None
        if outcome is None or self.future.done():  # its process was killed, or no task is waiting
            return
        result, error = outcome
        if error is None:
            self.future.set_result(result)
        elif isinstance(error, StopIteration):
            wrapped = RuntimeError("coroutine raised StopIteration")
            wrapped.__cause__ = error
            self.future.set_exception(wrapped)
        else:
            self.future.set_exception(error)


class Lock:
    """A substitute for `threading.Lock` or, with ``again``, `threading.RLock`."""

    def __init__(self, *, again: bool = False) -> None:
        self._again = again
        self._held = 0
        self._owner: Strand | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        here = Strand.running
        while self._held and not (self._again and self._owner is here):
            if not blocking:
                return False
            process = PROCESS.get()
            if process is not None and process.dead:
                raise Killed
            if here is not None:
                here.stop()
            elif self._owner is not None:
                self._owner.resume()
            else:
                raise RuntimeError("a lock is waited for by the thread that holds it")
        self._held += 1
        self._owner = here
        return True

    def release(self) -> None:
        self._held -= 1
        if not self._held:
            self._owner = None

    def locked(self) -> bool:
        return self._held > 0

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()


class Event:
    """A substitute for `threading.Event`."""

    def __init__(self) -> None:
        self._set = False

    over: ClassVar[bool] = False  # true while no world is running, so that no thread waits

    def is_set(self) -> bool:
        return self._set or Event.over

    def set(self) -> None:
        self._set = True

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        while not self._set and timeout is None:
            here = Strand.running
            if here is None:
                raise RuntimeError("the loop's thread waits for a thread")
            here.stop()
        return self._set
