"""The event loop of a world, in which ready callbacks run in random order, and time jumps to the next timer.

Before each batch of ready callbacks is shuffled, it is sorted by when the callbacks' tasks were created. Otherwise, the
order would also depend on the iteration order of sets, which varies with memory addresses. The callbacks of a dead
process do not run, but are kept until the world is over.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

import anyio._backends._asyncio

from .process import PROCESS, Killed, Process

__all__ = ["EventLog", "Hung", "Loop", "OfThread"]


class Hung(Exception):
    """Raised if the world has not ended after the maximum number of steps, or if nothing in it can run."""


class EventLog:
    """A log of all events, one per line, which are converted to text only on request."""

    def __init__(self) -> None:
        self._happened: list[tuple[object, ...]] = []

    def note(self, *what: object) -> None:
        """Add a line of texts and numbers, separated by spaces."""
        self._happened.append(what)

    def lines(self) -> list[str]:
        return [" ".join(map(str, what)) for what in self._happened]

    def digest(self) -> str:
        content = "\n".join(self.lines()).encode(errors="backslashreplace")
        return hashlib.blake2b(content, digest_size=16).hexdigest()


class _Handle(asyncio.Handle):
    """A handle without debugging data, which is faster to create than asyncio's. Worlds create thousands of them."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: Any, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None


class _Timer(_Handle, asyncio.TimerHandle):
    __slots__ = ()


class OfThread:
    """A callback that represents a thread's work, and therefore runs even while its process's loop is blocked."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback

    def __call__(self) -> None:
        self._callback()


class _Task(asyncio.Task[Any]):
    """A task that knows its creation number and its process."""

    sequence: int
    process: Process | None


class Loop(asyncio.BaseEventLoop):
    """The event loop, whose time begins at 0. Without ``shuffles``, callbacks run in order of their tasks' creation.

    Attributes:
        now: the world's time, in seconds.
        steps: the number of callbacks that have run.
        tasks: all tasks ever created, which are kept so that none is collected before the world is over.
        on_step: called before each callback, with its process.
    """

    def __init__(self, rng: random.Random, log: EventLog, *, shuffles: bool, max_steps: int) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.rng = rng
        self.log = log
        self.tasks: list[_Task] = []
        self.unraised: list[str] = []
        self.on_step: Callable[[Process | None], None] = lambda process: None
        self._shuffles = shuffles
        self._max_steps = max_steps
        self._buried: list[asyncio.Handle] = []
        self._timers = 0
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]
        self.set_exception_handler(self._note_exception)

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        self._check_closed()  # type: ignore[attr-defined]
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)  # type: ignore[attr-defined]
        return handle

    def call_at(self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None) -> Any:
        self._check_closed()  # type: ignore[attr-defined]
        timer = _Timer(callback, args, self, context)
        timer._when = when
        self._timers += 1  # timers for the same time fire in creation order
        heapq.heappush(self._scheduled, (when, self._timers, timer))  # type: ignore[attr-defined]
        return timer

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Any:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def close(self) -> None:
        super().close()
        # anyio's task states refer to the tasks that are their weak keys, so dead tasks would never be freed.
        states: Any = getattr(anyio._backends._asyncio, "_task_states", {})  # type: ignore[attr-defined]
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            states.pop(task, None)
        self.tasks.clear()
        self._buried.clear()

    # -- methods that asyncio calls -----------------------------------------------------------------------------------

    def _make_task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> _Task:
        context = options.get("context")
        task = _Task(coroutine, loop=loop, **options)
        task.sequence = len(self.tasks) + 1
        task.process = context[PROCESS] if context is not None and PROCESS in context else PROCESS.get()
        self.tasks.append(task)
        return task

    def _note_exception(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        process = PROCESS.get()
        if process is None or not process.dead:
            self.unraised.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def _run_once(self) -> None:
        ready: list[asyncio.Handle] = list(self._ready)  # type: ignore[attr-defined]
        self._ready.clear()  # type: ignore[attr-defined]
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready:
            if not timers:
                raise Hung("nothing is ready, and nobody waits for a time")
            self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            ready.append(heapq.heappop(timers)[2])
        if len(ready) > 1:
            ready.sort(key=_order_of)
            if self._shuffles:
                self.rng.shuffle(ready)
        for handle in ready:
            if not handle._cancelled:
                self._run(handle)

    def _run(self, handle: asyncio.Handle) -> None:
        process = handle._context.get(PROCESS) or _process_of_scope(handle)  # type: ignore[attr-defined]
        if process is not None and process.dead:
            self._buried.append(handle)
            return
        callback = handle._callback  # type: ignore[attr-defined]
        if process is not None and self.now < process.held_until and not isinstance(callback, OfThread):
            self._timers += 1
            heapq.heappush(self._scheduled, (process.held_until, self._timers, handle))  # type: ignore[attr-defined]
            return
        self.steps += 1
        if self.steps > self._max_steps:
            raise Hung(f"not over after {self.steps:,} steps")
        self.on_step(process)
        if process is not None and process.dead:  # it has just died
            self._buried.append(handle)
            return
        owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        sequence = owner.sequence if isinstance(owner, _Task) else 0
        self.log.note(self.now, "-" if process is None else process.name, sequence)
        try:
            handle._run()
        except Killed:  # the process died at a system call
            self._buried.append(handle)


def _process_of_scope(handle: asyncio.Handle) -> Process | None:
    """Return the process of the task to which a cancelled anyio scope delivers. The world may have cancelled it."""
    host = getattr(getattr(handle._callback, "__self__", None), "_host_task", None)  # type: ignore[attr-defined]
    return host.process if isinstance(host, _Task) else None


def _order_of(handle: asyncio.Handle) -> float:
    owner = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
    if isinstance(owner, _Task):
        return owner.sequence
    host = getattr(owner, "_host_task", None)  # anyio's cancel scopes deliver cancellations repeatedly
    return host.sequence + 0.5 if isinstance(host, _Task) else 0.0
