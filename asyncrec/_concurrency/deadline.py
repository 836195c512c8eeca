"""`Deadline`: the time by which all of a job's work must end, including shielded requests in progress.

A shielded scope gets its time limit when it is opened. If the body of the `async with` block fails after that, the exit
has only a few seconds, so `Deadline.bring` also shortens the limits of the scopes that are already open.

A job's requests to a store run under its deadline (`Deadline.applied`). A task inherits the deadline from the task that
starts it, so a backend's shielded requests (`shielded`) and its retry delays also end with the job.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar

import anyio

# Undoing a publication after a failure takes a few deletions, each retried by the backend. Give up after this time.
CLEAN_UP_SECONDS = 30
# How long clean-up may take once the deadline has passed. Whatever takes longer is left to `recover`.
_LATE_SECONDS = 1
# How long a backend has to finish its requests in progress once the deadline has passed.
_LAST_SECONDS = 1

_current: ContextVar[Deadline | None] = ContextVar("asyncrec_deadline", default=None)


def current_deadline() -> Deadline | None:
    """Return the deadline of the current task, or `None` if no job has set one."""
    return _current.get()


def shielded(seconds: float) -> AbstractContextManager[anyio.CancelScope]:
    """Open a scope for finishing or cleaning up, shielded from cancellation for at most ``seconds``.

    If the writer's ``exit_timeout`` runs out first, the scope is cancelled one second after that.
    """
    deadline = _current.get()
    if deadline is None:
        return anyio.move_on_after(seconds, shield=True)
    return deadline.within(seconds, late=_LAST_SECONDS)


class Deadline:
    """The deadline of one job, by the event loop's clock. Infinite until it is brought forward.

    Attributes:
        at: the deadline, in seconds.
    """

    def __init__(self) -> None:
        self.at = math.inf
        self._open: dict[anyio.CancelScope, float] = {}

    @property
    def passed(self) -> bool:
        """Whether the deadline has passed. If so, the job neither starts nor retries any request."""
        return self.at <= anyio.current_time()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Apply the deadline to this task's requests to a store, and to tasks started inside the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def bring(self, at: float) -> None:
        """Bring the deadline forward to ``at``, even for requests in progress. A later time has no effect."""
        self.at = min(self.at, at)
        for scope, late in self._open.items():
            scope.deadline = min(scope.deadline, self.at + late)

    @contextmanager
    def within(self, seconds: float, *, late: float = 0.0, shield: bool = True) -> Iterator[anyio.CancelScope]:
        """Open a scope that lasts at most ``seconds`` and ends at the deadline.

        With ``late``, the scope may last that many seconds beyond the deadline, or beyond its own start if that is
        later.
        """
        now = anyio.current_time()
        end = now + seconds
        if self.at < math.inf:
            end = min(end, max(now, self.at) + late if late else self.at)
        with self.applied(), anyio.CancelScope(shield=shield, deadline=end) as scope:
            self._open[scope] = late
            try:
                yield scope
            finally:
                del self._open[scope]

    def cleaning_up(self, seconds: float = CLEAN_UP_SECONDS) -> AbstractContextManager[anyio.CancelScope]:
        """Open a shielded scope with a time limit, for deletions that must happen even after a failure."""
        return self.within(seconds, late=_LATE_SECONDS)


def clock_of_loop() -> Callable[[], float]:
    """Return a function that reads the running loop's clock from any thread.

    In other threads, or after the loop has ended, the function derives the loop's time from `time.monotonic`.
    """
    home, ahead = threading.get_ident(), anyio.current_time() - time.monotonic()

    def now() -> float:
        if threading.get_ident() == home:
            with suppress(RuntimeError):  # the loop has ended
                return anyio.current_time()
        return time.monotonic() + ahead

    return now
