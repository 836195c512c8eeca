"""`PlainFeed` and `InflatingFeed` feed the blocks of a source to a `FrameDecoder`.

A call that is cancelled loses nothing: a block stays until it was fed, and what a thread made of it until it was taken.
"""

from __future__ import annotations

from typing import Literal

from asyncrec._concurrency.tasks import ThreadedStep
from asyncrec._framing.compression import Decompressor
from asyncrec._framing.frames import FrameDecoder
from asyncrec._records.position import Position
from asyncrec._records.reading.options import CHUNK_SIZE, FAR_CHUNK_SIZE, ReadOptions
from asyncrec._records.record_size import LARGE_RECORD
from asyncrec.errors import FormatError
from asyncrec.storage._base import ByteSource

# Of records larger than this on average twice as much is parsed in the time that a chunk of small ones takes.
_LARGER_RECORDS = 1 << 10

# The size of the steps of decompression: large enough to cost nothing, small enough for the processor's cache.
_INFLATE_STEP = 256 << 10
# Of a large record as much at a time: the libraries put together what they made without letting go of the interpreter.
_LARGE_STEP = 2 << 20


class PlainFeed:
    """Feeds the bytes of an uncompressed object to a decoder.

    Attributes:
        error, members: as of `InflatingFeed`; always empty here.
    """

    error: FormatError | None = None
    members: tuple[tuple[int, int], ...] = ()

    def __init__(self, decoder: FrameDecoder, chunk_size: int) -> None:
        self._decoder = decoder
        self._chunk_size = chunk_size
        self._block = b""  # received, and not fed yet
        self._left: list[bytes] = []  # by a call that was cancelled
        self._feeding = ThreadedStep[list[bytes]]()

    @property
    def waits(self) -> bool:
        """Whether a cancelled call left something to be taken."""
        return bool(self._left) or self._feeding.waits

    def push(self, head: bytes) -> None:
        """Take bytes that were read to detect the compression: too few to hold a record."""
        if head:
            self._decoder.feed(head)

    async def next(self, source: ByteSource) -> list[bytes] | None:
        """Return records, which may be none yet; `None` at the object's end."""
        if self._left:
            records, self._left = self._left, []
            return records
        block = self._block
        if not block:
            wanted = self._decoder.wanted
            block = await source.receive(wanted or self._chunk_size)
            if not block:
                self._decoder.finish()
                return None
            if wanted <= LARGE_RECORD and len(block) <= LARGE_RECORD:
                records = self._decoder.feed(block)
                if self._chunk_size == CHUNK_SIZE and len(block) == CHUNK_SIZE > _LARGER_RECORDS * len(records):
                    self._chunk_size = 2 * CHUNK_SIZE
                return await self._with_buffered(source, records, len(block))
            self._block = block
        # Joining and checking a large record, or cutting a large block, is a worker thread's work.
        records = await self._feeding.take(self._decoder.feed, block)
        self._block = b""
        return records

    def place(self, error: FormatError) -> None:
        """Add to an error the member it is in: no member here."""

    async def _with_buffered(self, source: ByteSource, records: list[bytes], taken: int) -> list[bytes]:
        """Add records of what the source has in memory: a step through the layers above costs as much as a block."""
        decoder, most = self._decoder, LARGE_RECORD - FAR_CHUNK_SIZE
        try:
            while source.buffered and taken <= most and not decoder.wanted and decoder.error is None:
                block = await source.receive(FAR_CHUNK_SIZE)
                taken += len(block)
                records += decoder.feed(block)
        except BaseException:
            self._left = records
            raise
        return records


class InflatingFeed:
    """Feeds what a compressed object decompresses to, in a worker thread, to a decoder.

    Attributes:
        error: why the data does not decompress, once the records before that were returned.
        members: (record that begins a member, compressed byte of that member), for every member that begins with a
            record among those returned last, and the one before them.
    """

    def __init__(
        self, decoder: FrameDecoder, compression: Literal["GZIP", "ZLIB"], options: ReadOptions, position: Position
    ) -> None:
        """``position`` is where the object is read from, the beginning of a member."""
        self.error: FormatError | None = None
        self._start = position.offset
        self._records_before = position.record - position.skip
        self.members = [(self._records_before, self._start)]
        self._decoder = decoder
        self._in_members = compression == "GZIP"
        self._decompressor = Decompressor(compression)
        self._options = options
        self._inflating = ThreadedStep[tuple[list[bytes], bool]]()

    @property
    def waits(self) -> bool:
        """Whether a cancelled call left something to be taken."""
        return self._inflating.waits

    def push(self, head: bytes) -> None:
        """Take bytes that were read to detect the compression: too few to hold a record."""
        self._decompressor.feed(head)

    async def next(self, source: ByteSource) -> list[bytes] | None:
        """Return records, which may be none yet; `None` at the object's end."""
        records, wants_input = await self._inflating.take(self._inflate)
        if records or not wants_input or self._decoder.error is not None:
            return records
        block = await source.receive(self._options.chunk_size)
        if block:
            self._decompressor.feed(block)
            return []
        self._decompressor.finish()
        self._decoder.finish()
        return None

    def place(self, error: FormatError) -> None:
        """Add to an error the member it is in, by its byte of the object."""
        if self._in_members:
            member = self._decompressor.member_offset if error.member_offset is None else error.member_offset
            error.member_offset = self._start + member

    def _inflate(self) -> tuple[list[bytes], bool]:
        """Cut, in a worker thread, records from the decompressor's data, and return whether it has no more."""
        decompressor, decoder, inflate_bytes = self._decompressor, self._decoder, self._options.inflate_bytes
        records: list[bytes] = []
        produced = 0
        step = min(_INFLATE_STEP, inflate_bytes)
        del self.members[:-1]
        while decoder.error is None and (produced < inflate_bytes or (decoder.wanted and not records)):
            try:
                output = decompressor.read(min(decoder.wanted, _LARGE_STEP) or step)
            except FormatError as error:
                self.error = error  # after the records that came before it
                break
            if not output:
                return records, True
            produced += len(output)
            byte = self._start + decompressor.member_offset
            if decompressor.member_start == decoder.offset and byte > self.members[-1][1]:
                self.members.append((self._records_before + decoder.records, byte))
            records += decoder.feed(output)
        return records, False
