"""The way of records into objects, one after another: many callers in front, one owner task behind.

Callers append without waiting (they waited for room in the budget before); full slabs are sealed and queued. The owner
task takes them out, writes them into the object it has open, and publishes it when it is told to, when the lane is
closed, or when the object has reached its limits. It keeps its error, and never cancels a caller: `Lane.error` is set,
everybody who waits is let go, and whoever calls next is told.

Tickets only grow along a lane. `Lane.first_uncommitted` and `Lane.first_unspooled` are the first that has not reached
that level, or `None`: a writer takes the least over its lanes.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

import anyio

from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.write_batch import KEY_BYTES, SLAB_BYTES, SLAB_RECORDS, Slab

__all__ = ["Flush", "Lane", "LaneHost", "ObjectLimits", "told_again"]

# The owner takes queued slabs together up to this, so that one hop to a worker thread compresses them all, and no
# more: what it has taken is not yet given back to the budget.
_BATCH_BYTES = 1 << 20

_NO_KEY = bytes(KEY_BYTES)


@dataclass(frozen=True, slots=True)
class ObjectLimits:
    """When an object is full. `None` is no limit; several combine, the first reached counts.

    ``bytes`` is a hard cap for uncompressed files (unless one record is larger); with compression, whose output is
    known only afterwards, an object ends with the slab that reaches it. ``seconds`` count from its first record on,
    idle or not.
    """

    bytes: int | None = None
    records: int | None = None
    seconds: float | None = None


def told_again(error: BaseException) -> BaseException:
    """The error for one more caller: of the same type, chained to the one that happened.

    Raising one object again and again would pile every caller's traceback onto it.
    """
    if not isinstance(error, Exception):
        return anyio.ClosedResourceError("the writer was cancelled before it could finish")
    try:
        again = copy.copy(error)
    except Exception:  # an exception of somebody else's whose constructor cannot be called again
        return error
    again.__cause__ = error
    return again


class Flush:
    """A flush on its way through the lane; many callers may wait for one."""

    __slots__ = ("done", "spooled")

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.spooled = False


class LaneHost(Protocol):
    """What the writer that has the lane does for it. All are called by the owner task."""

    @property
    def path(self) -> str:
        """What is written, for errors."""

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        """Held while an object is flushed or finished: a thousand that did so at once would hold the event loop."""

    def open_object(self) -> AbstractAsyncContextManager[ObjectOutput]:
        """The next object; leaving the context cleanly publishes it, with its index and keys."""

    async def before_publish(self) -> None:
        """Everything is sent; returning has the object published."""

    async def published_object(self, output: ObjectOutput, first: float, last: float, ticket: int) -> bool:
        """It is published; ``first`` and ``last`` are when its records were taken, by the lane's clock.

        ``ticket`` is the last record's. Whether that is committed now; if not, `Lane.committed` will be told.
        """

    def progressed(self) -> None:
        """Tickets reached a level, or the lane failed."""


class Lane:
    """One lane; see the module.

    Attributes:
        error: what the owner failed with.
    """

    def __init__(
        self,
        host: LaneHost,
        budget: ByteBudget,
        *,
        limits: ObjectLimits,
        compressed: bool,
        durable_flush: bool,
        eager: bool,
        clock: Callable[[], float],
    ) -> None:
        """``eager`` opens the first object at once and publishes it even when it stays empty; otherwise an object is
        opened by its first record, and there may be none, or many."""
        self._host = host
        self._budget = budget
        self._limits = limits
        # Whether the end of an object is decided on the callers' side, record by record.
        self._limited = limits.records is not None or (limits.bytes is not None and not compressed)
        self._compressed = compressed
        self._durable_flush = durable_flush
        self._eager = eager
        self._clock = clock
        self._queue: deque[Slab | Flush | None] = deque()  # None ends the object
        self._arrived = anyio.Event()
        self._pending: Slab | None = None
        self._closed = False
        self._object_records = 0
        self._object_bytes = 0
        self._beside = 0
        self._uncommitted: deque[tuple[int, float]] = deque()
        self._unspooled: deque[tuple[int, float]] = deque()
        self.opened = anyio.Event()
        self.finished = anyio.Event()
        self.error: BaseException | None = None
        self._records = 0
        self._bytes = 0
        self.seconds_compressing = 0.0
        self.seconds_storing = 0.0
        on_fork(self)

    def forked(self) -> None:
        """In the child of a fork there is no owner task: whoever writes is told. The files are the parent's."""
        self.error = forked_error(f"{self._host.path}: the writer")
        self._budget.release_all()

    # -- the callers' side: nothing here waits ------------------------------------------------------------------------

    def append(self, record: bytes, ticket: int, key: bytes | None = None) -> None:
        """Take one record, of at most LARGE_RECORD bytes, for which the budget holds its frame's size."""
        size = len(record) + FRAME_OVERHEAD
        slab = self._pending
        if slab is None or self._limited:
            slab = self._room_for(size, 1, ticket)
        records = slab.records
        if key is not None or slab.keys is not None:
            if slab.keys is None:
                slab.keys = [_NO_KEY] * len(records)
            slab.keys.append(_NO_KEY if key is None else key)
        records.append(record)
        slab.size = total = slab.size + size
        slab.last = ticket
        # Written out, and Slab.full not asked: this is the path of every single record.
        if total >= SLAB_BYTES or len(records) >= SLAB_RECORDS or (self._budget.bound < 0 and self._budget.starving):
            self.seal()

    def append_many(self, records: list[bytes], size: int, first: int, step: int = 1) -> None:
        """Take records without keys, at most SLAB_RECORDS; ``size`` is that of all their frames.

        Their tickets are ``first``, ``first + step`` and so on.
        """
        if self._overflows(size, len(records)):
            for i, record in enumerate(records):
                self.append(record, first + i * step)
            return
        slab = self._room_for(size, len(records), first)
        slab.records += records
        if slab.keys is not None:
            slab.keys += [_NO_KEY] * len(records)
        slab.size += size
        slab.last = first + (len(records) - 1) * step
        if slab.full or (self._budget.bound < 0 and self._budget.starving):
            self.seal()

    def append_slab(self, slab: Slab) -> None:
        """Take a slab that is sealed already."""
        self.seal()
        if self._object_records and self._overflows(slab.size, len(slab.lengths)):
            self.end_object()
        self._uncommitted.append((slab.first, slab.time))
        self._unspooled.append((slab.first, slab.time))
        if self._limited:
            self._object_records += len(slab.lengths)
            self._object_bytes += slab.size
        self._sealed(slab)

    def seal(self) -> None:
        """Hand the pending records to the owner."""
        if self._pending is not None:
            slab, self._pending = self._pending, None
            slab.seal()
            self._sealed(slab)
            self._budget.let_others_run()

    def end_object(self) -> None:
        """Have the owner publish what was taken until now, and begin another object with what comes after."""
        self.seal()
        self._object_records = self._object_bytes = 0
        self._put(None)

    def flush(self) -> Flush:
        """Have the owner flush what was taken until now. A flush that has not begun is shared."""
        self.seal()
        last = self._queue[-1] if self._queue else None
        if isinstance(last, Flush):
            return last
        request = Flush()
        if self.finished.is_set():
            request.done.set()
        else:
            self._put(request)
        return request

    def committed(self, ticket: int) -> None:
        """Everything up to the ticket is committed."""
        self._pop(self._uncommitted, ticket)

    def close(self) -> None:
        """Take no more; the owner publishes what there is, and returns."""
        if not self._closed:
            if self.error is None:
                self.seal()
            self._closed = True
            self._arrived.set()

    @property
    def records(self) -> int:
        """Taken in."""
        return self._records + (len(self._pending.records) if self._pending else 0)

    @property
    def bytes(self) -> int:
        """Taken in, in frames."""
        return self._bytes + (self._pending.size if self._pending else 0)

    @property
    def first_uncommitted(self) -> int | None:
        return self._uncommitted[0][0] if self._uncommitted else None

    @property
    def first_unspooled(self) -> int | None:
        return self._unspooled[0][0] if self._unspooled else None

    @property
    def oldest_uncommitted(self) -> float | None:
        """When the oldest record that is not committed was taken, by the lane's clock."""
        return self._uncommitted[0][1] if self._uncommitted else None

    def _room_for(self, size: int, records: int, ticket: int) -> Slab:
        """The pending slab, after ending the object or the slab where these records do not fit in."""
        if self._object_records and self._overflows(size, records):
            self.end_object()
        slab = self._pending
        if slab is not None and len(slab.records) + records > SLAB_RECORDS:
            self.seal()
            slab = None
        if slab is None:
            slab = self._pending = Slab(ticket, self._clock())
            self._uncommitted.append((ticket, slab.time))
            self._unspooled.append((ticket, slab.time))
            if self._limits.seconds is not None:
                self._arrived.set()  # an idle owner must know since when
        if self._limited:
            self._object_records += records
            self._object_bytes += size
        return slab

    def _overflows(self, size: int, records: int) -> bool:
        """Whether these would exceed a limit that is known on this side."""
        limits = self._limits
        if limits.records is not None and self._object_records + records > limits.records:
            return True
        return limits.bytes is not None and not self._compressed and self._object_bytes + size > limits.bytes

    def _sealed(self, slab: Slab) -> None:
        self._records += len(slab.lengths)
        self._bytes += slab.size
        self._put(slab)

    def _put(self, item: Slab | Flush | None) -> None:
        if self.error is not None:
            self._drop(item)
            return
        if isinstance(item, Slab):
            self._budget.sent(item.size)
        self._queue.append(item)
        self._arrived.set()

    def _drop(self, item: Slab | Flush | None) -> None:
        if isinstance(item, Slab):
            self._budget.give(item.size)
        elif isinstance(item, Flush):
            item.done.set()

    # -- the owner's side ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The owner task: returns when the lane is closed and everything is published, or it failed."""
        try:
            while await self._one_object():
                pass
        except Exception as error:
            self.error = error
        except BaseException as error:
            self.error = error
            raise
        finally:
            self._closed = True
            while self._queue:
                item = self._queue.popleft()
                if isinstance(item, Slab):
                    self._budget.under_way -= item.size
                self._drop(item)
            if self.error is not None and self._pending is not None:
                self._drop(self._pending)
                self._pending = None
            self.opened.set()
            self.finished.set()
            self._host.progressed()

    async def _one_object(self) -> bool:
        """Write and publish one object; False when there is no other after it."""
        if not self._eager and not await self._first_record():
            return False
        async with self._host.open_object() as output:
            self.opened.set()
            begun = self._queue[0].time if self._queue and isinstance(self._queue[0], Slab) else self._clock()
            try:
                last_ticket = await self._fill(output)
                async with self._host.turn:
                    await output.finish()
            finally:
                self._budget.account(-self._beside)
                self._beside = 0
            await self._host.before_publish()
        self.seconds_compressing += output.seconds_compressing
        self.seconds_storing += output.seconds_storing
        if await self._host.published_object(output, begun, self._clock(), last_ticket):
            self._pop(self._uncommitted, last_ticket)
        self._pop(self._unspooled, last_ticket)
        self._host.progressed()
        return not self._eager

    async def _first_record(self) -> bool:
        """Wait until a slab is at the head of the queue; False when the lane closes without one."""
        while True:
            while self._queue and not isinstance(self._queue[0], Slab):
                item = self._queue.popleft()
                if isinstance(item, Flush):
                    item.spooled = True  # nothing is held here that could be lost
                    item.done.set()
            if self._queue:
                return True
            if self._closed:
                return False
            seconds, pending = self._limits.seconds, self._pending
            await self._wait(math.inf if seconds is None or pending is None else pending.time + seconds)

    async def _fill(self, output: ObjectOutput) -> int:
        """Write what comes until the object ends; returns the ticket of its last record."""
        limits = self._limits
        deadline = math.inf
        last_ticket = 0
        # Many who flush at once share one flush of the object, the last that is queued when the first one's turn comes.
        sharing: list[Flush] = []
        shared: Flush | None = None
        try:
            while True:
                if slabs := self._take_slabs():
                    if limits.seconds is not None and not output.records:
                        deadline = slabs[0].time + limits.seconds
                        if deadline <= self._clock():  # they waited for the one before: no shards of some records each
                            deadline = self._clock() + limits.seconds
                    try:
                        await output.write(slabs)
                    finally:
                        self._budget.arrived(sum(slab.size for slab in slabs))
                        self._budget.account(output.held_beside - self._beside)
                        self._beside = output.held_beside
                    last_ticket = slabs[-1].last
                    full = self._compressed and limits.bytes is not None and output.size >= limits.bytes
                    if full or (deadline < math.inf and self._clock() >= deadline):
                        self._count_again()
                        return last_ticket
                elif self._queue:
                    item = self._queue[0]
                    if isinstance(item, Flush):
                        shared = shared or self._last_flush()
                        if item is shared:
                            async with self._host.turn:
                                spooled = await output.flush() and self._durable_flush
                            if spooled:
                                self._pop(self._unspooled, last_ticket)
                            for each in (*sharing, item):
                                each.spooled = spooled
                                each.done.set()
                            sharing, shared = [], None
                            self._host.progressed()
                        else:
                            sharing.append(item)
                    self._queue.popleft()
                    if item is None:
                        return last_ticket
                elif self._closed:
                    return last_ticket
                else:
                    await self._wait(deadline)
        finally:
            # Where the object ended, or failed, before theirs came: what they wait for is published with it, or lost.
            self._queue.extendleft(reversed(sharing))

    def _last_flush(self) -> Flush | None:
        """The last that is queued for this object."""
        last = None
        for item in self._queue:
            if item is None:
                break
            if isinstance(item, Flush):
                last = item
        return last

    def _take_slabs(self) -> list[Slab]:
        slabs: list[Slab] = []
        size = 0
        while self._queue and size < _BATCH_BYTES and isinstance(slab := self._queue[0], Slab):
            slabs.append(slab)
            size += slab.size
            self._queue.popleft()
        return slabs

    async def _wait(self, deadline: float) -> None:
        """Until something is queued or the lane is closed; at the deadline the object is ended."""
        self._arrived = anyio.Event()
        with anyio.CancelScope(deadline=deadline) as scope:
            await self._arrived.wait()
        if scope.cancelled_caught:
            self.end_object()

    def _count_again(self) -> None:
        """The object ended early: what is still on its way belongs to the next, unless its end is queued too."""
        if None not in self._queue:
            waiting = [item for item in self._queue if isinstance(item, Slab)]
            pending = self._pending
            self._object_records = sum(len(slab.lengths) for slab in waiting) + (len(pending.records) if pending else 0)
            self._object_bytes = sum(slab.size for slab in waiting) + (pending.size if pending else 0)

    @staticmethod
    def _pop(tickets: deque[tuple[int, float]], last: int) -> None:
        while tickets and tickets[0][0] <= last:
            tickets.popleft()
