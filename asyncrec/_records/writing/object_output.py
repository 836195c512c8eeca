"""`ObjectOutput` turns batches of records into the bytes of one object, its index and its keys.

It has no task and no queue of its own. The task that owns it calls its methods, one at a time.
"""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import CompressionOptions, make_compressor
from asyncrec._framing.crc import crc32c
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec._records.index import encode_index
from asyncrec._records.writing.write_batch import Positions, WriteBatch, fitted
from asyncrec.storage._base import Buffer
from asyncrec.storage._chunk_writer import ChunkWriter

# Called with the result of a flush: whether all its records now survive this process, or the error.
Outcome = Callable[[bool | Exception], None]


class KeptRecords(Protocol):
    """One object's records, kept in memory until a flush has stored them in flush entries."""

    def keep(self, batches: Sequence[WriteBatch]) -> None:
        """Keep sealed batches that were written to the object."""

    def flush(self, done: Outcome) -> None:
        """Start storing the kept records. ``done`` is called with the result."""

    def finish(self) -> None:
        """Keep the records until the object is committed. There are no more flushes."""


class KeptPositions(Protocol):
    """A file next to an object, in which the positions of the object's records are stored."""

    async def begin(self, records: int) -> None:
        """Note durably that the first ``records`` records have no positions, and that positions begin after them."""

    async def note(self, records: int, positions: Positions) -> None:
        """Note the positions added since the last call, and the number of records so far; durably, if possible."""


class SourcesOutput:
    """The positions that the sources of one object's records have reached.

    Attributes:
        positions: the last position of each source.
    """

    def __init__(self, kept: KeptPositions | None) -> None:
        self.positions: Positions = {}
        self._new: Positions = {}  # the positions since the last note
        self._kept = kept
        self._is_begun = False

    async def take(self, positions: Positions, records: int) -> None:
        """Add the positions of the next batch, before the batch is stored.

        ``records`` is the number of records before the batch.

        A batch may contain records of a source but not their position, if more records of the same position follow in
        the next batch.
        """
        if not self._is_begun and self._kept is not None:
            self._is_begun = True
            await self._kept.begin(records)
        self.positions |= positions
        self._new |= positions

    async def note(self, records: int) -> None:
        """If `take` has been called, note the positions added since the last note, and the number of records."""
        if self._is_begun and self._kept is not None:
            await self._kept.note(records, self._new)
            self._new = {}


class KeysOutput:
    """The file with the digests of one object's records, opened at the first record with a key.

    Attributes:
        chunks: the file, once it is open.
    """

    def __init__(self, begin: Callable[[int], Awaitable[ChunkWriter]], width: int) -> None:
        """``begin`` opens the file at the first key. Its argument is the size of the entries of the earlier records.

        ``width`` is the number of bytes per record.
        """
        self.chunks: ChunkWriter | None = None
        self._begin = begin
        self._width = width

    async def write(self, batch: WriteBatch, before: int) -> None:
        """Write the digests of a batch that follows ``before`` records."""
        if self.chunks is None and batch.digests is not None:
            self.chunks = await self._begin(self._width * before)
        if self.chunks is not None:
            digests = batch.digests or bytes(self._width * batch.count)
            await self.chunks.write([fitted(digests, batch.count, self._width)])


