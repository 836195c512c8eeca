"""`open_batches` reads records as Arrow batches, which are decoded in threads before the caller needs them."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from itertools import accumulate, compress
from typing import Any

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.tasks import Handover, TaskScope, in_thread
from asyncrec._framing.compression import parse_reading_compression
from asyncrec._records.reading.reader import open_reader
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow._from_records import BatchMaker
from asyncrec.integrations.arrow._plan import Part, make_plan
from asyncrec.storage._base import Storage
from asyncrec.storage._url import redact

_BATCH_BYTES = 4 << 20  # small enough for the decoded values to stay in the processor's cache


class BatchReader:
    """A reader of Arrow batches, opened by `open_batches`. ``async for batch in reader`` yields RecordBatches.

    The reader can be iterated only once, by one task.

    Attributes:
        schema: the ``pyarrow.Schema`` of every batch.
        records: the number of records; `None` if they have not been counted.
    """

    def __init__(self, schema: Any, records: int | None, received: Handover[Any]) -> None:
        self.schema = schema
        self.records = records
        self._received = received

    def __aiter__(self) -> BatchReader:
        return self

    async def __anext__(self) -> Any:
        return await self._received.take()


@asynccontextmanager
async def open_batches(
    path: str | os.PathLike[str],
    *,
    split: str | None = None,
    schema: Schema | Any = None,
    columns: Iterable[str] | None = None,
    newest: str | None = None,
    batch_rows: int | None = None,
    batch_bytes: Size | None = None,
    worker: tuple[int, int] = (0, 1),
    verify: bool = True,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[BatchReader]:
    """Read records as Arrow batches: ``async with open_batches("s3://crawl/2026/pages") as reader: ...``.

    Records are returned in the order in which they are stored. While one batch is processed, a thread decodes the next.

    Args:
        path: a file, a folder, a pattern or a data set; with ``split``, the folder of the splits.
        split: a split, or parts of several, such as ``"train[:80%]+extra"``.
        schema: the schema of the records, or the ``pyarrow.Schema`` of the batches; by default, the manifest's schema.
        columns: the names of the columns to read, in this order. Only these are parsed.
        newest: as for `asyncrec.open_dataset`. The newest version of each key is found before the first batch.
        batch_rows: the number of rows in a batch. The last batch may have fewer.
        batch_bytes: the maximum size of the records in a batch, unless a single record is larger; 4 MiB if
            ``batch_rows`` is not passed either. Both limits may be combined.
        worker: ``(i, n)`` if this is worker i of n that share the records. The worker reads the i-th of n ranges of
            neighbouring records, whose lengths differ by at most one. Without a manifest, it reads every n-th file.
        verify: check the checksum of every record.
        storage: an open `Storage`, in which ``path`` is a key. It is used but not closed.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        SchemaError: no schema is stored or passed; the data sets at ``path`` store a column in different units of time;
            or, while reading, a record does not match the schema.
        ValueError: a column or split does not exist, a number is out of range, the values of the feature ``newest``
            have no order, or ``newest`` is combined with a split.
        CorruptRecordError, TruncatedError, DecodeError, StorageError: while reading, after all records before the
            error have been returned.
        DatasetError: while reading, a shard has fewer records than the manifest says.
    """
    plan = await make_plan(
        path,
        split=split,
        schema=schema,
        columns=columns,
        newest=newest,
        worker=worker,
        storage=storage,
        storage_options=storage_options,
    )
    async with open_parts(
        plan.maker,
        plan.parts,
        batch_rows=batch_rows,
        batch_bytes=batch_bytes,
        verify=verify,
        storage=storage,
        storage_options=storage_options,
    ) as reader:
        yield reader


@asynccontextmanager
async def open_parts(
    maker: BatchMaker,
    parts: Iterable[Part],
    *,
    batch_rows: int | None = None,
    batch_bytes: Size | None = None,
    verify: bool = True,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[BatchReader]:
    """Read some parts of a plan as Arrow batches, with the options of `open_batches`."""
    batch_bytes = None if batch_bytes is None else byte_count(batch_bytes, "batch_bytes")
    for option, value in (("batch_rows", batch_rows), ("batch_bytes", batch_bytes)):
        if value is not None and value < 1:
            raise ArgumentValueError(f"{option}={value}: must be at least 1")
    if batch_rows is None and batch_bytes is None:
        batch_bytes = _BATCH_BYTES
    chosen = list(parts)
    counts = [rows for part in chosen if (rows := part.rows) is not None]
    received = Handover[Any](1, "the batches")
    reader = BatchReader(maker.arrow, sum(counts) if len(counts) == len(chosen) else None, received)
    feed = _Feed(maker, received, batch_rows, batch_bytes)
    options = {"verify": verify, "storage": storage, "storage_options": storage_options}
    async with TaskScope() as scope:
        scope.start_soon(feed.run, chosen, options)
        try:
            yield reader
        finally:
            scope.cancel()
            received.close()


class _Feed:
    """The task that reads parts and passes batches of the requested sizes to the reader."""

    def __init__(
        self, maker: BatchMaker, received: Handover[Any], batch_rows: int | None, batch_bytes: int | None
    ) -> None:
        self._maker = maker
        self._received = received
        self._rows = batch_rows
        self._bytes = batch_bytes
        self._held: list[bytes] = []
        self._held_bytes = 0

    async def run(self, parts: Iterable[Part], options: dict[str, Any]) -> None:
        try:
            try:
                for part in parts:
                    await self._read(part, options)
            except Exception:
                await self._put()  # the caller gets all records that were read before the error
                raise
            await self._put()
        except Exception as error:
            self._received.end(error)
        else:
            self._received.end()

    async def _read(self, part: Part, options: dict[str, Any]) -> None:
        skip, missing = part.skip, part.records
        wanted = iter(await in_thread(_flags, part)) if part.kept is not None else None
        async with open_reader(
            part.path,
            compression=parse_reading_compression(part.compression),
            start_offset=part.offset,
            max_record_bytes=part.max_record_bytes,
            **options,
        ) as reader:
            async for records in reader.batches():
                kept = records[skip:] if missing is None else records[skip : skip + missing]
                skip = max(skip - len(records), 0)
                await self._take(kept if wanted is None else [*compress(kept, wanted)])
                if missing is not None:
                    missing -= len(kept)
                    if not missing:
                        return
        if missing:
            raise DatasetError(
                f"{redact(part.path)}: the shard has {missing} fewer records than the manifest lists; it was "
                "replaced or not copied completely"
            )

    async def _take(self, records: list[bytes]) -> None:
        """Add records to the current batch, and pass each full batch to the reader."""
        sizes = [*accumulate(map(len, records), initial=0)]
        start = 0
        while start < len(records):
            stop = len(records)
            if self._rows is not None:
                stop = min(stop, start + self._rows - len(self._held))
            if self._bytes is not None:
                room = self._bytes - self._held_bytes
                stop = min(stop, bisect_right(sizes, sizes[start] + room) - 1)
            stop = max(stop, start if self._held else start + 1)  # a record larger than a batch gets its own batch
            self._held += records[start:stop]
            self._held_bytes += sizes[stop] - sizes[start]
            start = stop
            if start < len(records) or len(self._held) == self._rows:
                await self._put()

    async def _put(self) -> None:
        if not self._held:
            return
        held, self._held, self._held_bytes = self._held, [], 0
        await self._received.put(await in_thread(self._maker.batch, held))


def _flags(part: Part) -> list[bool]:
    """Return for each record of a part whether it is selected. ``part.kept`` must not be `None`. Blocks."""
    flags = [False] * (part.records or 0)
    for at in part.wanted().tolist():
        flags[at] = True
    return flags
