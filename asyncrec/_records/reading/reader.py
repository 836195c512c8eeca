"""`open_reader` reads and checks the records of one file or object in one pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import anyio

from asyncrec._arguments import Size, byte_count, record_limit
from asyncrec._concurrency.batches import Batches
from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._framing.compression import CompressionType, ReadingCompression, parse_reading_compression
from asyncrec._framing.damage import Damage
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.dataset_names import not_found
from asyncrec._records.position import Position, RecordBatch
from asyncrec._records.reading.decode_pipeline import CHUNK_SIZE, INFLATE_BYTES, OnCorrupt, ReadOptions
from asyncrec._records.reading.examples import Examples
from asyncrec._records.reading.object_records import ObjectRecords, open_object
from asyncrec._records.record_size import framed_size
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError
from asyncrec.example._schema import Schema
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._cached import CACHE_BYTES, cache_at, through
from asyncrec.storage._registry import located
from asyncrec.storage._resuming_source import ResumingSource
from asyncrec.storage._url import join, redact

__all__ = ["OnCorrupt", "ReaderStats", "RecordReader", "open_reader", "open_reader_at", "read_records"]


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """The totals of one `RecordReader` so far.

    ``bytes`` is the size of the frames, decompressed. ``retries`` counts connections that were reopened; ``rereads``
    counts ranges that arrived damaged and were intact when read again. ``lost_ranges`` and ``lost_bytes`` count the
    damage as in `RecordReader.damage`, but without its limit on listed ranges, and without merely ambiguous ranges.
    """

    records: int
    bytes: int
    retries: int
    rereads: int
    lost_ranges: int
    lost_bytes: int
    ambiguous_ranges: int


class RecordReader:
    """A file or object that is being read, opened by `open_reader`. It is read once, by one task.

    ``async for record in reader`` yields single records; ``async for records in reader.batches()`` yields lists of
    records, which is faster for small records. Each loop continues where the other one stopped.

    Attributes:
        path: the path as the caller passed it, without secrets.
    """

    def __init__(self, records: ObjectRecords, stack: AsyncExitStack) -> None:
        """``stack`` is the exit stack that closes the source."""
        self.path = records.path
        self._object = records
        self._stack = stack
        self._iterator: Iterator[bytes] = iter(())
        self._closed = False
        self._forked = False
        stack.callback(self._close)
        on_fork(self)

    def forked(self) -> None:
        """Make later reads raise an error, because this is the child process of a fork."""
        self._forked = self._closed = True
        self._iterator = iter(())

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
        """Iterate over the records in non-empty lists of a few hundred KiB. A large record has a list of its own."""
        return Batches(self._batch)

    def examples(self, schema: Schema | None = None) -> AsyncIterator[dict[str, Any]]:
        """Iterate over the records, decoded with ``schema`` or, without one, as by `decode_example`.

        Raises DecodeError or SchemaError for a record that cannot be decoded; the next step continues with the next
        record.
        """
        return Examples(self.path, self, schema)

    @property
    def compression(self) -> CompressionType:
        """The file's compression, as detected or passed."""
        return self._object.compression

    @property
    def damage(self) -> list[Damage]:
        """The damage skipped so far, in order. Adjacent ranges are merged, and only the first 1,000 are listed.

        With ``on_corrupt="stop"``, the damage extends to the end of the file.
        """
        return list(self._object.damage.listed)

    def stats(self) -> ReaderStats:
        """Return the totals so far."""
        pipeline, damage = self._object.pipeline, self._object.damage
        return ReaderStats(
            records=pipeline.records,
            bytes=pipeline.frame_bytes,
            retries=self._object.source.retries,
            rereads=self._object.rereads,
            lost_ranges=damage.lost_ranges,
            lost_bytes=damage.lost_bytes,
            ambiguous_ranges=damage.ambiguous_ranges,
        )

    @property
    def info(self) -> ObjectInfo:
        """The store's description of the version being read."""
        return self._object.source.info

    async def next_batch(self) -> RecordBatch | None:
        """Return the records that `batches` would return, with their positions; `None` at the end."""
        records = await self._next_batch()
        if not records:
            return None
        pipeline = self._object.pipeline
        size = framed_size(list(map(len, records)))
        first = pipeline.records - len(records)
        return RecordBatch(records, first, pipeline.offset - size, list(pipeline.members), size)

    async def park(self) -> None:
        """Release the open file or connection. The next read opens it again."""
        await self._object.source.park()

    async def aclose(self) -> None:
        """Close the resources that `open_reader_at` opened."""
        self._closed = True
        await self._stack.aclose()

    def _close(self) -> None:
        self._closed = True

    async def _batch(self) -> list[bytes]:
        records = await self._next_batch()
        if not records:
            raise StopAsyncIteration
        return records

    async def _next_batch(self) -> list[bytes]:
        return list(self._iterator) or await self._fill()

    async def _fill(self) -> list[bytes]:
        """Return the next complete records. At the end, and on every later call, return an empty list."""
        if self._forked:
            raise forked_error(f"{self.path}: the reader")
        if self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the reader is closed; read inside its `async with`")
        return await self._object.next()


