"""A `WriteQueue` is the producers' side of an object writer. It accepts records without waiting.

Producers append records after they have waited for room in the budget. Full batches are sealed and passed to the owner
task (`asyncrec._records.writing.object_writer`), with markers where an object ends and where a caller requested a
flush. Tickets increase along a queue, and the queue's `Levels` record the level that each ticket has reached.
"""

from __future__ import annotations

import copy

import anyio

from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.writing.inbox import END_OBJECT, FlushRequest, Inbox
from asyncrec._records.writing.levels import Levels
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_limits import ObjectLimits, ObjectQuota
from asyncrec._records.writing.write_batch import (
    BATCH_BYTES,
    BATCH_RECORDS,
    KEY_BYTES,
    BatchSource,
    JoinDigests,
    Key,
    WriteBatch,
)

_NO_DIGEST = bytearray(KEY_BYTES)  # a bytearray, which `JoinDigests` functions do not hash


def copy_for_reraise(error: BaseException) -> BaseException:
    """Return a copy of an error for another caller, chained to the original error.

    Raising the same object again would add the traceback of every caller to it. For a cancellation, return a
    ClosedResourceError. An error that cannot be copied is returned unchanged.
    """
    if not isinstance(error, Exception):
        return anyio.ClosedResourceError("the writer was cancelled before it finished")
    try:
        again = copy.copy(error)
    except Exception:  # an exception class of another library that cannot be copied
        return error
    again.__cause__ = error
    return again


