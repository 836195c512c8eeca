"""`open_reader`: the records of one file or object, checked, in one pass.

A file that is whole is read by a `Pipeline`, whatever ``on_corrupt`` is. On damage a `SalvagePipeline` takes its place.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, Literal

import anyio

from asyncrec._concurrency.batches import Batches
from asyncrec._concurrency.forks import forked_error, on_fork
from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions, CompressionType, detect_compression, parse_compression
from asyncrec._framing.damage import Damage, DamageLog, DamageReason
from asyncrec._framing.frames import FRAME_OVERHEAD, HEADER_BYTES, MAX_RECORD_BYTES
from asyncrec._framing.salvage.frames import Found
from asyncrec._framing.salvage.members import recognise
from asyncrec._records.position import BEGINNING, Position, RecordBatch
from asyncrec._records.reading.decode_pipeline import CHUNK_SIZE, INFLATE_BYTES, Pipeline
from asyncrec._records.reading.salvage_pipeline import SalvagePipeline
from asyncrec.errors import ArgumentValueError, CorruptRecordError, FormatError, RecordTooLargeError, TruncatedError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._registry import located
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly
from asyncrec.storage._url import redact

__all__ = ["OnCorrupt", "ReaderStats", "RecordReader", "open_reader", "open_reader_at", "read_records"]

OnCorrupt = Literal["raise", "skip", "stop"]

_log = logging.getLogger("asyncrec._records")

# What a file with a damaged beginning is recognised by: more than a GZIP member that asyncrec writes.
_RECOGNISED_BY = 8 << 20

# Behind damage at rest the next is most likely at rest, too: after so much, ranges of a remote store are read once.
_READ_TWICE = 16


@dataclass(frozen=True, slots=True)
class ReaderStats:
    """What a `RecordReader` did so far.

    ``bytes`` are of frames, decompressed. ``retries`` counts connections that had to be made again; ``rereads``
    ranges that came damaged, and whole when they were read once more. ``lost_ranges`` and ``lost_bytes`` count what
    `RecordReader.damage` lists, without its limit; what is ambiguous is not lost.
    """

    records: int
    bytes: int
    retries: int
    rereads: int
    lost_ranges: int
    lost_bytes: int
    ambiguous_ranges: int


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
        on_corrupt: OnCorrupt,
        boundaries: Sequence[int],
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
        self._on_corrupt = on_corrupt
        self._boundaries = boundaries
        self._detects = compression == "auto"
        self._damage = DamageLog()
        self._found: Found | None = None
        self._source: ResumingSource
        self._pipeline: Pipeline | SalvagePipeline
        self._iterator: Iterator[bytes] = iter(())
        self._reading_again: CorruptRecordError | None = None
        self._ended = False
        self._closed = False
        self._forked = False
        self._rereads = 0
        on_fork(self)

    def forked(self) -> None:
        """In the child of a fork: whoever reads on is told."""
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
        """The records in lists as they come: some hundred KiB each, a large record alone. No list is empty."""
        return Batches(self._batch)

    @property
    def damage(self) -> list[Damage]:
        """What was skipped so far, in order: ranges that touch are one, and the first 1,000 are listed.

        With ``on_corrupt="stop"`` the rest of the file, once its damage was met.
        """
        return list(self._damage.listed)

    def stats(self) -> ReaderStats:
        return ReaderStats(
            records=self._pipeline.records,
            bytes=self._pipeline.frame_bytes,
            retries=self._source.retries,
            rereads=self._rereads,
            lost_ranges=self._damage.lost_ranges,
            lost_bytes=self._damage.lost_bytes,
            ambiguous_ranges=self._damage.ambiguous_ranges,
        )

    @property
    def info(self) -> ObjectInfo:
        """What the store says of the version that is read."""
        return self._source.info

    async def _next_batch(self) -> list[bytes]:
        return list(self._iterator) or await self._fill()

    async def _batch(self) -> list[bytes]:
        records = await self._next_batch()
        if not records:
            raise StopAsyncIteration
        return records

    async def _fill(self) -> list[bytes]:
        """The next whole records; an empty list at the end, and again after it."""
        if self._forked:
            raise forked_error(f"{self.path}: the reader")
        if self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the reader is closed; read inside its `async with`")
        while not self._ended:
            if isinstance(self._pipeline, SalvagePipeline):
                await self._leave_salvage(self._pipeline)
            try:
                records = await self._pipeline.next_records(self._source)
            except FormatError as error:
                if isinstance(error, CorruptRecordError) and await self._read_again(error):
                    continue
                if self._on_corrupt == "skip":
                    # The pipeline keeps its error, whose frames keep the pipeline, and with it a large record.
                    error.__traceback__ = error.__cause__ = error.__context__ = None
                    await self._salvage()
                    continue
                self._ended = True
                if self._on_corrupt == "raise":
                    raise
                self._note_the_rest(error)
                return []
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

    async def _open(self) -> None:
        source = ResumingSource(self._storage, self._key, start=self._position.offset, read_ahead=self._read_ahead)
        self._source = await self._stack.enter_async_context(source)
        head = b""
        if self.compression == "auto":
            # A frame's header or a compressed file's magic.
            head = await receive_exactly(self._source, HEADER_BYTES)
            self.compression = detect_compression(head)
        self._pipeline = self._pipeline_at(self._position, frame_bytes=0)
        self._pipeline.push(head)

    def _pipeline_at(self, position: Position, *, frame_bytes: int) -> Pipeline:
        assert self.compression != "auto", "detected on opening"
        offset, skip, record = position
        return Pipeline(
            self.path,
            self.compression,
            verify=self._verify,
            max_record_bytes=self._max_record_bytes,
            chunk_size=self._chunk_size,
            start=offset,
            records_before=record - skip,
            skip=skip,
            frame_bytes=frame_bytes,
            inflate_bytes=self._inflate_bytes,
        )

    async def _salvage(self) -> None:
        """From here on, and at the latest from the damage, read what is whole."""
        self._reading_again = None
        pipeline = self._pipeline
        assert isinstance(pipeline, Pipeline), "salvage meets no errors"
        pipeline.give_up()
        start, skip, record = pipeline.position
        compression = self.compression
        assert compression != "auto", "detected on opening"
        if self._detects and self._position == BEGINNING and not pipeline.offset:
            self.compression = compression = await self._recognised(compression)
        self._pipeline = SalvagePipeline(
            compression,
            self._damage,
            self._source.seek,
            size=self._source.info.size,
            verify=self._verify,
            max_record_bytes=self._max_record_bytes,
            chunk_size=self._chunk_size,
            inflate_bytes=self._inflate_bytes,
            start=start,
            records=record - skip,
            skip=skip,
            frame_bytes=pipeline.frame_bytes,
            found=self._found,
            boundaries=self._boundaries,
        )

    async def _recognised(self, compression: CompressionType) -> CompressionType:
        """How the file is compressed, since its first bytes may be what is damaged."""
        source = self._source
        await source.seek(0)
        found = await in_thread(recognise, await receive_exactly(source, _RECOGNISED_BY))
        return compression if found is None else found

    async def _leave_salvage(self, pipeline: SalvagePipeline) -> None:
        """Behind damage in a remote store, read as before it, so that the next may turn out to be in transit only."""
        position = pipeline.resumable
        if not self._storage.read_ahead or position is None or self._damage.lost_ranges > _READ_TWICE:
            return
        await self._source.seek(position.offset)
        self._found = pipeline.found
        self._pipeline = self._pipeline_at(position, frame_bytes=pipeline.frame_bytes)

    def _note_the_rest(self, error: FormatError) -> None:
        """Everything from the error on is given up. Of a compressed object: the member, and all behind it."""
        offset = self._pipeline.offset
        if self.compression:
            offset = error.member_offset or 0
        reason: DamageReason = "length"
        if isinstance(error, RecordTooLargeError):
            reason = "too_large"
        elif isinstance(error, TruncatedError):
            reason = "truncated"
        elif isinstance(error, CorruptRecordError) and error.part in ("data", "compression"):
            reason = "data" if error.part == "data" else "compression"
        self._damage.add(Damage(offset, self._source.info.size - offset, reason, self._pipeline.records))

    async def _read_again(self, error: CorruptRecordError) -> bool:
        """Whether a damaged range is worth reading once more: it came from a remote store, the first time.

        The second time the error says what follows: damaged in transit would have come right, so it is so at rest.
        """
        if not self._storage.read_ahead:
            return False
        if self._reading_again is not None:
            error.add_note("read twice from the store, and damaged both times: damaged at rest, not in transit")
            return False
        pipeline = self._pipeline
        assert isinstance(pipeline, Pipeline), "salvage meets no errors"
        position = pipeline.position
        await self._source.seek(position.offset)
        self._reading_again = error
        self._pipeline = self._pipeline_at(position, frame_bytes=pipeline.frame_bytes)
        return True


@asynccontextmanager
async def open_reader(
    path: str | PathLike[str],
    *,
    compression: str | int | CompressionOptions | None = "auto",
    verify: bool = True,
    on_corrupt: OnCorrupt = "raise",
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
        on_corrupt: what damage does. ``"raise"`` (the default): an error. ``"skip"``: every record that is whole is
            given out, wherever it stands, and `RecordReader.damage` lists what was lost; a file without damage is read
            as fast as otherwise. ``"stop"``: the file ends there.
        max_record_bytes: a longer record is an error before anything is allocated for it; 256 MiB unless raised.
        start_offset: begin at this byte of the object: where a record begins, or in a GZIP file a member.
        chunk_size: bytes of one read.
        storage: an open `Storage`, used and not closed.
        storage_options: for the backend, when it is opened here.

    Leaving early is clean. A connection that breaks is made again where it broke, to the same version.

    Raises:
        ObjectNotFoundError, StoragePermissionError: on opening.
        ObjectChangedError: the object was replaced while it was being read.
        CorruptRecordError, TruncatedError, RecordTooLargeError: with ``on_corrupt="raise"``, while reading, with path,
            record and offset, after every record before it was given out; of a compressed file, all but those that
            were decompressed together with what is damaged, 256 KiB or so.
    """
    kind: Literal["auto", "", "GZIP", "ZLIB"] = "auto"
    if compression != "auto":
        kind = parse_compression(compression).type
    if chunk_size < 1 or start_offset < 0 or max_record_bytes < 0:
        raise ArgumentValueError("chunk_size is at least 1, start_offset and max_record_bytes at least 0")
    if on_corrupt not in ("raise", "skip", "stop"):
        raise ArgumentValueError(f'on_corrupt={on_corrupt!r}: expected "raise", "skip" or "stop"')
    located_at = located(path, storage=storage, storage_options=storage_options)
    async with located_at as (store, key):
        reader = await open_reader_at(
            store,
            key,
            Position(start_offset, 0, 0),
            path=redact(str(path)),
            compression=kind,
            verify=verify,
            on_corrupt=on_corrupt,
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
    on_corrupt: OnCorrupt = "raise",
    boundaries: Sequence[int] = (),
    max_record_bytes: int = MAX_RECORD_BYTES,
    chunk_size: int = CHUNK_SIZE,
    inflate_bytes: int = INFLATE_BYTES,
    read_ahead: int | None = None,
) -> RecordReader:
    """A reader from a position on, to be closed with ``aclose``; `open_reader` for those who hold many.

    Args:
        path: for messages.
        boundaries: where frames begin, ascending, for finding the next one behind damage in an uncompressed object.
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
        on_corrupt=on_corrupt,
        boundaries=boundaries,
    )
    try:
        await reader._open()
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
    """All records, or the first ``limit``, in memory: for a notebook. See `open_reader`.

    Raises:
        ValueError: ``limit`` is below 0.
    """
    if limit is not None and limit < 0:
        raise ArgumentValueError(f"limit={limit}: at least 0, or None for all")
    found: list[bytes] = []
    async with open_reader(path, compression=compression, storage=storage, storage_options=storage_options) as reader:
        async for records in reader.batches():
            found += records
            if limit is not None and len(found) >= limit:
                return found[:limit]
    return found
