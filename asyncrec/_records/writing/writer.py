"""`open_writer`: records into one file or object, from any number of tasks.

The object appears, complete and verified, when the context exits cleanly; otherwise not at all. (The exception,
``mode="a"``: a local file that grows in place.)

``write`` waits for room, then takes the record without awaiting: cancelled, it was not taken. What was taken goes
through one lane (`asyncrec._records.writing.object_writer`) to the storage's sink.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import anyio

from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._framing.compression import CompressionOptions, parse_compression
from asyncrec._framing.frames import FRAME_OVERHEAD, encode_frames
from asyncrec._records.writing.append import open_append_sink
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.object_writer import Lane, ObjectLimits, told_again
from asyncrec._records.writing.write_batch import LARGE_RECORD, Slab, as_record, batched
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Buffer, ByteSink, ObjectInfo, Storage
from asyncrec.storage._chunk_writer import ChunkWriter
from asyncrec.storage._registry import located
from asyncrec.storage._sent import check_sent

__all__ = ["Level", "RecordWriter", "WriterStats", "open_writer", "write_records"]

Level = Literal["buffered", "spooled", "committed"]
Compression = str | int | CompressionOptions | None

# Eight records of 1 MiB on their way keep a disk and a network busy; more would only be more memory.
_MEMORY_LIMIT = 8 << 20


@dataclass(frozen=True, slots=True)
class WriterStats:
    """What one `RecordWriter` did so far. Bytes are of frames, before compression; seconds add up."""

    records: int
    bytes: int
    stored_bytes: int
    seconds_waiting: float
    seconds_compressing: float
    seconds_storing: float


class RecordWriter:
    """Made by `open_writer`. Any number of tasks may use it.

    Attributes:
        published: what the store has, once the context exited cleanly.
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
        self.published: ObjectInfo | None = None
        self._open_sink = open_sink
        self._compression = compression
        self._durable_flush = durable_flush
        self._budget = ByteBudget(_MEMORY_LIMIT)
        self._output: ObjectOutput | None = None
        self._ticket = 0
        self._closed = False
        self._lane = Lane(
            self,
            self._budget,
            limits=ObjectLimits(),
            compressed=bool(compression.type),
            durable_flush=durable_flush,
            eager=True,
            clock=anyio.current_time,
        )
        self._budget.on_starving = self._lane.seal

    async def write(self, record: Buffer) -> None:
        """Take one record.

        It is copied unless it is `bytes`, so the buffer is the caller's again when this returns. Waits while the
        store is behind. Cancelled, the record was not taken.

        Raises:
            TypeError: it is neither bytes, bytearray nor memoryview.
            ClosedResourceError: the context was left.
            OSError: the store failed; every later call raises it again, chained.
        """
        if type(record) is not bytes:
            record = await as_record(record)
        size = len(record) + FRAME_OVERHEAD
        if size > LARGE_RECORD + FRAME_OVERHEAD:
            await self._write_large(record)
            return
        budget = self._budget
        used = budget.used + size
        if used <= budget.bound:
            budget.used = used
        else:
            await self._take(size)
        self._ticket += 1
        self._lane.append(record, self._ticket)

    async def write_many(self, records: Iterable[Buffer]) -> None:
        """Take many records, in order: about twice as fast as one by one. Cancelled, a prefix of them was taken."""
        for item in batched(records):
            if not isinstance(item, tuple):
                await self.write(item)
                continue
            batch, size = item
            await self._take(size)
            first = self._ticket + 1
            self._ticket += len(batch)
            self._lane.append_many(batch, size, first)

    async def flush(self, *, require: Level = "buffered") -> Level:
        """Hand everything taken so far to the store, and make it durable where the store can.

        Returns the level reached: ``"spooled"`` for a local file, which is now on disk and survives this process
        (unfinished, under a hidden name, until the context exits; with ``mode="a"`` in place), else ``"buffered"``.

        Raises:
            ValueError: ``require`` is a level that this writer cannot reach.
        """
        if require == "committed" or (require == "spooled" and not self._durable_flush):
            raise ArgumentValueError(
                f"{self.path}: flush cannot reach {require!r} here: an object is committed by leaving the context, "
                "and spooled only on a local disk"
            )
        self._check()
        request = self._lane.flush()
        await request.done.wait()
        self._check(closed=False)
        return "spooled" if request.spooled else "buffered"

    def stats(self) -> WriterStats:
        output = self._output
        return WriterStats(
            records=self._lane.records,
            bytes=self._lane.bytes,
            stored_bytes=output.size if output else 0,
            seconds_waiting=self._budget.seconds_waited,
            seconds_compressing=output.seconds_compressing if output else 0.0,
            seconds_storing=output.seconds_storing if output else 0.0,
        )

    async def _take(self, size: int) -> None:
        await self._budget.take(size)
        try:
            self._check()
        except BaseException:
            self._budget.give(size)
            raise

    async def _write_large(self, record: bytes) -> None:
        await self._take(len(record) + FRAME_OVERHEAD)
        try:
            frames = await in_thread(encode_frames, [record])
            self._check()
        except BaseException:
            self._budget.give(len(record) + FRAME_OVERHEAD)
            raise
        self._ticket += 1
        self._lane.append_slab(Slab.of_large(record, frames, ticket=self._ticket, time=anyio.current_time()))

    def _check(self, *, closed: bool = True) -> None:
        if self._lane.error is not None:
            raise told_again(self._lane.error)
        if closed and self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the writer is closed; write inside its `async with`")

    # -- what the lane asks for (LaneHost) ----------------------------------------------------------------------------

    @asynccontextmanager
    async def open_object(self) -> AsyncIterator[ObjectOutput]:
        async with self._open_sink as sink:
            # A local disk keeps no checksum to compare with: its size and an fsync are what there is.
            chunks = ChunkWriter(sink, checksum=not self._durable_flush)
            self._output = ObjectOutput(chunks, compression=self._compression)
            yield self._output
        self.published = sink.published
        if not self._durable_flush:  # a local file has been held against its size, and mode="a" adds to one
            sent = self._output
            then = "do not use the object, write it again"
            check_sent(self.path, sink.published, size=sent.size, crc32c=sent.crc32c, then=then)

    async def before_publish(self) -> None:
        pass

    async def published_object(self, output: ObjectOutput, first: float, last: float, ticket: int) -> bool:
        return True

    @property
    def turn(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()

    def progressed(self) -> None:
        if self._lane.error is not None:
            self._budget.release_all()

    # -- opening and closing ------------------------------------------------------------------------------------------

    async def _open(self, scope: TaskScope) -> None:
        scope.start_soon(self._lane.run)
        await self._lane.opened.wait()
        self._raise_failure()

    async def _finish(self) -> None:
        self._closed = True
        self._lane.close()
        self._budget.release_all()
        await self._lane.finished.wait()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if (error := self._lane.error) is not None:
            raise error if isinstance(error, Exception) else told_again(error)

    def _abandon(self) -> None:
        self._closed = True
        self._budget.release_all()


@asynccontextmanager
async def open_writer(
    path: str | PathLike[str],
    *,
    compression: Compression = "",
    mode: Literal["w", "x", "a"] = "w",
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[RecordWriter]:
    """Write records to one file or object: ``async with open_writer(path) as writer: await writer.write(b"...")``.

    Args:
        path: a local path, or a URL of any installed backend; with ``storage``, a key in it.
        compression: ``""`` (the default: what every reader takes), ``"GZIP"``, ``"ZLIB"``, or `CompressionOptions`.
        mode: ``"w"`` replaces an object that is there, when the new one is complete; ``"x"`` raises ObjectExistsError
            instead; ``"a"`` continues a local file in place, after cutting off a torn last record, and is visible as
            it grows.
        storage: an open `Storage`, used and not closed.
        storage_options: for the backend, when it is opened here.

    On an exception, cancellation included, nothing appears under ``path`` and what was there stays. Only what a local
    ``flush`` acknowledged is kept, in ``.<name>.<id>.partial`` beside it.

    Raises:
        ObjectExistsError: with ``mode="x"``, on opening or on leaving.
        ValueError: a mode, or a combination, that does not exist.
    """
    options = parse_compression(compression)
    if mode not in ("w", "x", "a"):
        raise ArgumentValueError(f"mode is 'w', 'x' or 'a', not {mode!r}")
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        sink = (
            open_append_sink(store, key, compression=options.type)
            if mode == "a"
            else store.open_sink(key, exclusive=mode == "x")
        )
        writer = RecordWriter(
            str(path), sink, compression=options, durable_flush=mode == "a" or store.flush_level == "spooled"
        )
        async with TaskScope() as scope:
            await writer._open(scope)
            try:
                yield writer
                await writer._finish()
            finally:
                writer._abandon()


async def write_records(
    path: str | PathLike[str],
    records: Iterable[Buffer],
    *,
    compression: Compression = "",
    mode: Literal["w", "x", "a"] = "w",
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> ObjectInfo:
    """Write all the records to one object and say what the store has: for a notebook. See `open_writer`."""
    async with open_writer(
        path, compression=compression, mode=mode, storage=storage, storage_options=storage_options
    ) as writer:
        await writer.write_many(records)
    assert writer.published is not None, "a clean exit published"
    return writer.published
