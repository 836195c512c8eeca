"""`Pipeline` decodes a source's bytes into complete records, and adds positions to errors.

Each call reads only enough bytes to return at least one record. If a call is cancelled, nothing is lost: a block is
kept until it has been fed to the `FrameDecoder`, and the result of a worker thread is kept until a later call returns
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from anyio.lowlevel import checkpoint

from asyncrec._concurrency.tasks import ThreadedStep
from asyncrec._framing.compression import Decompressor
from asyncrec._framing.frames import MAX_RECORD_BYTES, FrameDecoder
from asyncrec._records.position import Position
from asyncrec._records.record_size import LARGE_RECORD, framed_size
from asyncrec.errors import FormatError
from asyncrec.storage._base import ByteSource

OnCorrupt = Literal["raise", "skip", "stop"]

# Blocks of 256 to 512 KiB are read fastest, and parsing a block of small records takes less than a millisecond.
CHUNK_SIZE = 256 << 10
# A remote store returns blocks of this size. Splitting them would require a copy.
FAR_CHUNK_SIZE = 2 * CHUNK_SIZE

# The maximum number of bytes that one thread call decompresses, so that a decompression bomb cannot fill the memory.
INFLATE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options for one pass over one object.

    Attributes:
        on_corrupt: how to react to damage.
        verify: whether to check the checksum of every record's data.
        max_record_bytes: the maximum length of a record. No memory is allocated for a longer one.
        chunk_size: the size of one read, in bytes.
        inflate_bytes: the approximate number of bytes in one list of records of a compressed object.
        boundaries: offsets of frames, ascending, for finding the next frame after damage in an uncompressed object.
        warns: whether to log once that damage is skipped. False if the caller reports it.
    """

    on_corrupt: OnCorrupt = "raise"
    verify: bool = True
    max_record_bytes: int = MAX_RECORD_BYTES
    chunk_size: int = CHUNK_SIZE
    inflate_bytes: int = INFLATE_BYTES
    boundaries: Sequence[int] = ()
    warns: bool = True


# If records are larger than this on average, twice as many bytes can be parsed in the same time.
_LARGER_RECORDS = 1 << 10

# Decompression chunk size: large enough that the per-chunk overhead is negligible, but small enough to fit in the CPU
# cache.
_INFLATE_STEP = 256 << 10
# The maximum chunk size within a large record. The libraries join the output of a chunk while holding the GIL.
_LARGE_STEP = 2 << 20


class PlainFeed:
    """The part of a `Pipeline` that feeds an uncompressed object's bytes to a decoder.

    Attributes:
        error, members: as in `InflatingFeed`, but always `None` and empty.
    """

    error: FormatError | None = None
    members: tuple[tuple[int, int], ...] = ()

    def __init__(self, decoder: FrameDecoder, chunk_size: int) -> None:
        self._decoder = decoder
        self._chunk_size = chunk_size
        self._block = b""  # received but not yet fed
        self._left: list[bytes] = []  # records that a cancelled call did not return
        self._feeding = ThreadedStep[list[bytes]]()

    @property
    def waits(self) -> bool:
        """Whether a cancelled call has left a result for the next call to return."""
        return bool(self._left) or self._feeding.waits

    def push(self, head: bytes) -> None:
        """Feed the bytes that were read to detect the compression. They are too few to contain a record."""
        if head:
            self._decoder.feed(head)

    async def next(self, source: ByteSource) -> list[bytes] | None:
        """Return the next records, possibly an empty list; `None` at the object's end."""
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
        # Joining and checking a large record, or splitting a large block, is done in a worker thread.
        records = await self._feeding.take(self._decoder.feed, block)
        self._block = b""
        return records

    def place(self, error: FormatError) -> None:
        """Do nothing, because an uncompressed object has no members."""

    async def _with_buffered(self, source: ByteSource, records: list[bytes], taken: int) -> list[bytes]:
        """Return the records, followed by those in the bytes that the source has already buffered.

        This saves another call through the layers above, which would take as long as decoding a block.
        """
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
    """The part of a `Pipeline` that decompresses an object's bytes and feeds them to a decoder, in a worker thread.

    Attributes:
        error: the error of decompression, to be raised once the records before it have been returned.
        members: pairs of (number of the record that begins a member, compressed offset of the member): one for the last
            member before the records that the last call returned, and one for each member that begins with one of those
            records.
    """

    def __init__(
        self, decoder: FrameDecoder, compression: Literal["GZIP", "ZLIB"], options: ReadOptions, position: Position
    ) -> None:
        """``position`` is the position at which reading starts. It must be the beginning of a member."""
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
        """Whether a cancelled call has left a result for the next call to return."""
        return self._inflating.waits

    def push(self, head: bytes) -> None:
        """Feed the bytes that were read to detect the compression. They are too few to contain a record."""
        self._decompressor.feed(head)

    async def next(self, source: ByteSource) -> list[bytes] | None:
        """Return the next records, possibly an empty list; `None` at the object's end."""
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
        """Set the error's ``member_offset`` to the offset of its member in the object."""
        if self._in_members:
            member = self._decompressor.member_offset if error.member_offset is None else error.member_offset
            error.member_offset = self._start + member

    def _inflate(self) -> tuple[list[bytes], bool]:
        """Decompress records, in a worker thread. Return them, and whether more input is needed."""
        decompressor, decoder, inflate_bytes = self._decompressor, self._decoder, self._options.inflate_bytes
        records: list[bytes] = []
        produced = 0
        step = min(_INFLATE_STEP, inflate_bytes)
        del self.members[:-1]
        while decoder.error is None and (produced < inflate_bytes or (decoder.wanted and not records)):
            try:
                output = decompressor.read(min(decoder.wanted, _LARGE_STEP) or step)
            except FormatError as error:
                self.error = error
                break
            if not output:
                return records, True
            produced += len(output)
            byte = self._start + decompressor.member_offset
            if decompressor.member_start == decoder.offset and byte > self.members[-1][1]:
                self.members.append((self._records_before + decoder.records, byte))
            records += decoder.feed(output)
        return records, False