class ObjectOutput:
    """An object that is being written to one sink as frames, compressed or not.

    Attributes:
        records: the number of records accepted so far.
        largest: the size of the longest record, if it is longer than readers accept by default; otherwise 0.
        flushed: whether a flush has reported that its records survive this process.
        sources: the positions that the sources of its records have reached.
        seconds_compressing: the time spent compressing in worker threads.
        seconds_storing: the time spent waiting for the sink.
    """

    def __init__(
        self,
        chunks: ChunkWriter,
        *,
        compression: CompressionOptions,
        index: ChunkWriter | None = None,
        keys: KeysOutput | None = None,
        kept: KeptRecords | None = None,
        kept_positions: KeptPositions | None = None,
    ) -> None:
        """``kept`` stores the flushed records, if they are not flushed to the object itself. ``kept_positions`` stores
        the positions of sources, if records have positions.
        """
        self._chunks = chunks
        self._compressor = make_compressor(compression)
        self._compression = compression.type
        self._index = index
        self._keys = keys
        self._kept = kept
        self._offset = 0
        self.records = 0
        self.largest = 0
        self.flushed = False
        self.sources = SourcesOutput(kept_positions)
        self.seconds_compressing = 0.0
        self.seconds_storing = 0.0

    @property
    def size(self) -> int:
        """The number of bytes of the object stored so far. The compressor may contain more."""
        return self._chunks.size

    @property
    def crc32c(self) -> int:
        """The CRC-32C of the bytes stored so far."""
        return self._chunks.crc32c

    @property
    def end_crc32c(self) -> int:
        """The CRC-32C of the last `END_BYTES` of the bytes stored so far."""
        return crc32c(self._chunks.end)

    @property
    def sidecar_bytes(self) -> int:
        """The number of bytes of the index and the keys that are in memory, waiting to fill chunks of their own."""
        return sum(chunks.held for chunks in (self._index, self._key_chunks) if chunks is not None)

    async def write(self, batches: Sequence[WriteBatch]) -> None:
        """Write sealed batches. After an error or a cancellation, the object can only be abandoned.

        Keys are written before their records, so no crash leaves a record without its key.
        """
        for batch in batches:
            if batch.positions is not None or batch.goes_on:
                await self.sources.take(batch.positions or {}, self.records)
            await self._write_keys(batch)
        if self._compression:
            begun = anyio.current_time()
            pieces, starts = await in_thread(self._compress, batches)
            self.seconds_compressing += anyio.current_time() - begun
            await self._store(pieces)
        else:
            starts = []
            for batch in batches:
                starts.append((self._offset, None))
                self._offset += batch.size
                await self._store(batch.frames)
        for batch, (start, member) in zip(batches, starts, strict=True):
            if self._index is not None:
                await self._index.write([encode_index(start, batch.lengths, member=member)])

    def keep(self, batches: Sequence[WriteBatch]) -> None:
        """Keep batches that were written, if they are not flushed to the object itself."""
        if self._kept is not None:
            self._kept.keep(batches)

    def flush_kept(self, done: Outcome) -> bool:
        """Start storing the kept records, and return true; ``done`` is called with the result.

        Return false if records are flushed to the object itself, with `flush`.
        """
        if self._kept is None:
            return False
        self._kept.flush(done)
        return True

    async def flush(self) -> bool:
        """Send all records written so far, and return whether they now survive this process."""
        if self._compression:
            await self._store([await in_thread(self._compressor.flush)])
        await self.sources.note(self.records)  # must precede the last check that the job still belongs to this writer
        keys = self._key_chunks
        durable = keys is None or await keys.flush() == keys.size
        durable = await self._chunks.flush() == self._chunks.size and durable
        self.flushed = self.flushed or durable
        return durable

    async def finish(self) -> None:
        """Send the remaining bytes. Nothing can be written afterwards. The sinks publish when their contexts exit."""
        if self._kept is not None:
            self._kept.finish()
        await self.sources.note(self.records)
        if self._compression:
            await self._store([await in_thread(self._compressor.finish)])
        await self._chunks.finish()
        if self._index is not None:
            await self._index.finish()
        if (keys := self._key_chunks) is not None:
            await keys.finish()

    @property
    def _key_chunks(self) -> ChunkWriter | None:
        return None if self._keys is None else self._keys.chunks

    async def _store(self, buffers: Sequence[Buffer]) -> None:
        begun = anyio.current_time()
        await self._chunks.write(buffers)
        self.seconds_storing += anyio.current_time() - begun

    def _compress(self, batches: Sequence[WriteBatch]) -> tuple[list[Buffer], list[tuple[int, int | None]]]:
        """Return the compressed pieces, and the position of each batch's first frame. Runs in a worker thread."""
        pieces: list[Buffer] = []
        starts: list[tuple[int, int | None]] = []
        for batch in batches:
            pieces += self._compressor.compress(batch.frames)
            if self._compression == "GZIP":
                starts.append((self._compressor.member_input - batch.size, self._compressor.member_offset))
            else:
                # A ZLIB file is one stream, in which readers cannot seek. The offset only counts decompressed bytes.
                starts.append((self._offset, None))
                self._offset += batch.size
        return pieces, starts

    async def _write_keys(self, batch: WriteBatch) -> None:
        if self._keys is not None:
            await self._keys.write(batch, self.records)
        self.records += batch.count
        if batch.size > MAX_RECORD_BYTES:
            self.largest = max(self.largest, *array("q", batch.lengths))
