"""A `FlushTimer` says when an owner task flushes unasked, so that a kill loses no more than so many seconds.

Nothing is done for a record: what is looked at is the time of the oldest batch that is not on the disk, which `Levels`
keep anyway, and only when the owner has written something, or has nothing to do.
"""

from __future__ import annotations

import math

import anyio

from asyncrec._records.writing.inbox import FlushRequest
from asyncrec._records.writing.levels import Levels


class FlushTimer:
    """The time of an owner's next flush that nobody asks for.

    It is so many seconds after the oldest record was taken that is not on the disk; and at least so many after the
    last such flush, for the records of a producer that is faster than the disk are older than that when they are
    written, and each batch would be flushed alone. Where everything is on the disk there is none.
    """

    def __init__(self, levels: Levels, seconds: float | None) -> None:
        """With `None` seconds there is never one."""
        self._levels = levels
        self._seconds = seconds
        self._asked_at = -math.inf
        self._request: FlushRequest | None = None

    def due(self) -> float:
        """When it is, by the event loop's clock; infinite where there is none, or it is under way."""
        if self._seconds is None or (self._request is not None and not self._request.done.is_set()):
            return math.inf
        oldest = self._levels.oldest_unspooled
        return math.inf if oldest is None else max(oldest, self._asked_at) + self._seconds

    def asked(self, request: FlushRequest) -> None:
        """Note that it was asked for."""
        self._request = request
        self._asked_at = anyio.current_time()
