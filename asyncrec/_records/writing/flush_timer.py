"""A `FlushTimer` says when an owner task flushes by itself, so that a kill loses only the records of a few seconds.

Nothing is done per record: the timer looks at the time of the oldest batch that is not on the disk, which `Levels` keep
anyway, and only when the owner has written something or is idle.
"""

from __future__ import annotations

import math

import anyio

from asyncrec._records.writing.inbox import FlushRequest
from asyncrec._records.writing.levels import Levels


class FlushTimer:
    """The time at which an owner flushes by itself.

    It is ``seconds`` after the oldest record that is not on the disk was taken, and at least ``seconds`` after the last
    such flush. If a producer is faster than the disk, its records are already that old when they are written, and
    without the second rule each batch would be flushed alone. If everything is on the disk, no flush is due.
    """

    def __init__(self, levels: Levels, seconds: float | None) -> None:
        """With `None` seconds, the owner never flushes by itself."""
        self._levels = levels
        self._seconds = seconds
        self._asked_at = -math.inf
        self._request: FlushRequest | None = None

    def due(self) -> float:
        """Return the time of the next flush, by the event loop's clock; infinite if none is due or one is under way."""
        if self._seconds is None or (self._request is not None and not self._request.done.is_set()):
            return math.inf
        oldest = self._levels.oldest_unspooled
        return math.inf if oldest is None else max(oldest, self._asked_at) + self._seconds

    def asked(self, request: FlushRequest) -> None:
        """Note that the flush was requested."""
        self._request = request
        self._asked_at = anyio.current_time()
