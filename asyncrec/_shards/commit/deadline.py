"""`Deadline`: when all has to end that a job still does, what is shielded and under way already included.

A shield is opened with a limit of its own, while all is well. Then the body fails, and the exit has so many seconds:
a limit that was worked out earlier would not know of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import anyio

__all__ = ["Deadline"]


class Deadline:
    """Of one job, by the event loop's clock; none until it is brought forward.

    Attributes:
        at: the time; infinite while there is none.
    """

    def __init__(self) -> None:
        self.at = math.inf
        self._open: dict[anyio.CancelScope, float] = {}

    def bring(self, at: float) -> None:
        """Make it this time, unless it is earlier already; for what is under way, too."""
        self.at = min(self.at, at)
        for scope, late in self._open.items():
            scope.deadline = min(scope.deadline, self.at + late)

    @contextmanager
    def within(self, seconds: float, *, late: float = 0.0, shield: bool = True) -> Iterator[anyio.CancelScope]:
        """A scope for so many seconds, and no longer than the deadline allows.

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