class Pipeline:
    """One pass over an object from a position.

    Attributes:
        skip: the number of records that are still to be read, checked and discarded before any record is returned.
    """

    def __init__(
        self,
        path: str,
        compression: Literal["", "GZIP", "ZLIB"],
        options: ReadOptions,
        position: Position,
        *,
        frame_bytes: int = 0,
    ) -> None:
        """``frame_bytes`` is the total size of the frames that earlier pipelines have returned."""
        self._path = path
        self._decoder = FrameDecoder(max_record_bytes=options.max_record_bytes, verify=options.verify)
        self._feed: PlainFeed | InflatingFeed
        if compression:
            self._feed = InflatingFeed(self._decoder, compression, options, position)
        else:
            self._feed = PlainFeed(self._decoder, options.chunk_size)
        # In a compressed object, the position is an offset in the compressed data, but `offset` counts decompressed
        # bytes.
        self._start = 0 if compression else position.offset
        self._records_before = position.record - position.skip
        self._bytes_before = frame_bytes  # reduced later by the size of the skipped frames
        self._placed: FormatError | None = None
        self.skip = position.skip

    @property
    def records(self) -> int:
        """The number of records returned or skipped so far, including those before the position."""
        return self._records_before + self._decoder.records

    @property
    def offset(self) -> int:
        """The offset of the end of the last complete frame so far; in a compressed object, in decompressed bytes."""
        return self._start + self._decoder.offset

    @property
    def frame_bytes(self) -> int:
        """The total size of the frames returned so far, including those before this pass."""
        return self._bytes_before + self._decoder.offset

    @property
    def members(self) -> list[tuple[int, int]]:
        """The members of a compressed object, as in `InflatingFeed.members`; empty for an uncompressed object."""
        return list(self._feed.members)

    @property
    def position(self) -> Position:
        """The position of the first record not yet returned."""
        if not self._feed.members:
            return Position(self.offset, self.skip, self.records + self.skip)
        # A record may begin in one member and end in another, so start at the last member that begins with a record.
        record, byte = self._feed.members[-1]
        return Position(byte, self.records - record + self.skip, self.records + self.skip)

    def push(self, head: bytes) -> None:
        """Feed the bytes that were read to detect the compression. They are too few to contain a record."""
        self._feed.push(head)

    def give_up(self) -> None:
        """Discard the bytes kept after an error, because another pipeline will read them again."""
        for _ in self._decoder.take_remains():
            pass

    async def next_records(self, source: ByteSource) -> list[bytes]:
        """Return at least one record, or an empty list at the end.

        Raises:
            FormatError: the object is damaged. All records before the damage have been returned.
        """
        # A source that has its bytes in memory never waits. Without a checkpoint, a loop that reads would block all
        # other tasks.
        await checkpoint()
        feed = self._feed
        try:
            while True:
                # The result of a cancelled call is returned before the error that follows it.
                if not feed.waits:
                    if self._decoder.error is not None:
                        self._decoder.finish()  # raises the error
                    if feed.error is not None:
                        raise feed.error
                records = await feed.next(source)
                if records is None:
                    return []
                if self.skip:
                    skipped = min(self.skip, len(records))
                    self.skip -= skipped
                    self._bytes_before -= framed_size(list(map(len, records[:skipped])))
                    records = records[skipped:]
                if records:
                    return records
        except FormatError as error:
            self._place(error)
            raise

    def _place(self, error: FormatError) -> None:
        if error is self._placed:  # raised again, because the call that should have handled the error was cancelled
            return
        self._placed = error
        error.path = self._path
        if error.record is None:
            error.record = self._decoder.records
        error.record += self._records_before
        if error.offset is None:
            error.offset = self._decoder.offset
        error.offset += self._start
        self._feed.place(error)
