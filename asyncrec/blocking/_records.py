"""Write and read one file or object without async: `RecordReader` and `RecordWriter`.

A call to the event loop and back takes tens of microseconds, far longer than processing a record. A reader therefore
receives lists of records, and a writer collects up to 1,024 records or 512 KiB, the size of a write batch on the loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import wraps
from os import PathLike
from typing import Any, ParamSpec, cast

import anyio

from asyncrec._framing.damage import Damage
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.reading import reader
from asyncrec._records.reading.examples import decoder
from asyncrec._records.record_size import buffer_size, check_size
from asyncrec._records.writing import writer
from asyncrec._records.writing.record_encoder import GivenSchema, Record, RecordEncoder, encoder_of, schema_of
from asyncrec._records.writing.write_batch import BATCH_BYTES, BATCH_RECORDS, batched
from asyncrec._records.writing.writer import Level
from asyncrec.blocking._owner import Handle, Opened, Owner, as_call, as_context, as_twin
from asyncrec.blocking._streams import Puller, RecordLists
from asyncrec.errors import ExampleError
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Buffer, ObjectInfo
from asyncrec.storage._url import redact

P = ParamSpec("P")


class RecordReader(Handle[reader.RecordReader], Iterator[bytes]):
    """`asyncrec.RecordReader`, iterated with ``for`` over records, or over the lists of records from `batches`.

    A reader can be iterated once, by one thread at a time.
    """

    def __init__(self, owner: Owner[reader.RecordReader], value: reader.RecordReader) -> None:
        super().__init__(owner, value)
        self._records = RecordLists(Puller(owner, value.batches()))

    def __next__(self) -> bytes:
        return self._records.next_record()

    def batches(self) -> Iterator[list[bytes]]:
        """Iterate over the records in non-empty lists, which is faster, from the record after the last one returned."""
        return self._records

    def examples(self, schema: Schema | None = None) -> Iterator[dict[str, Any]]:
        """See `asyncrec.RecordReader.examples`. Records are decoded in this thread."""
        return Examples(self.path, self, schema)

    @property
    def path(self) -> str:
        return self._value.path

    @property
    def info(self) -> ObjectInfo:
        """The store's description of the object being read."""
        return self._value.info

    @property
    def compression(self) -> str:
        """The file's compression, whether detected or passed by the caller."""
        return self._value.compression

    @property
    def damage(self) -> list[Damage]:
        """The damage skipped so far. See `asyncrec.RecordReader.damage`."""
        return self._value.damage

    def stats(self) -> reader.ReaderStats:
        """Return the counts so far. Records are counted when the list that contains them is received."""
        return self._value.stats()


