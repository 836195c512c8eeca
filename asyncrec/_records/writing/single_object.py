"""A `SingleObject` stands behind each `RecordWriter`, from its queue to the sink."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

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

# Eight records of 1 MiB on their way keep a disk and a network busy; more would only take more memory.
_MEMORY_LIMIT = 8 << 20


class SingleObject:
    """An object with a queue, a budget and an owner task, whose `ObjectEvents` it handles.

    Attributes:
        path: the path of the object, for errors.
        durable_flush: whether a flush survives this process.
        budget: the budget of the records on their way.
        queue: the queue into which records are put.
        output: the object, once it is open.
        published: the object that the store reports, once `finish` returned.
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
        """Begin the owner task, and return when the object is open."""
        scope.start_soon(self._writer.run)
        await self._writer.opened.wait()
        self._raise_failure()

    async def finish(self) -> None:
        """Take no more records, and return when the object is published."""
        self._closed = True
        self.queue.close()
        self.budget.release_all()
        await self._writer.finished.wait()
        self._raise_failure()

    def abandon(self) -> None:
        """Take no more records; callers that still wait get an error."""
        self._closed = True
        self.budget.release_all()

    def check_open(self) -> None:
        """Raise the error of the owner, or ClosedResourceError if the writer's context was left."""
        self.check()
        if self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the writer is closed; write inside its `async with`")

    def check(self) -> None:
        """Raise the error of the owner, once more."""
        if self.queue.error is not None:
            raise copy_for_reraise(self.queue.error)

    def _raise_failure(self) -> None:
        """Raise the error itself, at the end. A mere cancellation has no error of its own."""
        if (error := self.queue.error) is not None:
            raise error if isinstance(error, Exception) else copy_for_reraise(error)

    # -- what the owner task asks for (ObjectEvents) ------------------------------------------------------------------

    @asynccontextmanager
    async def open_object(self) -> AsyncIterator[ObjectOutput]:
        async with self._open_sink as sink:
            # A local disk keeps no checksum to compare with; the size and an fsync must do.
            chunks = ChunkWriter(sink, checksum=not self.durable_flush)
            output = self.output = ObjectOutput(chunks, compression=self._compression)
            yield output
        self.published = sink.published
        if not self.durable_flush:  # a local file has been held against its size, and mode="a" adds to one
            then = "the object must not be used; write it again"
            check_sent(self.path, sink.published, size=output.size, crc32c=output.crc32c, then=then)

    async def before_publish(self) -> None:
        pass

    async def go_on(self, error: Exception) -> list[WriteBatch] | None:
        return None

    async def published_object(self, output: ObjectOutput, first: float, last: float, ticket: int) -> bool:
        return True

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def progressed(self) -> None:
        if self.queue.error is not None:
            self.budget.release_all()
