"""`open_writer` writes records to one file or object, from any number of tasks.

The object appears only if the context exits without an error, and is then complete and verified. (With ``mode="a"``,
a local file grows in place instead.)

``write`` waits for room, then accepts the record without awaiting. If cancelled, it has not accepted the record.
Records pass through a queue (`asyncrec._records.writing.write_queue`) to the task that owns the storage's sink
(`asyncrec._records.writing.object_writer`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import anyio

from asyncrec._arguments import Size, record_limit
from asyncrec._concurrency.forks import OfOneProcess
from asyncrec._concurrency.tasks import TaskScope
from asyncrec._framing.compression import Compression, parse_compression
from asyncrec._framing.frames import FRAME_OVERHEAD, MAX_RECORD_BYTES
from asyncrec._records.record_size import LARGE_RECORD, as_record, check_size
from asyncrec._records.writing.append import open_append_sink
from asyncrec._records.writing.intake import Intake
from asyncrec._records.writing.record_encoder import GivenSchema, Record, RecordEncoder, Validate, encoder_of, schema_of
from asyncrec._records.writing.single_object import SingleObject
from asyncrec._records.writing.write_batch import WriteBatch, batched
from asyncrec.errors import ArgumentValueError
from asyncrec.storage._base import Buffer, ObjectInfo, Storage
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema

Level = Literal["buffered", "spooled", "committed"]


@dataclass(frozen=True, slots=True)
class WriterStats:
    """The totals of one `RecordWriter` so far.

    ``bytes`` is the size of the frames before compression. Seconds are summed over all tasks.
    """

    records: int
    bytes: int
    stored_bytes: int
    seconds_waiting: float
    seconds_compressing: float
    seconds_storing: float


class RecordWriter(OfOneProcess):
    """A file or object that is being written, opened by `open_writer`. Any number of tasks may use it.

    Attributes:
        path: the path, as the caller passed it.
        max_record_bytes: the maximum length of a record.
    """

    def __init__(
        self, target: SingleObject, encoder: RecordEncoder | None = None, *, max_record_bytes: int = MAX_RECORD_BYTES
    ) -> None:
        super().__init__()
        self.path = target.path
        self.max_record_bytes = max_record_bytes
        self._longest = min(max_record_bytes, LARGE_RECORD)  # longer records are handled one by one
        self._encoder = encoder
        self._target = target
        self._queue = target.queue
        self._budget = target.budget
        self._intake = Intake(target.budget, target.check_open)
        self._ticket = 0

    @property
    def published(self) -> ObjectInfo | None:
        """The store's description of the object; `None` until the context has exited without an error."""
        return self._target.published

    @property
    def schema(self) -> Schema | None:
        """The schema against which records are checked, or `None`."""
        return None if self._encoder is None else self._encoder.schema

    async def write(self, record: Record) -> None:
        """Write one record: bytes or, if the writer has a schema, also a mapping of names to values.

        A buffer other than `bytes` is copied, so you may reuse it when this returns. The call waits while the store
        lags behind. If cancelled, it has not written the record.

        Raises:
            SchemaError: the values do not fit the schema; nothing was written.
            TypeError: the record is not bytes, a bytearray or a memoryview, nor, for a writer with a schema, a mapping.
            ValueError: the record is longer than ``max_record_bytes``; nothing was written.
            ClosedResourceError: the context has exited.
            OSError: the store failed. Every later call raises a copy of the error, chained to the original.
        """
        if type(record) is not bytes or self._encoder is not None:
            record = await as_record(record) if self._encoder is None else (await self._encoder.take(record))[0]
        size = len(record) + FRAME_OVERHEAD
        if len(record) > self._longest:
            check_size(len(record), self.max_record_bytes, self.path)
            await self._write_large(record)
            return
        budget = self._budget
        used = budget.used + size
        if used <= budget.bound:
            budget.used = used
        else:
            await self._intake.take(size)
        self._ticket += 1
        self._queue.append(record, self._ticket)

    async def write_many(self, records: Iterable[Record]) -> None:
        """Write records in order, about twice as fast as `write`. If cancelled, only a prefix has been written."""
        if self._encoder is not None:
            await self._encoder.take_many(records, self._write_batches)
        else:
            await self._write_batches(records)

    async def _write_batches(self, records: Iterable[Record]) -> None:
        for item in batched(records, longest=self._longest):
            if not isinstance(item, tuple):
                await self.write(item)
                continue
            batch, size = item
            await self._intake.take(size)
            first = self._ticket + 1
            self._ticket += len(batch)
            self._queue.append_many(batch, size, first)

    async def flush(self, *, require: Level = "buffered") -> Level:
        """Pass all records written so far to the store, and make them durable if the store supports it.

        Returns:
            The level reached: ``"spooled"`` for a local file, otherwise ``"buffered"``. Spooled records are on disk and
                survive the end of this process, in a hidden, unfinished file until the context exits, or with
                ``mode="a"`` in the file itself.

        Raises:
            ValueError: ``require`` is a level that this writer cannot reach.
        """
        if require != "buffered" and not (require == "spooled" and self._target.durable_flush):
            raise ArgumentValueError(
                f"{self.path}: flush cannot reach the level {require!r}: a file is committed when the writer's "
                "context exits, and spooled only on a local disk"
            )
        self._target.check_open()
        request = self._queue.flush()
        await request.done.wait()
        self._target.check()
        return "spooled" if request.spooled else "buffered"

    def stats(self) -> WriterStats:
        """Return the totals so far."""
        output = self._target.output
        return WriterStats(
            records=self._queue.records,
            bytes=self._queue.bytes,
            stored_bytes=output.size if output else 0,
            seconds_waiting=self._budget.seconds_waited,
            seconds_compressing=output.seconds_compressing if output else 0.0,
            seconds_storing=output.seconds_storing if output else 0.0,
        )

    async def _write_large(self, record: bytes) -> None:
        await self._intake.take(len(record) + FRAME_OVERHEAD)
        frames = await self._intake.frame_large(record)
        self._ticket += 1
        self._queue.append_sealed(WriteBatch.of_large(record, frames, ticket=self._ticket, time=anyio.current_time()))


