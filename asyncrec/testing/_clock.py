"""A virtual clock for asyncio and trio that jumps ahead when no task can run, so that tests of timeouts need not wait.

In a test module or its conftest, in place of the project's own fixture::

    @pytest.fixture(params=["asyncio", "trio"])
    def anyio_backend(request):
        return virtual_backend(request.param)

or without pytest, ``anyio.run(main, backend=name, backend_options=options)`` with ``name, options =
virtual_backend("trio")``. Time starts at 0 and passes only in jumps. When every task is waiting and no I/O is ready,
the clock jumps to the next deadline. `anyio.current_time`, `anyio.sleep`, `anyio.fail_after` and the other functions of
the event loop use this clock; `time.monotonic` does not.

The clock does not jump while a worker thread runs (anyio's, or one of the loop's executors), so tests of local files or
compression need no special care. The clock is unaware of other processes, and of servers in their own threads. If a
test waits for these, set ``threshold`` to the number of real seconds for which all tasks and I/O must be idle before
the clock may jump.

trio's own `MockClock(autojump_threshold=)` does the same for trio, but also jumps while a worker thread runs.
"""

from __future__ import annotations

import asyncio
import math
import selectors
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple, Unpack

from asyncrec.errors import ArgumentValueError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Real seconds between checks for running worker threads. A thread that ends normally wakes the loop, so this only
# bounds the delay if the loop was not woken.
WHILE_THREADS_RUN = 0.05


def virtual_backend(name: str, *, threshold: float = 0.0) -> tuple[str, dict[str, Any]]:
    """Return the value of an ``anyio_backend`` fixture: the backend ``"asyncio"`` or ``"trio"``, and its options.

    Each call creates a new clock, which starts at 0 and jumps to the next deadline when no task can run. The clock does
    not jump while a worker thread runs, but is unaware of other processes, and of servers in their own threads. If a
    test waits for these, set ``threshold`` to the number of real seconds for which all tasks and I/O must be idle
    before the clock may jump.

    Raises:
        ValueError: ``name`` is neither ``"asyncio"`` nor ``"trio"``.
    """
    if name == "asyncio":
        return name, {"loop_factory": lambda: _VirtualLoop(threshold)}
    if name == "trio":
        return name, _trio_options(threshold)
    raise ArgumentValueError(f"there is no virtual clock for {name!r}; use 'asyncio' or 'trio'")


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that advances the virtual clock to the next deadline instead of waiting for I/O."""

    def __init__(self, threshold: float) -> None:
        super().__init__()
        self.threshold = threshold
        self.now = 0.0
        self.threads_run: Callable[[], bool] = lambda: False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        while True:
            # Check threads before I/O, so that a thread that ends in between has already woken the loop.
            busy = self.threads_run()
            events = super().select(WHILE_THREADS_RUN if busy else self.threshold)
            if events:
                return events
            if not busy:
                self.now += timeout
                return []


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, threshold: float) -> None:
        self._jumping = _JumpingSelector(threshold)
        self._jumping.threads_run = self._threads_run
        self._in_executors = 0
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[Unpack[Ts]], T], *args: *Ts
    ) -> asyncio.Future[T]:
        self._in_executors += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._executor_done)
        return future

    async def shutdown_default_executor(self, *args: Any, **kwargs: Any) -> None:
        # Since Python 3.13, asyncio waits for its threads with a timeout on the loop's clock, which must not jump.
        self._in_executors += 1
        try:
            await super().shutdown_default_executor(*args, **kwargs)
        finally:
            self._in_executors -= 1

    def _executor_done(self, future: asyncio.Future[Any]) -> None:
        self._in_executors -= 1

    def _threads_run(self) -> bool:
        if self._in_executors:
            return True
        # anyio does not expose the number of busy workers. A worker whose queue has no unfinished tasks is idle.
        return any(
            getattr(thread, "loop", None) is self and thread.queue.unfinished_tasks
            for thread in threading.enumerate()
            if hasattr(thread, "queue")
        )


def _trio_options(threshold: float) -> dict[str, Any]:
    import trio  # installed only for tests on trio
    from trio.testing import active_thread_count

    class VirtualClock(trio.abc.Clock, trio.abc.Instrument):
        """A clock for trio. When no task can run, trio asks how long to wait for I/O, then asks for the time."""

        def __init__(self) -> None:
            self.now = 0.0
            self.deadline = math.inf
            self.busy = False
            self.idle = False

        def start_clock(self) -> None:
            pass

        def current_time(self) -> float:
            return self.now

        def deadline_to_sleep_time(self, deadline: float) -> float:
            self.deadline = deadline
            if deadline == math.inf or deadline <= self.now:
                return deadline - self.now
            self.busy = active_thread_count() > 0
            self.idle = not self.busy
            return WHILE_THREADS_RUN if self.busy else threshold

        def task_scheduled(self, task: trio.lowlevel.Task) -> None:
            self.idle = False  # I/O was ready or a thread ended, so there is work at the current time

        def after_io_wait(self, timeout: float) -> None:
            if self.idle:
                self.now = self.deadline
                self.idle = False

    clock = VirtualClock()
    return {"clock": clock, "instruments": [clock]}
