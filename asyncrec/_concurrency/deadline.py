"""`Deadline`: when everything that a job still does has to end, including what is shielded and already under way.

A shield is opened with a limit of its own while all is well. When the body fails later, the exit has only so many
seconds, and a limit that was worked out before would not know of them.

What a job asks of a store is asked under its deadline (`Deadline.applied`), which a task inherits from the one that
starts it. So a backend that shields what it settles (`shielded`), and the back-off, end with the job.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar

import anyio

# Taking back what was published before a failure: some deletions, each retried by the backend; then we give up.
CLEAN_UP_SECONDS = 30
# At an exit that has to end: what does not answer now is left to `recover`.
_LATE_SECONDS = 1
# What a backend had under way then may end within so many.
_LAST_SECONDS = 1

_current: ContextVar[Deadline | None] = ContextVar("asyncrec_deadline", default=None)


def current_deadline() -> Deadline | None:
    """The deadline of what this task does; `None` where nobody has set one."""
    return _current.get()


def shielded(seconds: float) -> AbstractContextManager[anyio.CancelScope]:
    """Open a scope for settling or cleaning up, shielded from cancellation for at most this many seconds.

    At the exit of a writer whose ``exit_timeout`` has run out, it ends a second later.
    """
    deadline = _current.get()
    if deadline is None:
        return anyio.move_on_after(seconds, shield=True)
    return deadline.within(seconds, late=_LAST_SECONDS)


class Deadline:
    """The deadline of one job, by the event loop's clock; there is none until it is brought forward.

    Attributes:
        at: the time; infinite while there is none.
    """

    def __init__(self) -> None:
        self.at = math.inf
        self._open: dict[anyio.CancelScope, float] = {}

    @property
    def passed(self) -> bool:
        """Whether it is over: nothing is begun any more, and nothing tried again."""
        return self.at <= anyio.current_time()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Have it hold for what this task asks of a store, and for the tasks that it starts meanwhile."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    def bring(self, at: float) -> None:
        """Bring the deadline forward to this time, for what is already under way, too."""
        self.at = min(self.at, at)
        for scope, late in self._open.items():
            scope.deadline = min(scope.deadline, self.at + late)

    @contextmanager
    def within(self, seconds: float, *, late: float = 0.0, shield: bool = True) -> Iterator[anyio.CancelScope]:
        """Open a scope for so many seconds, and no longer than the deadline allows.

        What cleans up may be ``late``: by so many seconds, from its own beginning if that is later than the deadline.
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
        """Open a scope for what has to be taken away whatever happens: shielded, and limited in time."""
        return self.within(seconds, late=_LATE_SECONDS)
