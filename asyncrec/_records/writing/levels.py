"""`Levels` record the levels that the tickets of one queue have reached. A `FlushTimer` uses them to time flushes."""

from __future__ import annotations

import math
from collections import deque

import anyio

from asyncrec._records.writing.inbox import FlushRequest


class Levels:
    """The tickets of one queue that are not yet spooled, and those that are not yet committed.

    Tickets increase along a queue, and when a ticket has reached a level, so has every earlier ticket. It is therefore
    enough to keep the first ticket of each batch, with the time at which its record was accepted. Nothing is counted
    per record. A writer with several queues uses the smallest ticket of all queues.
    """

    __slots__ = ("_uncommitted", "_unspooled")

    def __init__(self) -> None:
        self._uncommitted: deque[tuple[int, float]] = deque()
        self._unspooled: deque[tuple[int, float]] = deque()

    def taken(self, ticket: int, time: float) -> None:
        """Note that a batch begins with ``ticket``, whose record was accepted at ``time``."""
        self._uncommitted.append((ticket, time))
        self._unspooled.append((ticket, time))

    def spooled(self, ticket: int) -> None:
        """Note that all records up to the ticket are on a disk, or published."""
        _forget(self._unspooled, ticket)

    def committed(self, ticket: int) -> None:
        """Note that all records up to the ticket are committed."""
        _forget(self._uncommitted, ticket)

    def dropped(self, ticket: int) -> None:
        """Note that the batch that begins with ``ticket`` has no records left, so it will not reach any level."""
        self._uncommitted = deque(each for each in self._uncommitted if each[0] != ticket)
        self._unspooled = deque(each for each in self._unspooled if each[0] != ticket)

    @property
    def first_unspooled(self) -> int | None:
        """The first ticket that is not spooled, or `None`."""
        return self._unspooled[0][0] if self._unspooled else None

    @property
    def first_uncommitted(self) -> int | None:
        """The first ticket that is not committed, or `None`."""
        return self._uncommitted[0][0] if self._uncommitted else None

    @property
    def oldest_uncommitted(self) -> float | None:
        """The time at which the oldest uncommitted record was accepted, or `None`. Can be called in any thread."""
        return _oldest(self._uncommitted)

    @property
    def oldest_unspooled(self) -> float | None:
        """The time at which the oldest unspooled record was accepted, or `None`. Can be called in any thread."""
        return _oldest(self._unspooled)


def _oldest(tickets: deque[tuple[int, float]]) -> float | None:
    try:
        return tickets[0][1]
    except IndexError:  # also raised if another thread has just removed the last ticket
        return None


def _forget(tickets: deque[tuple[int, float]], last: int) -> None:
    while tickets and tickets[0][0] <= last:
        tickets.popleft()


class FlushTimer:
    """The timer of an owner task's unrequested flushes, so that a killed process loses only a few seconds of records.

    A flush is due ``seconds`` after the oldest unspooled record was accepted, but not earlier than ``seconds`` after
    the last such flush. Without the second rule, if a producer is faster than the disk, each batch would be flushed
    separately, because its records are already that old when they are written. If all records are spooled, no flush is
    due.

    Nothing is done per record. The timer uses only the time of the oldest unspooled batch, which `Levels` keep anyway,
    and only when the owner has written a batch or is idle.
    """

    def __init__(self, levels: Levels, seconds: float | None) -> None:
        """If ``seconds`` is `None`, the owner flushes only on request."""
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
        """Note that the due flush has been requested."""
        self._request = request
        self._asked_at = anyio.current_time()
