"""`Levels` record how safe the writes of one queue are. A `FlushTimer` uses them to decide when to flush unasked."""

from __future__ import annotations

import math
from collections import deque

import anyio

from asyncrec._records.writing.inbox import FlushRequest


class Levels:
    """The tickets of one queue that are not yet spooled, and those that are not yet committed.

    Tickets only grow along a queue, and a level reached by a ticket is reached by every one before it. So it keeps only
    the first ticket of each batch, with the time it was taken, and nothing is counted per record. For a writer of many
    queues, the least over all of them counts.
    """

    __slots__ = ("_uncommitted", "_unspooled")

    def __init__(self) -> None:
        self._uncommitted: deque[tuple[int, float]] = deque()
        self._unspooled: deque[tuple[int, float]] = deque()

    def taken(self, ticket: int, time: float) -> None:
        """Note that a batch begins with this ticket, whose record was taken at that time."""
        self._uncommitted.append((ticket, time))
        self._unspooled.append((ticket, time))

    def spooled(self, ticket: int) -> None:
        """Note that everything up to the ticket is on a disk, or published."""
        _forget(self._unspooled, ticket)

    def committed(self, ticket: int) -> None:
        """Note that everything up to the ticket is committed."""
        _forget(self._uncommitted, ticket)

    def dropped(self, ticket: int) -> None:
        """Note that the batch which begins with this ticket will reach no level: it has no record left."""
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
    except IndexError:  # also when the last one was forgotten just now, by another thread
        return None


def _forget(tickets: deque[tuple[int, float]], last: int) -> None:
    while tickets and tickets[0][0] <= last:
        tickets.popleft()


class FlushTimer:
    """The time at which an owner task flushes by itself, so that a kill loses only the records of a few seconds.

    It is ``seconds`` after the oldest record that is not on the disk was taken, and at least ``seconds`` after the last
    such flush. If a producer is faster than the disk, its records are already that old when they are written, and
    without the second rule each batch would be flushed alone. If everything is on the disk, no flush is due.

    Nothing is done per record: the timer looks at the time of the oldest batch that is not on the disk, which `Levels`
    keep anyway, and only when the owner has written something or is idle.
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
