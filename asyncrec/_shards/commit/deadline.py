"""`Deadline`: when everything that a job still does has to end, including what is shielded and already under way.

A shield is opened with a limit of its own while all is well. When the body fails later, the exit has only so many
seconds, and a limit that was worked out before would not know of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import anyio

__all__ = ["CLEAN_UP_SECONDS", "Deadline"]

# Taking back what was published before a failure: some deletions, each retried by the backend; then we give up.
CLEAN_UP_SECONDS = 30
# At an exit that has to end: what does not answer now is left to `recover`.
_LATE_SECONDS = 2


class Deadline:
    """The deadline of one job, by the event loop's clock; there is none until it is brought forward.

    Attributes:
        at: the time; infinite while there is none.
    """

    def __init__(self) -> None:
        self.at = math.inf
        self._open: dict[anyio.CancelScope, float] = {}

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
        with anyio.CancelScope(shield=shield, deadline=end) as scope:
            self._open[scope] = late
            try:
                yield scope
            finally:
                del self._open[scope]

    def cleaning_up(self) -> AbstractContextManager[anyio.CancelScope]:
        """Open a scope for what has to be taken away whatever happens: shielded, and limited in time."""
        return self.within(CLEAN_UP_SECONDS, late=_LATE_SECONDS)
