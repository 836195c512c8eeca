"""`Levels` record how safe the writes of one queue are. A `FlushTimer` decides by them when a flush is due."""

from __future__ import annotations

import math
from collections import deque

import anyio

from asyncrec._records.writing.inbox import FlushRequest


class Levels:
    """The tickets of one queue that are not yet spooled, and those that are not yet committed.

    Tickets only grow along a queue, and when a ticket has reached a level, every earlier ticket has reached it, too. So
    only the first ticket of each batch is kept, with the time at which it was accepted, and nothing is counted per
    record. A writer with several queues uses the least ticket of all of them.
    """

    __slots__ = ("_uncommitted", "_unspooled")

    def __init__(self) -> None:
        self._uncommitted: deque[tuple[int, float]] = deque()
        self._unspooled: deque[tuple[int, float]] = deque()

    def taken(self, ticket: int, time: float) -> None:
        """Note that a batch begins with this ticket, whose record was accepted at this time."""
        self._uncommitted.append((ticket, time))
        self._unspooled.append((ticket, time))

    def spooled(self, ticket: int) -> None:
        """Note that all records up to the ticket are on a disk, or published."""
        _forget(self._unspooled, ticket)

    def committed(self, ticket: int) -> None:
        """Note that all records up to the ticket are committed."""
        _forget(self._uncommitted, ticket)

    def dropped(self, ticket: int) -> None:
        """Note that the batch which begins with this ticket will reach no level, because it has no record left."""
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
    except IndexError:  # also if another thread has just removed the last ticket
        return None


def _forget(tickets: deque[tuple[int, float]], last: int) -> None:
    while tickets and tickets[0][0] <= last:
        tickets.popleft()


class FlushTimer:
    """The time at which an owner task flushes without a request, so a kill loses only the records of a few seconds.

    A flush is due ``seconds`` after the oldest record that is not on the disk was accepted, but not earlier than
    ``seconds`` after the last such flush. Without the second rule, a producer that is faster than the disk would have
    each batch flushed alone, because its records are already that old when they are written. If all records are on the
    disk, no flush is due.

    Nothing is done per record. The timer looks only at the time of the oldest batch that is not on the disk, which
    `Levels` keep anyway, and only when the owner has written a batch or is idle.
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
        """Note that the flush was requested."""
        self._request = request
        self._asked_at = anyio.current_time()
