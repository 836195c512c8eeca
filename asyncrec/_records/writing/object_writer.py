"""An `ObjectWriter` is the task that writes the records of a `WriteQueue` to one object after another.

It takes batches from the queue, writes them to the open object, and publishes the object on request, when the queue is
closed, or when the object has reached its limits. If it fails, it does not cancel the producers. Instead, it sets
`WriteQueue.error` and wakes all waiting callers. Every later call raises the error.
"""

from __future__ import annotations

import math
from contextlib import AbstractAsyncContextManager
from typing import Literal, Protocol

import anyio

from asyncrec._records.writing.inbox import END_OBJECT, EndObject, FlushRequest
from asyncrec._records.writing.levels import FlushTimer
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._records.writing.write_queue import WriteQueue


class ObjectEvents(Protocol):
    """The callbacks from an `ObjectWriter` to its writer. All are called by the owner task."""

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        """A lock to hold while flushing or finishing an object, so that a thousand flushes do not block the loop."""

    def open_object(self) -> AbstractAsyncContextManager[ObjectOutput]:
        """Open the next object. It is published, with its index and keys, when the context exits without an error."""

    async def before_publish(self) -> None:
        """Prepare to publish a completely sent object, which is published once this returns."""

    async def published_object(
        self, output: ObjectOutput, first: float, last: float, ticket: int
    ) -> Literal["buffered", "spooled", "committed"]:
        """Handle a published object, whose records were accepted between ``first`` and ``last`` by the loop's clock.

        ``ticket`` is the ticket of the last record. Return the level that the records have reached. It is "buffered" if
        the object is deleted when this process dies. Unless it is "committed", `Levels.committed` will be called later.
        """

    def progressed(self) -> None:
        """React when tickets have reached a level, or when the object writer has failed."""

    async def go_on(self, error: Exception) -> list[WriteBatch] | None:
        """Return the batches to write again, before all others, after an object has failed.

        If the result is `None`, the object writer fails with the error.
        """