@asynccontextmanager
async def open_writer(
    path: str | PathLike[str],
    *,
    compression: Compression = "",
    mode: Literal["w", "x", "a"] = "w",
    schema: GivenSchema = None,
    validate: Validate = "sample",
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[RecordWriter]:
    """Write records to one file or object: ``async with open_writer(path) as writer: await writer.write(b"...")``.

    If the block raises an exception or is cancelled, nothing appears under ``path``, and an existing object stays as it
    was. Only records flushed to a local disk are kept, in ``.<name>.<id>.partial`` next to ``path``.

    Args:
        path: a local path, or a URL of any installed backend; with ``storage``, a key in it.
        compression: ``""`` (the default, which every reader can read), ``"GZIP"``, ``"ZLIB"``, or `CompressionOptions`.
        mode: ``"w"`` replaces an existing object when the new one is complete; ``"x"`` raises ObjectExistsError
            instead; ``"a"`` cuts off a torn last record, then appends to a local file in place, which readers see as it
            grows.
        schema: a `Schema`; ``write`` then also accepts mappings of names to values, and checks them. The schema is not
            stored in the file, unlike in a data set (`open_sharded_writer`).
        validate: which records passed as bytes are checked against the schema: ``"sample"`` (the first hundred, then
            every hundredth), ``"all"`` or ``"none"``.
        max_record_bytes: the maximum length of a record; 256 MiB by default, as for every reader. To read a file with
            longer records, pass the same limit to the reader.
        storage: an open `Storage`, which is used but not closed.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        ObjectExistsError: with ``mode="x"``, the object exists when the context is entered or exits.
        ValueError: an option is invalid, or the options cannot be combined.
    """
    options = parse_compression(compression)
    max_record_bytes = record_limit(max_record_bytes)
    if mode not in ("w", "x", "a"):
        raise ArgumentValueError(f"mode must be 'w', 'x' or 'a', not {mode!r}")
    encoder = encoder_of(redact(str(path)), schema_of(schema), validate=validate)
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        sink = (
            open_append_sink(store, key, compression=options.type)
            if mode == "a"
            else store.open_sink(key, exclusive=mode == "x")
        )
        durable_flush = mode == "a" or store.flush_level == "spooled"
        target = SingleObject(str(path), sink, compression=options, durable_flush=durable_flush)
        async with TaskScope() as scope:
            await target.start(scope)
            try:
                yield RecordWriter(target, encoder, max_record_bytes=max_record_bytes)
                await target.finish()
            finally:
                target.abandon()


async def write_records(
    path: str | PathLike[str],
    records: Iterable[Buffer],
    *,
    compression: Compression = "",
    mode: Literal["w", "x", "a"] = "w",
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> ObjectInfo:
    """Write all records to one object, and return the store's description of it. For notebooks; see `open_writer`."""
    async with open_writer(
        path,
        compression=compression,
        mode=mode,
        max_record_bytes=max_record_bytes,
        storage=storage,
        storage_options=storage_options,
    ) as writer:
        await writer.write_many(records)
    assert writer.published is not None, "a clean exit publishes the file"
    return writer.published


async def write_examples(
    path: str | PathLike[str],
    rows: Iterable[Mapping[str, Any]],
    *,
    schema: GivenSchema = None,
    compression: Compression = "",
    mode: Literal["w", "x", "a"] = "w",
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> ObjectInfo:
    """Write each row as an Example to one object, and return the store's description of it. For notebooks.

    A row is a mapping of names to values. With a ``schema``, rows are checked against it; without one, they are encoded
    as by `encode_example`. See `open_writer`.
    """
    encoder = RecordEncoder(redact(str(path)), schema_of(schema))
    async with open_writer(
        path,
        compression=compression,
        mode=mode,
        max_record_bytes=max_record_bytes,
        storage=storage,
        storage_options=storage_options,
    ) as writer:
        await encoder.take_many(rows, writer.write_many)
    assert writer.published is not None, "a clean exit publishes the file"
    return writer.published
