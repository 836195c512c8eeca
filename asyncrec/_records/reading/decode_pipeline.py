"""From a source's bytes to whole records: decompression in a worker thread, framing, and where an error stands.

It is pulled: one call reads as little as gives at least one record. A call that is cancelled loses nothing: a block
stays until it was fed, and what a thread made of it until it was given out.
"""

from __future__ import annotations

from typing import Literal

from anyio.lowlevel import checkpoint

from asyncrec._concurrency.tasks import ThreadedStep
from asyncrec._framing.compression import Decompressor
from asyncrec._framing.frames import FRAME_OVERHEAD, FrameDecoder
from asyncrec._records.position import Position
from asyncrec._records.record_size import LARGE_RECORD
from asyncrec.errors import FormatError
from asyncrec.storage._base import ByteSource

__all__ = ["CHUNK_SIZE", "INFLATE_BYTES", "Pipeline"]

# Blocks of 256 to 512 KiB read best, and parsing one of small records holds the loop for less than a millisecond.
CHUNK_SIZE = 256 << 10
# Of records larger than this on average twice as much is parsed in that time.
LARGER_RECORDS = 1 << 10

# What one hop to a worker thread decompresses at most, so that a bomb fills no memory: the next hop goes on.
INFLATE_BYTES = 4 << 20
# The size of its steps: large enough to cost nothing, small enough to stay in the processor's cache.
_INFLATE_STEP = 256 << 10


class Pipeline:
    """One pass over one object from ``start`` on.

    Attributes:
        records: given out or skipped so far, those before ``start`` included when they were told.
        offset: bytes of whole frames so far, decompressed, from the object's beginning.
        skip: so many records are read, checked and dropped first.
        members: of a compressed object: (record that begins a member, compressed byte of that member), for every
            member that begins with a record among those returned last, and the one before them.
    """

    def __init__(
        self,
        path: str,
        compression: Literal["", "GZIP", "ZLIB"],
        *,
        verify: bool,
        max_record_bytes: int,
        chunk_size: int,
        start: int = 0,
        records_before: int = 0,
        skip: int = 0,
        frame_bytes: int = 0,
        inflate_bytes: int = INFLATE_BYTES,
    ) -> None:
        self._path = path
        self._compression = compression
        self._decompressor = Decompressor(compression) if compression else None
        self._decoder = FrameDecoder(max_record_bytes=max_record_bytes, verify=verify)
        self._block = b""  # received, and not fed yet; of an uncompressed object
        self._feeding = ThreadedStep[list[bytes]]()
        self._inflating = ThreadedStep[tuple[list[bytes], bool]]()
        self._inflate_error: FormatError | None = None
        self._placed: FormatError | None = None
        self._chunk_size = chunk_size
        # With compression a start is a compressed byte, and offsets count what comes out behind it.
        self._start = 0 if compression else start
        self._stored_start = start
        self._records_before = records_before
        self._inflate_bytes = inflate_bytes
        self.skip = skip
        self._bytes_before = frame_bytes  # less what is skipped
        self.members = [(records_before, start)] if compression else []

    @property
    def records(self) -> int:
        return self._records_before + self._decoder.records

    @property
    def offset(self) -> int:
        return self._start + self._decoder.offset

    @property
    def frame_bytes(self) -> int:
        """Of the frames given out so far, and ``frame_bytes``."""
        return self._bytes_before + self._decoder.offset

    @property
    def position(self) -> Position:
        """From which on the records come that were not given out yet."""
        if not self.members:
            return Position(self.offset, self.skip, self.records + self.skip)
        # A record may begin in one member and end in another: from the last that begins with one.
        record, byte = self.members[-1]
        return Position(byte, self.records - record + self.skip, self.records + self.skip)

    def push(self, head: bytes) -> None:
        """Bytes that were taken from the source to look at: too few to hold a record."""
        if self._decompressor is not None:
            self._decompressor.feed(head)
        elif head:
            self._decoder.feed(head)

    def give_up(self) -> None:
        """After an error, when somebody else reads on: hold nothing of the record at fault, which is read again."""
        for _ in self._decoder.take_remains():
            pass

    async def next_records(self, source: ByteSource) -> list[bytes]:
        """At least one record, or none at the end.

        Raises:
            FormatError: damage; what came before it was given out.
        """
        # A source that has its bytes at hand never waits, and a reader in a loop would keep everybody else waiting.
        await checkpoint()
        try:
            while True:
                # What a cancelled call left comes before the error behind it.
                if not self._feeding.waits and not self._inflating.waits:
                    if self._decoder.error is not None:
                        self._decoder.finish()  # raises it
                    if self._inflate_error is not None:
                        raise self._inflate_error
                records = await (self._plain(source) if self._decompressor is None else self._inflated(source))
                if records is None:
                    return []
                if self.skip:
                    skipped = min(self.skip, len(records))
                    self.skip -= skipped
                    self._bytes_before -= sum(map(len, records[:skipped])) + FRAME_OVERHEAD * skipped
                    records = records[skipped:]
                if records:
                    return records
        except FormatError as error:
            self._place(error)
            raise

    async def _plain(self, source: ByteSource) -> list[bytes] | None:
        block = self._block
        if not block:
            wanted = self._decoder.wanted
            block = await source.receive(wanted or self._chunk_size)
            if not block:
                self._decoder.finish()
                return None
            if wanted <= LARGE_RECORD:
                records = self._decoder.feed(block)
                if self._chunk_size == CHUNK_SIZE and len(block) == CHUNK_SIZE > LARGER_RECORDS * len(records):
                    self._chunk_size = 2 * CHUNK_SIZE
                return records
            self._block = block
        # Joining and checking a large record is a worker thread's work.
        records = await self._feeding.take(self._decoder.feed, block)
        self._block = b""
        return records

    async def _inflated(self, source: ByteSource) -> list[bytes] | None:
        assert self._decompressor is not None, "only for compressed objects"
        records, wants_input = await self._inflating.take(self._inflate, self._decompressor)
        if records or not wants_input or self._decoder.error is not None:
            return records
        block = await source.receive(self._chunk_size)
        if block:
            self._decompressor.feed(block)
            return []
        self._decompressor.finish()
        self._decoder.finish()
        return None

    def _inflate(self, decompressor: Decompressor) -> tuple[list[bytes], bool]:
        """In a worker thread: records from what the decompressor holds, and whether it holds nothing more."""
        records: list[bytes] = []
        produced = 0
        step = min(_INFLATE_STEP, self._inflate_bytes)
        del self.members[:-1]
        while produced < self._inflate_bytes and self._decoder.error is None:
            try:
                output = decompressor.read(self._decoder.wanted or step)
            except FormatError as error:
                self._inflate_error = error  # after the records that came before it
                break
            if not output:
                return records, True
            produced += len(output)
            byte = self._stored_start + decompressor.member_offset
            if decompressor.member_start == self._decoder.offset and byte > self.members[-1][1]:
                self.members.append((self.records, byte))
            records += self._decoder.feed(output)
        return records, False

    def _place(self, error: FormatError) -> None:
        if error is self._placed:  # raised again, since who was to go on behind it was cancelled
            return
        self._placed = error
        error.path = self._path
        if error.record is None:
            error.record = self._decoder.records
        error.record += self._records_before
        if error.offset is None:
            error.offset = self._decoder.offset
        error.offset += self._start
        if self._compression == "GZIP" and self._decompressor is not None:
            member = self._decompressor.member_offset if error.member_offset is None else error.member_offset
            error.member_offset = self._stored_start + member
