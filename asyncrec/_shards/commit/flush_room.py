"""`FlushRoom` charges unflushed records to the writer's memory budget, and flushes them if callers wait for memory."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import Outcome
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.journal.flush_entry import MOST_ENTRY
from asyncrec._shards.journal.flush_ledger import FlushLedger


class FlushRoom:
    """The memory that a flush log uses.

    Attributes:
        ledger: the records that wait for an entry, and those in earlier entries that a later entry may repeat.
        on_full: a function that is called when the records kept for the next flush almost fill an entry.
        on_waiting: a function that is called when records wait for an entry while callers wait for the memory of these
            records.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._most = max(1, min(MOST_ENTRY, budget.limit // 8))
        self.ledger = FlushLedger(self._most)
        self.on_full: Callable[[], None] = lambda: None
        self.on_waiting: Callable[[], None] = lambda: None
        self._budget = budget
        self._finished = 0  # bytes of records in shards that are being published
        self._held = 0
        self._is_closed = False
        budget.when_starving(self.make)
        budget.account(self._most)  # for one encoded entry, in addition to the records in it

    @property
    def is_wanted(self) -> bool:
        """Whether callers are waiting for memory."""
        return self._budget.callers_waiting > 0

    def keep(self, *, open: int = 0, finished: int = 0) -> None:
        """Change the number of bytes that are kept for open shards and for finished shards.

        Records of finished shards are not flushed any more.
        """
        if self._is_closed:
            return
        self.ledger.kept += open
        self._finished += finished
        self.account()
        if open > 0 and 8 * self.ledger.kept > 7 * self._most:  # more records would need two entries
            self.on_full()

    def account(self) -> None:
        """Adjust the budget to the number of bytes that are now in memory."""
        held = self.ledger.held + self._finished
        more, self._held = held - self._held, held
        if more > 0:
            self._budget.hold(more)
        elif more:
            self._budget.give(-more)

    def make(self) -> None:
        """If callers wait for memory that nothing else will free, stop repeating entries and flush all records."""
        if not self._budget.starving:
            return
        self.ledger.forget_tail()
        self.account()
        if self.ledger.kept:
            self.on_full()
        if self.ledger.is_waiting:
            self.on_waiting()

    def close(self) -> None:
        """Free all memory, because no more records will be flushed. Records that shards have kept can still be read."""
        if not self._is_closed:
            self.ledger.forget()
            self._finished = 0
            self.account()
            self._budget.account(-self._most)
            self._budget.no_longer_when_starving(self.make)
            self._is_closed = True


class Flushing(Protocol):
    """The log to which a shard's records are flushed.

    Attributes:
        error: the reason why nothing more can be flushed; `None` if records can be flushed.
        stored: a count of flushed sections. All sections up to this one are in an entry, or are void.
    """

    error: Exception | None

    @property
    def stored(self) -> int: ...

    def flush(self, shard: str, batches: Sequence[WriteBatch], done: Outcome) -> int:
        """Add records to an entry. Return the value that `stored` will have when all of them are in the store."""


class ShardRecords:
    """The `KeptRecords` of one shard that is not yet committed."""

    def __init__(self, log: Flushing, room: FlushRoom, shard: str) -> None:
        self._log = log
        self._room = room
        self._shard = shard
        self._kept: list[WriteBatch] = []
        self._flushed: deque[tuple[int, list[WriteBatch]]] = deque()  # batches that may not yet be in the store
        self._stored = 0  # the number of records known to be in the store
        self._last = 0
        self._is_open = True

    def keep(self, batches: Sequence[WriteBatch]) -> None:
        self._kept += batches
        self._last = batches[-1].last
        self._room.keep(open=sum(batch.size for batch in batches))

    def flush(self, done: Outcome) -> None:
        if self._log.error is not None:
            done(self._log.error)
            return

        def told(outcome: bool | Exception) -> None:
            self._forget_stored()
            done(outcome)

        batches, self._kept = self._kept, []
        self._flushed.append((sys.maxsize, batches))
        self._flushed[-1] = self._log.flush(self._shard, batches, told), batches

    def finish(self) -> None:
        size = self._kept_bytes
        self._room.keep(open=-size, finished=size)
        self._is_open = False

    def committed(self) -> None:
        """Discard the kept records, because the shard has been committed."""
        size, self._kept = self._kept_bytes, []
        self._room.keep(open=-size * self._is_open, finished=-size * (not self._is_open))

    def unstored(self) -> tuple[int, list[WriteBatch], int]:
        """Return how many records are known to be in the store, the batches that follow them, and the last ticket."""
        self._forget_stored()
        return self._stored, [*(batch for _, batches in self._flushed for batch in batches), *self._kept], self._last

    @property
    def _kept_bytes(self) -> int:
        return sum(batch.size for batch in self._kept)

    def _forget_stored(self) -> None:
        while self._flushed and self._flushed[0][0] <= self._log.stored:
            self._stored += sum(batch.count for batch in self._flushed.popleft()[1])
