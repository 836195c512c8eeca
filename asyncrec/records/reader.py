"""`open_reader`: the records of one file or object, checked, in one pass."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import anyio

from asyncrec.errors import CorruptRecordError
from asyncrec.framing.compression import CompressionOptions, detect_compression, parse_compression
from asyncrec.framing.frames import FRAME_OVERHEAD, HEADER_BYTES, MAX_RECORD_BYTES
from asyncrec.records.pipeline import CHUNK_SIZE, INFLATE_BYTES, Pipeline
from asyncrec.records.position import Position, RecordBatch
from asyncrec.storage.base import Storage
from asyncrec.storage.chunks import ResumingSource
from asyncrec.storage.registry import located
from asyncrec.storage.url import redact

__all__ = ["ReaderStats", "RecordReader", "open_reader", "open_reader_at", "read_records"]

_log = logging.getLogger("asyncrec.records")


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """What a `RecordReader` did so far.

    ``bytes`` are of frames, decompressed. ``retries`` counts connections that had to be made again; ``rereads``
    ranges that came damaged, and whole when they were read once more.
    """

    records: int
    bytes: int
    retries: int
    rereads: int


class RecordReader:
    """Made by `open_reader`. A single pass; used by one task.

    ``async for record in reader`` gives records; ``async for records in reader.batches()`` gives lists of them, which
    is the fast way for small records. Each goes on where the other stopped.

    Attributes:
        path: as it was asked for.
        compression: as it was found, or told.
    """

    def __init__(
        self,
        path: str,
        storage: Storage,
        key: str,
        stack: AsyncExitStack,
        *,
        compression: Literal["auto", "", "GZIP", "ZLIB"],
        verify: bool,
        max_record_bytes: int,
        position: Position,
        chunk_size: int,
        inflate_bytes: int,
        read_ahead: int | None,
    ) -> None:
        self.path = path
        self.compression = compression
        self._storage = storage
        self._key = key
        self._stack = stack
        self._verify = verify
        self._max_record_bytes = max_record_bytes
        self._position = position
        self._chunk_size = chunk_size
        self._inflate_bytes = inflate_bytes
        self._read_ahead = read_ahead
        self._source: ResumingSource
        self._pipeline: Pipeline
        self._iterator: Iterator[bytes] = iter(())
        self._reading_again: CorruptRecordError | None = None
        self._ended = False
        self._closed = False
        self._retries = 0
        self._rereads = 0

    def __aiter__(self) -> RecordReader:
        return self

    async def __anext__(self) -> bytes:
        for record in self._iterator:
            return record
        self._iterator = iter(await self._fill())
        for record in self._iterator:
            return record
        raise StopAsyncIteration

    def batches(self) -> AsyncIterator[list[bytes]]:
        """The records in lists as they come: some hundred KiB each, a large record alone. No list is empty."""
        return _Batches(self)

    def stats(self) -> ReaderStats:
        return ReaderStats(
            records=self._pipeline.records,
            bytes=self._pipeline.offset,
            retries=self._retries + self._source.retries,
            rereads=self._rereads,
        )

    async def _next_batch(self) -> list[bytes]:
        return list(self._iterator) or await self._fill()

    async def _fill(self) -> list[bytes]:
        """The next whole records; an empty list at the end, and again after it."""
        if self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the reader is closed; read inside its `async with`")
        while not self._ended:
            try:
                records = await self._pipeline.next_records(self._source)
            except CorruptRecordError as error:
                if await self._read_again(error):
                    continue
                self._ended = True
                raise
            except ValueError:
                self._ended = True
                raise
            if self._reading_again is not None:
                _log.warning("%s: damaged on its way, and whole when read again: %s", self.path, self._reading_again)
                self._reading_again = None
                self._rereads += 1
            self._ended = not records
            return records
        return []

    async def next_batch(self) -> RecordBatch | None:
        """As `batches` gives them, with where they stand; `None` at the end. For what takes reading up again later."""
        records = await self._next_batch()
        if not records:
            return None
        pipeline = self._pipeline
        size = 0 if pipeline.members else sum(map(len, records)) + FRAME_OVERHEAD * len(records)
        return RecordBatch(records, pipeline.records - len(records), pipeline.offset - size, list(pipeline.members))

    async def park(self) -> None:
        """Give back the open file or connection until the next read, which pays for opening it again."""
        await self._source.park()

    async def aclose(self) -> None:
        self._closed = True
        await self._stack.aclose()

    async def _open(self, etag: str | None = None, *, start: int, records: int = 0, skip: int = 0) -> None:
        source = ResumingSource(self._storage, self._key, start=start, etag=etag, read_ahead=self._read_ahead)
        self._source = await self._stack.enter_async_context(source)
        head = b""
        if self.compression == "auto":
            # A frame's header or a compressed file's magic.
            while len(head) < HEADER_BYTES and (block := await self._source.receive(HEADER_BYTES - len(head))):
                head += block
            self.compression = detect_compression(head)
        self._pipeline = Pipeline(
            self.path,
            self.compression,
            verify=self._verify,
            max_record_bytes=self._max_record_bytes,
            chunk_size=self._chunk_size,
            start=start,
            records_before=records,
            skip=skip,
            inflate_bytes=self._inflate_bytes,
        )
        self._pipeline.push(head)

    async def _read_again(self, error: CorruptRecordError) -> bool:
        """Whether a damaged range is worth reading once more: it came from a remote store, the first time.

        The second time the error says what follows: damaged in transit would have come right, so it is so at rest.
        """
        if not self._storage.read_ahead:
            return False
        if self._reading_again is not None:
            error.add_note("read twice from the store, and damaged both times: damaged at rest, not in transit")
            return False
        self._reading_again = error
        pipeline = self._pipeline
        self._retries += self._source.retries
        etag = self._source.info.etag
        await self._stack.aclose()
        if self.compression:
            # A record may begin in one member and end in another: from the start, dropping what was given out.
            begin, skip, record = self._position
            await self._open(etag, start=begin, records=record - skip, skip=pipeline.records - (record - skip))
        else:
            await self._open(etag, start=pipeline.offset, records=pipeline.records, skip=pipeline.skip)
        return True


class _Batches:
    """Iterates over lists of records; a class, since an async generator is not closed when its loop is left."""

    def __init__(self, reader: RecordReader) -> None:
        self._reader = reader

    def __aiter__(self) -> _Batches:
        return self

    async def __anext__(self) -> list[bytes]:
        records = await self._reader._next_batch()
        if not records:
            raise StopAsyncIteration
        return records


@asynccontextmanager
async def open_reader(
    path: str | PathLike[str],
    *,
    compression: str | int | CompressionOptions | None = "auto",
    verify: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    start_offset: int = 0,
    chunk_size: int = CHUNK_SIZE,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[RecordReader]:
    """Read the records of one file or object, from the version of it that is there now.

    Args:
        path: a local path, or a URL of any installed backend; with ``storage``, a key in it.
        compression: ``"auto"`` (the default) looks at the first bytes; else ``""``, ``"GZIP"``, ``"ZLIB"``.
        verify: check every payload's checksum. Lengths are checked always: they are what finds the next record.
        max_record_bytes: a longer record is an error before anything is allocated for it; 256 MiB unless raised.
        start_offset: begin at this byte of the object: where a record begins, or in a GZIP file a member.
        chunk_size: bytes of one read.
        storage: an open `Storage`, used and not closed.
        storage_options: for the backend, when it is opened here.

    Leaving early is clean. A connection that breaks is made again where it broke, to the same version.

    Raises:
        ObjectNotFoundError, StoragePermissionError: on opening.
        ObjectChangedError: the object was replaced while it was being read.
        CorruptRecordError, TruncatedError, RecordTooLargeError: while reading, with path, record and offset, after
            every record before it was given out.
    """
    kind: Literal["auto", "", "GZIP", "ZLIB"] = "auto"
    if compression != "auto":
        kind = parse_compression(compression).type
    if chunk_size < 1 or start_offset < 0 or max_record_bytes < 0:
        raise ValueError("chunk_size is at least 1, start_offset and max_record_bytes at least 0")
    located_at = located(path, storage=storage, storage_options=storage_options)
    async with located_at as (store, key):
        reader = await open_reader_at(
            store,
            key,
            Position(start_offset, 0, 0),
            path=redact(str(path)),
            compression=kind,
            verify=verify,
            max_record_bytes=max_record_bytes,
            chunk_size=chunk_size,
        )
        async with reader._stack:
            try:
                yield reader
            finally:
                reader._closed = True


async def open_reader_at(
    storage: Storage,
    key: str,
    position: Position,
    *,
    path: str,
    compression: Literal["auto", "", "GZIP", "ZLIB"] = "auto",
    verify: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    chunk_size: int = CHUNK_SIZE,
    inflate_bytes: int = INFLATE_BYTES,
    read_ahead: int | None = None,
) -> RecordReader:
    """A reader from a position on, to be closed with ``aclose``; `open_reader` for those who hold many.

    Args:
        path: for messages.
        inflate_bytes: of one record batch of a compressed object, about.
        read_ahead: as for `ResumingSource`. With 0 there is no task, and readers may be closed in any order; otherwise
            the last one opened by a task is the first to be closed.
    """
    reader = RecordReader(
        path,
        storage,
        key,
        AsyncExitStack(),
        compression=compression,
        verify=verify,
        max_record_bytes=max_record_bytes,
        position=position,
        chunk_size=chunk_size,
        inflate_bytes=inflate_bytes,
        read_ahead=read_ahead,
    )
    offset, skip, record = position
    try:
        await reader._open(start=offset, records=record - skip, skip=skip)
    except BaseException as error:
        await reader._stack.__aexit__(type(error), error, error.__traceback__)
        raise
    return reader


async def read_records(
    path: str | PathLike[str],
    limit: int | None = None,
    *,
    compression: str | int | CompressionOptions | None = "auto",
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> list[bytes]:
    """All records, or the first ``limit``, in memory: for a notebook. See `open_reader`."""
    found: list[bytes] = []
    async with open_reader(path, compression=compression, storage=storage, storage_options=storage_options) as reader:
        async for records in reader.batches():
            found += records
            if limit is not None and len(found) >= limit:
                return found[:limit]
    return found
