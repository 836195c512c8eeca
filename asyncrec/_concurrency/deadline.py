"""`Deadline`: the time by which all of a job's work must end, including shielded requests in progress.

A shield is opened with its own time limit. If the body fails later, the exit has only a few seconds, which a limit
computed earlier does not take into account.

A job's requests to a store run under its deadline (`Deadline.applied`). A task inherits the deadline from the task that
starts it. So the shielded requests of a backend (`shielded`) and its back-off end with the job.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar

import anyio

# Undoing a publication after a failure takes some deletions, each retried by the backend. After this time, give up.
CLEAN_UP_SECONDS = 30
# For an exit whose deadline has passed: any clean-up that takes longer is left to `recover`.
_LATE_SECONDS = 1
# The seconds that a backend then has to end its requests in progress.
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
        """Whether the deadline has passed. The job then begins no request and retries none."""
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
        """Bring the deadline forward to ``at``, also for requests in progress. A later time changes nothing."""
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
        """Open a shielded scope with a time limit, for deletions that must happen whatever the outcome."""
        return self.within(seconds, late=_LATE_SECONDS)


def clock_of_loop() -> Callable[[], float]:
    """Return a function that reads the running loop's clock from any thread.

    In other threads, or after the loop has ended, it adds the time passed since this call.
    """
    home, ahead = threading.get_ident(), anyio.current_time() - time.monotonic()

    def now() -> float:
        if threading.get_ident() == home:
            with suppress(RuntimeError):  # the loop has ended
                return anyio.current_time()
        return time.monotonic() + ahead

    return now