class ObjectWriter:
    """The owner of one queue and of the open object.

    Attributes:
        opened: set when the first object is open, or the object writer has failed.
        finished: set when `run` has ended.
        seconds_compressing: the time spent compressing the published objects.
        seconds_storing: the time spent storing the published objects.
    """

    def __init__(
        self, events: ObjectEvents, queue: WriteQueue, budget: ByteBudget, *, durable_flush: bool, eager: bool
    ) -> None:
        """With ``eager``, there is one object, which is opened immediately, and published even if it stays empty.

        Otherwise, an object is opened when its first record arrives, so there may be no object, or more than one.
        """
        self._events = events
        self._queue = queue
        self._inbox = queue.inbox
        self._timer = FlushTimer(queue.levels, queue.flush_seconds)
        self._budget = budget
        self._durable_flush = durable_flush
        self._eager = eager
        self._sidecar_bytes = 0
        self._asked: set[FlushRequest] = set()  # flush requests whose records are being stored outside the object
        self._failure: Exception | None = None
        self.opened = anyio.Event()
        self.finished = anyio.Event()
        self.seconds_compressing = 0.0
        self.seconds_storing = 0.0

    async def run(self) -> None:
        """Run the owner task. Return when the queue is closed and everything is published, or when the task fails."""
        error: BaseException | None = None
        try:
            error = await self._all_objects()
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._queue.end(error)
            for request in self._asked:
                request.finish(spooled=False)
            self.opened.set()
            self.finished.set()
            self._events.progressed()

    async def _all_objects(self) -> Exception | None:
        """Write and publish objects until the queue is closed. Return the error if an object fails."""
        while True:
            try:
                while await self._one_object():
                    pass
                return None
            except Exception as error:
                again = await self._events.go_on(error)
                if again is None:
                    return error
                error.__traceback__ = None  # its frames refer to the written batches
                self._failure = None
                self._inbox.put_back(again, then=[*([END_OBJECT] if again else ()), *self._asked])
                self._asked.clear()
                del again  # otherwise, the batches would be held until the next failure

    async def _one_object(self) -> bool:
        """Write and publish one object. Return false if it was the last one."""
        if not self._eager and not await self._first_record():
            return False
        async with self._events.open_object() as output:
            self.opened.set()
            head = self._inbox.head
            begun = head.time if isinstance(head, WriteBatch) else anyio.current_time()
            try:
                last_ticket = await self._fill(output)
                async with self._events.turn:
                    await output.finish()
            finally:
                self._account(0)
            await self._events.before_publish()
        self.seconds_compressing += output.seconds_compressing
        self.seconds_storing += output.seconds_storing
        level = await self._events.published_object(output, begun, anyio.current_time(), last_ticket)
        if level == "committed":
            self._queue.levels.committed(last_ticket)
        if level != "buffered":
            self._queue.levels.spooled(last_ticket)
        self._events.progressed()
        return not self._eager

    async def _first_record(self) -> bool:
        """Wait for a batch at the head of the queue. Return false if the queue is closed and has no more batches."""
        while True:
            self._check()
            while (head := self._inbox.head) is not None and not isinstance(head, WriteBatch):
                self._inbox.pop()
                if isinstance(head, FlushRequest):
                    head.finish(spooled=True)  # all earlier records have been published
            if head is not None:
                return True
            if self._inbox.closed:
                return False
            seconds, since = self._queue.quota.limits.seconds, self._queue.pending_since
            await self._wait(math.inf if seconds is None or since is None else since + seconds)

    async def _fill(self, output: ObjectOutput) -> int:
        """Write batches as they arrive until the object ends. Return the ticket of the object's last record."""
        inbox = self._inbox
        deadline = math.inf
        last_ticket = 0
        # All flush requests queued when the first one is handled share one flush, at the position of the last one.
        sharing: list[FlushRequest] = []
        shared: FlushRequest | None = None
        try:
            while True:
                self._check()
                if batches := inbox.take_batches():
                    if not output.records:
                        deadline = self._queue.quota.deadline(batches[0].time, anyio.current_time())
                    await self._write(output, batches)
                    last_ticket = batches[-1].last
                    if batches[-1].goes_on:
                        continue
                    if self._queue.quota.is_reached(output.size) or _has_come(deadline):
                        self._queue.count_again()
                        return last_ticket
                    if not inbox.closed and _has_come(self._timer.due()):
                        self._flush_unasked()
                elif (head := inbox.head) is None:
                    if inbox.closed:
                        return last_ticket
                    await self._wait(deadline)
                elif isinstance(head, FlushRequest):
                    shared = shared or inbox.last_flush()
                    if head is shared:
                        await self._flush(output, [*sharing, head], last_ticket)
                        sharing, shared = [], None
                    else:
                        sharing.append(head)
                    inbox.pop()
                else:
                    assert isinstance(head, EndObject), "batches are handled above"
                    inbox.pop()
                    return last_ticket
        finally:
            # These requests are left if the object ended or failed before their flush. Their records were published
            # with it, or lost.
            inbox.put_back(sharing)

    async def _write(self, output: ObjectOutput, batches: list[WriteBatch]) -> None:
        try:
            await output.write(batches)
            output.keep(batches)  # must happen before their room is released
        finally:
            self._budget.arrived(sum(batch.size for batch in batches))
            self._account(output.sidecar_bytes)

    async def _flush(self, output: ObjectOutput, requests: list[FlushRequest], ticket: int) -> None:
        """Flush the object once for all requests. After a durable flush, the records up to ``ticket`` are spooled."""
        self._asked.update(requests)

        def done(outcome: bool | Exception) -> None:
            self._inbox.wake()  # so that the owner raises the error, or checks the timer again
            if isinstance(outcome, Exception):  # `run` finishes the requests, once their callers can see the error
                self._failure = outcome
                return
            if outcome and self._durable_flush:
                self._queue.levels.spooled(ticket)
            for request in requests:
                request.finish(spooled=outcome and self._durable_flush)
            self._asked.difference_update(requests)
            self._events.progressed()

        if not output.flush_kept(done):
            async with self._events.turn:
                spooled = await output.flush()
            done(spooled)

    def _check(self) -> None:
        """Raise the error if a flush outside the object has failed."""
        if self._failure is not None:
            raise self._failure

    def _account(self, sidecar_bytes: int) -> None:
        """Report to the budget how much memory the index and the keys now use."""
        self._budget.account(sidecar_bytes - self._sidecar_bytes)
        self._sidecar_bytes = sidecar_bytes

    async def _wait(self, deadline: float) -> None:
        """Wait for more records. End the object at the deadline, or flush when a flush is due, whichever is first."""
        due = self._timer.due()
        if await self._inbox.wait(min(deadline, due)):
            return
        if deadline <= due:
            self._queue.end_object()
        else:
            self._flush_unasked()

    def _flush_unasked(self) -> None:
        """Flush all records accepted so far. If the flush fails, the next call raises the error."""
        self._timer.asked(self._queue.flush())


def _has_come(deadline: float) -> bool:
    """Return whether the deadline has passed. Reading the clock is slow, so it is not read for an infinite deadline."""
    return deadline < math.inf and anyio.current_time() >= deadline