@asynccontextmanager
async def open_reader(
    path: str | PathLike[str],
    *,
    compression: ReadingCompression = "auto",
    verify: bool = True,
    on_corrupt: OnCorrupt = "raise",
    max_record_bytes: Size = MAX_RECORD_BYTES,
    start_offset: int = 0,
    chunk_size: Size = CHUNK_SIZE,
    cache: str | PathLike[str] | None = None,
    cache_bytes: Size = CACHE_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[RecordReader]:
    """Read the records of one file or object: ``async with open_reader(path) as reader: ...``.

    The reader reads the version of the object that exists when it is opened. If a connection breaks, it reconnects to
    the same version and continues where it stopped. You may exit the context before the end.

    Args:
        path: a local path, or a URL of any installed backend; with ``storage``, a key in it.
        compression: ``""``, ``"GZIP"``, ``"ZLIB"``, or ``"auto"`` (the default), which detects the compression from the
            first bytes.
        verify: whether to check the checksum of each record's data. Lengths are always checked, because they locate the
            next record.
        on_corrupt: how to react to damage. ``"raise"`` (the default) raises an error. ``"skip"`` returns every intact
            record, wherever it is in the file, and `RecordReader.damage` lists the lost ranges; an intact file is read
            as fast as with ``"raise"``. A warning is logged if a file is damaged, or is not a TFRecord file at all.
            ``"stop"`` treats the damage as the end of the file.
        max_record_bytes: the maximum length of a record; 256 MiB by default. No memory is allocated for a longer one.
        start_offset: the offset at which to start, where a record begins or, in a GZIP file, a member.
        chunk_size: the size of one read, in bytes.
        cache, cache_bytes: as for `open_dataset`. The current version is always requested from the store.
        storage: an open `Storage`, which is used but not closed.
        storage_options: options for the backend, if this call opens the storage.

    Raises:
        ObjectNotFoundError, StoragePermissionError: on opening. If a data set has this name, the message says so.
        ObjectChangedError: the object was replaced while it was being read.
        CorruptRecordError, TruncatedError, RecordTooLargeError: with ``on_corrupt="raise"``, the object is damaged. The
            error has the path, record and offset. All records before it have been returned, except, in a compressed
            file, those decompressed together with the damage, about 256 KiB.
    """
    kind = parse_reading_compression(compression)
    max_record_bytes = record_limit(max_record_bytes)
    chunk_size = byte_count(chunk_size, "chunk_size")
    if chunk_size < 1 or start_offset < 0:
        raise ArgumentValueError("chunk_size must be at least 1, and start_offset at least 0")
    if on_corrupt not in ("raise", "skip", "stop"):
        raise ArgumentValueError(f'on_corrupt={on_corrupt!r}: must be "raise", "skip" or "stop"')
    options = ReadOptions(on_corrupt, verify, max_record_bytes, chunk_size)
    disk_cache = await cache_at(cache, cache_bytes)
    async with located(path, storage=storage, storage_options=storage_options) as (opened, key):
        store = through(opened, disk_cache)
        source = ResumingSource(store, key, start=start_offset)
        position = Position(start_offset, 0, 0)
        shown, remote = redact(str(path)), store.read_ahead > 0
        async with AsyncExitStack() as stack:
            try:
                reader = await _begin(stack, source, kind, options, position, path=shown, remote=remote)
            except ObjectNotFoundError as error:
                told = await not_found(error, store, key, path=shown)
                if told is None:
                    raise
                raise told from error
            yield reader


@asynccontextmanager
async def open_reader_in(
    folder: Storage,
    key: str,
    *,
    info: ObjectInfo | None = None,
    compression: Literal["auto", "", "GZIP", "ZLIB"] = "auto",
    start_offset: int = 0,
    max_record_bytes: int = MAX_RECORD_BYTES,
) -> AsyncIterator[RecordReader]:
    """Open a reader of an object in a folder. Messages show the object's path. See `open_reader_at`."""
    reader = await open_reader_at(
        folder,
        key,
        Position(start_offset, 0, 0),
        path=join(folder.root, key),
        info=info,
        compression=compression,
        max_record_bytes=max_record_bytes,
    )
    try:
        yield reader
    finally:
        await reader.aclose()


async def open_reader_at(
    storage: Storage,
    key: str,
    position: Position,
    *,
    path: str,
    info: ObjectInfo | None = None,
    compression: Literal["auto", "", "GZIP", "ZLIB"] = "auto",
    verify: bool = True,
    on_corrupt: OnCorrupt = "raise",
    boundaries: Sequence[int] = (),
    warns: bool = True,
    max_record_bytes: int = MAX_RECORD_BYTES,
    chunk_size: int = CHUNK_SIZE,
    inflate_bytes: int = INFLATE_BYTES,
    read_ahead: int | None = None,
) -> RecordReader:
    """Open a reader at a position, for callers that keep many readers open. Close it with ``aclose``.

    Args:
        path: the path for messages.
        info: the description of the version to read, if known. Any other version raises ObjectChangedError.
        boundaries: offsets of frames, ascending, for finding the next frame after damage in an uncompressed object.
        warns: whether to log once that damage is skipped. False if the caller reports it.
        inflate_bytes: the approximate number of bytes in one record batch of a compressed object.
        read_ahead: as for `ResumingSource`. With 0, there is no background task, and readers may be closed in any
            order. Otherwise, a task must close its readers in the reverse order of opening.
    """
    options = ReadOptions(on_corrupt, verify, max_record_bytes, chunk_size, inflate_bytes, boundaries, warns)
    source = ResumingSource(storage, key, start=position.offset, info=info, read_ahead=read_ahead)
    stack = AsyncExitStack()
    try:
        return await _begin(stack, source, compression, options, position, path=path, remote=storage.read_ahead > 0)
    except BaseException as error:
        await stack.__aexit__(type(error), error, error.__traceback__)
        raise


async def _begin(
    stack: AsyncExitStack,
    source: ResumingSource,
    compression: Literal["auto", "", "GZIP", "ZLIB"],
    options: ReadOptions,
    position: Position,
    *,
    path: str,
    remote: bool,
) -> RecordReader:
    """Open the source in the caller's task, and return a reader whose ``stack`` closes the source."""
    await stack.enter_async_context(source)
    return RecordReader(await open_object(path, source, compression, options, position, remote=remote), stack)


async def read_records(
    path: str | PathLike[str],
    limit: int | None = None,
    *,
    compression: ReadingCompression = "auto",
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> list[bytes]:
    """Read all records, or the first ``limit``, into a list. For notebooks; see `open_reader`.

    Raises:
        ValueError: ``limit`` is negative.
    """
    if limit is not None and limit < 0:
        raise ArgumentValueError(f"limit={limit}: must be at least 0, or None for no limit")
    found: list[bytes] = []
    async with open_reader(
        path,
        compression=compression,
        max_record_bytes=max_record_bytes,
        storage=storage,
        storage_options=storage_options,
    ) as reader:
        async for records in reader.batches():
            found += records
            if limit is not None and len(found) >= limit:
                return found[:limit]
    return found
