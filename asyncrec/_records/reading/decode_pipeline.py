"""`Pipeline` decodes a source's bytes into whole records, and reports where errors occur.

Each call reads only enough bytes to return at least one record. A cancelled call loses nothing.
"""

from __future__ import annotations

from typing import Literal

from anyio.lowlevel import checkpoint

from asyncrec._framing.frames import FrameDecoder
from asyncrec._records.position import Position
from asyncrec._records.reading.frame_feeds import InflatingFeed, PlainFeed
from asyncrec._records.reading.options import ReadOptions
from asyncrec._records.record_size import framed_size
from asyncrec.errors import FormatError
from asyncrec.storage._base import ByteSource


class Pipeline:
    """One pass over an object, from a position on.

    Attributes:
        skip: the number of records still to be read, checked and discarded first.
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
        """``frame_bytes``: the number of bytes of the frames returned before."""
        self._path = path
        self._decoder = FrameDecoder(max_record_bytes=options.max_record_bytes, verify=options.verify)
        self._feed: PlainFeed | InflatingFeed
        if compression:
            self._feed = InflatingFeed(self._decoder, compression, options, position)
        else:
            self._feed = PlainFeed(self._decoder, options.chunk_size)
        # With compression, a start is an offset in the compressed data; offsets count decompressed bytes from there.
        self._start = 0 if compression else position.offset
        self._records_before = position.record - position.skip
        self._bytes_before = frame_bytes  # minus the skipped frames
        self._placed: FormatError | None = None
        self.skip = position.skip

    @property
    def records(self) -> int:
        """The number of records returned or skipped so far, including those before the position."""
        return self._records_before + self._decoder.records

    @property
    def offset(self) -> int:
        """The number of bytes of whole frames so far, decompressed, from the object's beginning."""
        return self._start + self._decoder.offset

    @property
    def frame_bytes(self) -> int:
        """The number of bytes of the frames returned so far, including those before this pass."""
        return self._bytes_before + self._decoder.offset

    @property
    def members(self) -> list[tuple[int, int]]:
        """The members of a compressed object, as `InflatingFeed.members`; empty for an uncompressed one."""
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
        """Feed bytes that were read to detect the compression. They are too few to hold a record."""
        self._feed.push(head)

    def give_up(self) -> None:
        """Discard the record at fault after an error, because another pipeline will read it again."""
        for _ in self._decoder.take_remains():
            pass

    async def next_records(self, source: ByteSource) -> list[bytes]:
        """Return at least one record, or an empty list at the end.

        Raises:
            FormatError: there is damage. All records before it have been returned.
        """
        # A source that has its bytes in memory never waits, so a reader in a loop would hold up all other tasks.
        await checkpoint()
        feed = self._feed
        try:
            while True:
                # Results that a cancelled call left come before the error that follows them.
                if not feed.waits:
                    if self._decoder.error is not None:
                        self._decoder.finish()  # raises it
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
        if error is self._placed:  # raised again, because the caller that should have continued after it was cancelled
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