class WriteQueue:
    """The records that producers have appended but an `ObjectWriter` has not yet taken. No method waits.

    Attributes:
        inbox: the inbox from which the owner takes batches.
        levels: the `Levels` that this queue's tickets have reached.
        quota: the quota that decides when an object is full.
        flush_seconds: the age, in seconds, at which the owner flushes a record without a request; `None` for never.
    """

    def __init__(
        self,
        path: str,
        budget: ByteBudget,
        *,
        limits: ObjectLimits,
        compressed: bool,
        flush_seconds: float | None = None,
        join_digests: JoinDigests = b"".join,
        first_part: float = 1.0,
    ) -> None:
        """``path`` is the object's path, for errors. If ``compressed``, the object's size is known only after writing.

        ``join_digests`` turns the records' keys into digests; by default, callers pass digests as keys.

        ``first_part`` is the fraction of a full batch at which the first batch, and every batch after one that was not
        full, is passed to the owner. Queues that fill at the same rate need different fractions; otherwise, all their
        batches would be due in the same iteration of the event loop.
        """
        self.inbox = Inbox(path, budget)
        self.levels = Levels()
        self.quota = ObjectQuota(limits, compressed=compressed)
        self.flush_seconds = flush_seconds
        self._timed = limits.seconds is not None or flush_seconds is not None
        self._counted = self.quota.counted
        self._budget = budget
        self._join_digests = join_digests
        self._pending: WriteBatch | None = None
        self._first = max(1, int(BATCH_BYTES * first_part)), max(1, int(BATCH_RECORDS * first_part))
        self._full_bytes, self._full_records = self._first  # the size at which the pending or next batch is full
        self._records = 0
        self._bytes = 0
        budget.when_starving(self.seal)

    # -- producer side ------------------------------------------------------------------------------------------------

    def append(
        self,
        record: bytes,
        ticket: int,
        key: Key | None = None,
        source: BatchSource | None = None,
        position: int = 0,
    ) -> None:
        """Append one record of at most LARGE_RECORD bytes. The caller has already taken room for its frame.

        ``position`` is the record's position in its ``source``, if it has one.
        """
        size = len(record) + FRAME_OVERHEAD
        batch = self._pending
        if batch is None or self._counted:
            batch = self._batch_for(size, 1, ticket)
        records = batch.records
        if key is not None or batch.keys is not None:
            if batch.keys is None:
                batch.keys = [_NO_DIGEST] * len(records)
            batch.keys.append(_NO_DIGEST if key is None else key)
        if source is not batch.source:
            batch.begin_run(source)
        if source is not None:
            source.position = position  # set only now, because a batch sealed above does not contain the record
        records.append(record)
        batch.size = total = batch.size + size
        batch.last = ticket
        # The same as in `append_many`, but inline, because a method call per record would be slow.
        if total >= self._full_bytes or len(records) >= self._full_records:
            self.seal(full=True)
        elif self._budget.bound < 0 and self._budget.starving:
            self.seal()

    def append_many(
        self,
        records: list[bytes],
        size: int,
        first: int,
        step: int = 1,
        *,
        keys: list[Key] | None = None,
        source: BatchSource | None = None,
        position: int = 0,
    ) -> None:
        """Append at most BATCH_RECORDS records; ``size`` is the total size of their frames.

        Their tickets are ``first``, ``first + step`` and so on. With a ``source``, all records have the same
        ``position`` in the source, and go into one batch with these ``keys``.
        """
        if source is None and self._counted and not self.quota.fits(size, len(records)):
            for i, record in enumerate(records):
                self.append(record, first + i * step)
            return
        batch = self._batch_for(size, len(records), first)
        if keys is not None or batch.keys is not None:
            if batch.keys is None:
                batch.keys = [_NO_DIGEST] * len(batch.records)
            batch.keys += [_NO_DIGEST] * len(records) if keys is None else keys
        if source is not batch.source:
            batch.begin_run(source)
        if source is not None:
            source.position = position  # set only now, because a batch sealed above does not contain the record
        batch.records += records
        batch.size += size
        batch.last = first + (len(records) - 1) * step
        if batch.size >= self._full_bytes or len(batch.records) >= self._full_records:
            self.seal(full=True)
        elif self._budget.bound < 0 and self._budget.starving:
            self.seal()

    def append_sealed(self, *batches: WriteBatch) -> None:
        """Append batches that are already sealed, all to one object."""
        self.seal()
        size, count = sum(batch.size for batch in batches), sum(batch.count for batch in batches)
        if self._counted and not self.quota.take(size, count):
            self.end_object()
            self.quota.take(size, count)
        for batch in batches:
            self.levels.taken(batch.first, batch.time)
            self._hand_over(batch)

    def seal(self, *, full: bool = False) -> None:
        """Seal the pending batch, and pass it to the owner. ``full`` means that the batch is full."""
        self._full_bytes, self._full_records = (BATCH_BYTES, BATCH_RECORDS) if full else self._first
        if self._pending is not None:
            batch, self._pending = self._pending, None
            batch.seal(self._join_digests)
            self._hand_over(batch)
            self._budget.let_others_run()

    def end_object(self) -> None:
        """Have the owner publish all records accepted so far, and begin a new object with the next record."""
        self.seal()
        self.quota.restart()
        self.inbox.put(END_OBJECT)

    def flush(self) -> FlushRequest:
        """Have the owner flush all records accepted so far. If no records have followed the last request, return it."""
        self.seal()
        return self.inbox.flush()

    def close(self) -> None:
        """Accept no more records. The owner publishes the remaining ones, and returns."""
        if not self.inbox.closed:
            if self.error is None:
                self.seal()
            self.inbox.close()

    @property
    def error(self) -> BaseException | None:
        """The error of the owner, or `None`."""
        return self.inbox.error

    @property
    def records(self) -> int:
        """The number of records accepted."""
        return self._records + (len(self._pending.records) if self._pending else 0)

    @property
    def bytes(self) -> int:
        """The total size of the frames of the accepted records."""
        return self._bytes + (self._pending.size if self._pending else 0)

    # -- owner side ---------------------------------------------------------------------------------------------------

    @property
    def pending_since(self) -> float | None:
        """The time at which the first record not yet passed to the owner was accepted, or `None`."""
        return None if self._pending is None else self._pending.time

    def count_again(self) -> None:
        """After an object has ended early, count the queued records towards the next one, unless its end is queued."""
        waiting = self.inbox.waiting_batches()
        if waiting is not None:
            pending = self._pending
            size = sum(batch.size for batch in waiting) + (pending.size if pending else 0)
            records = sum(batch.count for batch in waiting) + (len(pending.records) if pending else 0)
            self.quota.restart(size, records)

    def end(self, error: BaseException | None) -> None:
        """Release the room of the remaining records after the owner has returned, or has failed with ``error``."""
        self.inbox.end(error)
        if self.error is not None and self._pending is not None:
            self._budget.give(self._pending.size)
            self._records, self._bytes = self.records, self.bytes
            self._pending = None

    # -- internal helpers ---------------------------------------------------------------------------------------------

    def _batch_for(self, size: int, records: int, ticket: int) -> WriteBatch:
        """Return a batch with room for these records. If necessary, seal the pending batch or end its object first."""
        if self._counted and not self.quota.take(size, records):
            self.end_object()
            self.quota.take(size, records)
        batch = self._pending
        if batch is not None and len(batch.records) + records > BATCH_RECORDS:
            self.seal(full=True)
            batch = None
        if batch is None:
            batch = self._pending = WriteBatch(ticket, anyio.current_time())
            self.levels.taken(ticket, batch.time)
            if self._timed:
                self.inbox.wake()  # so that an idle owner recomputes its deadline
        return batch

    def _hand_over(self, batch: WriteBatch) -> None:
        self._records += batch.count
        self._bytes += batch.size
        self.inbox.put(batch)