class RecordWriter(Handle[writer.RecordWriter]):
    """`asyncrec.RecordWriter`. Any number of threads may use it.

    `write` collects records. The collected records are passed to the loop once they reach 1,024 records or 512 KiB, by
    `flush`, by `write_many`, and at the end of the ``with``. The call that passes them on raises any error from the
    store.
    """

    def __init__(
        self, owner: Owner[writer.RecordWriter], value: writer.RecordWriter, encoder: RecordEncoder | None = None
    ) -> None:
        super().__init__(owner, value)
        self._most = value.max_record_bytes
        self._encoder = encoder
        self._lock = threading.RLock()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._left = False
        owner.finish_with(self._finish)

    @property
    def path(self) -> str:
        return self._value.path

    @property
    def max_record_bytes(self) -> int:
        """The length in bytes above which a record is rejected."""
        return self._most

    @property
    def published(self) -> ObjectInfo | None:
        """The store's description of the object, once the context has exited cleanly."""
        return self._value.published

    @property
    def schema(self) -> Schema | None:
        """The schema against which records are checked."""
        return None if self._encoder is None else self._encoder.schema

    def write(self, record: Record) -> None:
        """Write one record, which is copied unless it is `bytes`. See `asyncrec.RecordWriter.write`.

        A mapping is encoded in this thread. If the call is interrupted, the record has still been accepted, and is
        passed on later.
        """
        if self._encoder is not None:
            record, _ = self._encoder.take_now(record)
        size = buffer_size(record)
        if size > self._most:
            check_size(size, self._most, self.path)
        with self._lock:
            if self._left:
                raise anyio.ClosedResourceError(f"{self.path}: the writer is closed; write inside its `with`")
            self._pending.append(record if type(record) is bytes else bytes(cast("Buffer", record)))
            self._pending_bytes += size + FRAME_OVERHEAD
            if len(self._pending) >= BATCH_RECORDS or self._pending_bytes >= BATCH_BYTES:
                self._hand_on()

    def write_many(self, records: Iterable[Record]) -> None:
        """Write many records in order. The iterable runs in this thread.

        If the call is interrupted, only the first records have been written.
        """
        if self._encoder is not None:
            for record in records:
                self.write(record)
            return
        for item in batched(records):
            with self._lock:
                self._hand_on()
                self._owner.call(self._value.write_many, item[0] if isinstance(item, tuple) else [item])

    def flush(self, *, require: Level = "buffered") -> Level:
        """See `asyncrec.RecordWriter.flush`."""
        with self._lock:
            self._hand_on()

        async def flush() -> Level:
            return await self._value.flush(require=require)

        return self._owner.call(flush)

    def stats(self) -> writer.WriterStats:
        """Return the counts so far, without collected records that are not yet passed on."""
        return self._value.stats()

    def _hand_on(self) -> None:
        if not self._pending:
            return
        before = self._value.stats().records
        try:
            self._owner.call(self._value.write_many, self._pending)
        finally:
            # If the call was interrupted, the loop may have accepted only some of the records.
            del self._pending[: self._value.stats().records - before]
            self._pending_bytes = sum(map(len, self._pending)) + FRAME_OVERHEAD * len(self._pending)

    def _finish(self, error: BaseException | None) -> None:
        with self._lock:
            self._left = True
            if error is None:
                self._hand_on()


open_reader = as_context(reader.open_reader, RecordReader)


def _with_encoder(
    func: Callable[P, AbstractAsyncContextManager[writer.RecordWriter]],
) -> Callable[P, Opened[RecordWriter]]:
    @wraps(func)
    def opened(*args: P.args, **kwargs: P.kwargs) -> Opened[RecordWriter]:
        options = cast("dict[str, Any]", kwargs)
        # Records are encoded and checked in the caller's thread.
        schema, validate = options.pop("schema", None), options.pop("validate", "sample")
        encoder = encoder_of(redact(str((*args, options.get("path", ""))[0])), schema_of(schema), validate=validate)
        return Opened(
            lambda owner, value: RecordWriter(owner, value, encoder),
            lambda: Owner(func(*args, **kwargs), func.__name__),
            func.__name__,
        )

    return opened


open_writer = _with_encoder(writer.open_writer)
read_records = as_call(reader.read_records)


# This does not use `as_call`, because the iterable runs the caller's code, which may block or use asyncrec.blocking.
@as_twin(writer.write_records)
def write_records(path: str | PathLike[str], records: Iterable[Buffer], **options: Any) -> ObjectInfo:
    with open_writer(path, **options) as file:
        file.write_many(records)
    assert file.published is not None, "a clean exit publishes the file"
    return file.published


@as_twin(writer.write_examples)
def write_examples(
    path: str | PathLike[str], rows: Iterable[Mapping[str, Any]], *, schema: GivenSchema = None, **options: Any
) -> ObjectInfo:
    encoder = RecordEncoder(redact(str(path)), schema_of(schema))
    return write_records(path, (encoder.take_now(row)[0] for row in rows), **options)


class Examples(Iterator[dict[str, Any]]):
    """An iterator over the decoded ``records``. After an error, it continues with the next record."""

    def __init__(self, path: str, records: Iterator[bytes], schema: Schema | None) -> None:
        self._path = path
        self._records = records
        self._decode = decoder(schema)
        self._given = 0

    def __next__(self) -> dict[str, Any]:
        record = next(self._records)
        self._given += 1
        try:
            return self._decode(record)
        except ExampleError as error:
            raise type(error)(
                f"{self._path}: record {self._given - 1:,} (counted from where reading began): {error}"
            ) from None
