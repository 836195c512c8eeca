"""A `SingleObject` is the part of a `RecordWriter` from its queue to the sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Literal

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._framing.compression import CompressionOptions
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_limits import ObjectLimits
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.object_writer import ObjectWriter
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._records.writing.write_queue import WriteQueue, copy_for_reraise
from asyncrec.storage._base import ByteSink, ObjectInfo
from asyncrec.storage._checksums import check_sent
from asyncrec.storage._chunk_writer import ChunkWriter

# Eight records of 1 MiB in memory keep a disk or a network busy; more would only use more memory.
_MEMORY_LIMIT = 8 << 20


class SingleObject:
    """An object that is being written, with a queue, a budget and an owner task. It handles the task's `ObjectEvents`.

    Attributes:
        path: the path of the object, for errors.
        durable_flush: whether flushed records survive this process.
        budget: the budget of the records in memory.
        queue: the queue to which records are appended.
        output: the object, once it is open.
        published: the store's description of the object, once `finish` has returned.
    """

    def __init__(
        self,
        path: str,
        open_sink: AbstractAsyncContextManager[ByteSink],
        *,
        compression: CompressionOptions,
        durable_flush: bool,
    ) -> None:
        self.path = path
        self.durable_flush = durable_flush
        self.output: ObjectOutput | None = None
        self.published: ObjectInfo | None = None
        self._open_sink = open_sink
        self._compression = compression
        self._closed = False
        self.budget = ByteBudget(_MEMORY_LIMIT)
        self.queue = WriteQueue(path, self.budget, limits=ObjectLimits(), compressed=bool(compression.type))
        self._writer = ObjectWriter(self, self.queue, self.budget, durable_flush=durable_flush, eager=True)

    async def start(self, scope: TaskScope) -> None:
        """Start the owner task, and return when the object is open."""
        scope.start_soon(self._writer.run)
        await self._writer.opened.wait()
        self._raise_failure()

    async def finish(self) -> None:
        """Accept no more records, and return when the object is published."""
        self._closed = True
        self.queue.close()
        self.budget.release_all()
        await self._writer.finished.wait()
        self._raise_failure()

    def abandon(self) -> None:
        """Accept no more records. Calls that are still waiting raise an error."""
        self._closed = True
        self.budget.release_all()

    def check_open(self) -> None:
        """Raise the owner task's error, or ClosedResourceError if the writer's context has exited."""
        self.check()
        if self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the writer is closed; write inside its `async with`")

    def check(self) -> None:
        """Raise a copy of the owner task's error, if the task has failed."""
        if self.queue.error is not None:
            raise copy_for_reraise(self.queue.error)

    def _raise_failure(self) -> None:
        """Raise the owner task's error itself, or ClosedResourceError if the task was only cancelled."""
        if (error := self.queue.error) is not None:
            raise error if isinstance(error, Exception) else copy_for_reraise(error)

    # -- ObjectEvents, called by the owner task -----------------------------------------------------------------------

    @asynccontextmanager
    async def open_object(self) -> AsyncIterator[ObjectOutput]:
        async with self._open_sink as sink:
            # A local disk keeps no checksum to compare with, so the size and an fsync must suffice.
            chunks = ChunkWriter(sink, checksum=not self.durable_flush)
            output = self.output = ObjectOutput(chunks, compression=self._compression)
            yield output
        self.published = sink.published
        if not self.durable_flush:  # its sink has checked a local file, which has older bytes with mode="a"
            then = "the object must not be used; write it again"
            check_sent(self.path, sink.published, size=output.size, crc32c=output.crc32c, then=then)

    async def before_publish(self) -> None:
        pass

    async def go_on(self, error: Exception) -> list[WriteBatch] | None:
        return None

    async def published_object(
        self, output: ObjectOutput, first: float, last: float, ticket: int
    ) -> Literal["committed"]:
        return "committed"

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def progressed(self) -> None:
        if self.queue.error is not None:
            self.budget.release_all()
