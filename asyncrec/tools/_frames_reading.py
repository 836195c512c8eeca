"""`FramedRecords` iterates over all records of a selection, leaving them in their frames if possible.

A shard is read in frames if it is an uncompressed local file and the C extension is installed. Each block is then read
and verified in one call in a worker thread, without creating an object for each record. Other shards, and the rest of a
shard after corrupt data, are read by a `RecordReader`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._framing.measuring import FrameMeter
from asyncrec._native import native
from asyncrec._records.position import BEGINNING, Position
from asyncrec._records.reading.frame_scan import compression_of
from asyncrec._records.reading.reader import RecordReader, open_reader_at
from asyncrec._shards.manifest.manifest import naming_lost_shards
from asyncrec._shards.writing.ordered_writer import Batch, FramedBatch, KeyedBatch
from asyncrec.storage._base import ObjectInfo
from asyncrec.storage._local.disk import mapped_errors
from asyncrec.storage._local.open_files import OpenFile
from asyncrec.storage._local.storage import local_folder, open_file
from asyncrec.tools._read_through import ChecksummedStorage
from asyncrec.tools._selection import SelectedShard, Selection
from asyncrec.tools._shard_reading import check_opened
from asyncrec.tools._shards_in_turn import ShardsInTurn

# The size of a block, which is read in one call in a worker thread. A longer record is read in a block of its own.
_BLOCK_BYTES = 1 << 20


class FramedRecords(ShardsInTurn):
    """All records in order, with their keys if any shard has keys."""

    _reader: _FrameReader

    def __aiter__(self) -> FramedRecords:
        return self

    async def __anext__(self) -> Batch:
        while await self._has_shard():
            batch = await self._reader.next_batch()
            if batch is not None:
                self._in_shard += len(batch)
            if isinstance(batch, FramedBatch):
                return replace(batch, keys=await self._keys.joined(len(batch))) if self._keys else batch
            if batch is not None:
                return replace(batch, keys=await self._keys.take(len(batch))) if self._keys else batch
            await self._check_shard(self._reader.crc32c)
            await self._end_shard()
        raise StopAsyncIteration

    async def _open(self, shard: SelectedShard) -> None:
        with nullcontext() if shard.entry is None else naming_lost_shards():
            self._reader = await self._stack.enter_async_context(_open_frames(self._selection, shard))


class _FrameReader:
    """Reads one shard in batches, from its beginning. Only one task may use it, and not after a cancelled call."""

    def __init__(
        self, selection: Selection, shard: SelectedShard, stack: AsyncExitStack, file: OpenFile | None
    ) -> None:
        """``file`` is the shard's file, or `None` if the shard cannot be read in frames."""
        self._storage = selection.storage
        self._shard = shard
        self._stack = stack
        self._file = file
        self._passing = ChecksummedStorage(selection.storage)
        self._passing.info = None if file is None else file.info
        self._known: ObjectInfo | None = None  # the file's description, set once it is no longer read in frames
        self._offset = 0
        self._record = 0
        self._reader: RecordReader | None = None

    @property
    def crc32c(self) -> int | None:
        """The checksum of the shard; `None` if it was not read to its end."""
        return self._passing.whole_crc32c

    async def next_batch(self) -> Batch | None:
        """Return the next batch of records, without their keys, or `None` at the end.

        Raises:
            FormatError: a record is damaged; see `RecordReader`.
            ObjectChangedError: the file has been replaced since it was opened, or is not the shard in the manifest.
        """
        if self._file is not None:
            batch = await in_thread(self._next_frames, self._file)
            if batch is not None or self._offset == self._file.info.size:
                return batch
            self._known, self._file = self._file.info, None
        if self._reader is None:
            begun = self._offset > 0
            with nullcontext() if self._shard.entry is None else naming_lost_shards():
                self._reader = await open_reader_at(
                    self._passing,
                    self._shard.key,
                    Position(self._offset, 0, self._record) if begun else BEGINNING,
                    path=self._shard.display_path,
                    info=self._known,
                    compression="" if begun else "auto",
                    max_record_bytes=self._shard.max_record_bytes,
                )
            self._stack.push_async_callback(self._reader.aclose)
            if self._known is None:
                await check_opened(self._storage, self._shard, self._reader.info)
        found = await self._reader.next_batch()
        return None if found is None else KeyedBatch(found.records)

    def _next_frames(self, file: OpenFile) -> FramedBatch | None:
        """Read the next complete frames. Return `None` at the end or if the next frame is not valid. Blocks."""
        size = _BLOCK_BYTES
        while left := file.info.size - self._offset:
            with mapped_errors("reading", f"{file.shown}, offset {self._offset:,}"):
                block = file.read(min(size, left), self._offset)
            meter = FrameMeter(max_record_bytes=self._shard.max_record_bytes)
            lengths = meter.measure(block)
            if len(lengths):
                frames = memoryview(block)[: meter.offset]
                self._passing.add(frames)
                self._offset += meter.offset
                self._record += len(lengths)
                return FramedBatch(frames, lengths)
            if meter.error is not None or len(block) < size:  # damaged or truncated; the record reader reports it
                return None
            size = len(block) + meter.wanted + FRAME_OVERHEAD
        return None


@asynccontextmanager
async def _open_frames(selection: Selection, shard: SelectedShard) -> AsyncIterator[_FrameReader]:
    """Yield a reader of a shard, which reads frames if possible.

    Raises:
        ObjectNotFoundError, StorageError: the shard cannot be opened.
        ObjectChangedError: the file is not the shard in the manifest.
    """
    folder = local_folder(selection.storage) if native is not None else None
    async with AsyncExitStack() as stack:
        file = None
        if folder is not None:
            file = await in_thread(open_file, folder, shard.key)
            stack.push_async_callback(surely_in_thread, file.close)
            if await in_thread(compression_of, file):
                file = None
            else:
                await check_opened(selection.storage, shard, file.info)
        yield _FrameReader(selection, shard, stack, file)
