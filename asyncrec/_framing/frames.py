"""Records <-> frames: the byte layout of a TFRecord file.

    u64le length | u32le masked CRC of the 8 length bytes | data | u32le masked CRC of the data

A frame adds 16 bytes to its record, with no magic number and no padding (TensorFlow, ``core/lib/io/record_writer.h``).
`encode_frames` encodes many records at once (see `asyncrec._framing.encoding`). `FrameDecoder` accepts the byte stream
in pieces of any size, and returns complete records. Both process one batch at a time, in C if the C module was built,
and copy small records once. A large record is returned as the bytes object that was passed in, without a copy.

A length is trusted only if it matches its checksum and is within the limit. Otherwise, no memory is allocated for it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from struct import Struct

from asyncrec._framing.crc import Buffer, masked_crc32c, masked_crc32c_of_lengths
from asyncrec._framing.damage import READ_ON, REPAIR
from asyncrec._framing.encoding import (
    FOOTER_BYTES,
    FRAME_OVERHEAD,
    HEADER_BYTES,
    data_holds,
    encode_frames,
    frame_borders,
)
from asyncrec._native import native
from asyncrec._numpy import np
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError, TruncatedError

__all__ = ["ANY_RECORD_BYTES", "FRAME_OVERHEAD", "HEADER_BYTES", "MAX_RECORD_BYTES", "FrameDecoder", "encode_frames"]

MAX_RECORD_BYTES = 256 * 2**20
"""The default maximum length of a record that is written or read. It is larger than any document or image, but too
small to exhaust a worker's memory. If a writer accepts longer records, readers find their length in the manifest
(`ShardEntry.max_record_bytes`)."""

ANY_RECORD_BYTES = 1 << 62
"""No limit, for records that have already been written and whose checksums are trusted."""

# Below this many records, NumPy's fixed cost (about 20 us) outweighs the time it saves.
_FEW = 32
# Pieces smaller than this are joined as they arrive, so that tiny pieces are not all kept as separate objects.
_TINY = 4096
# For records of this size or more, a separate read is cheaper than a copy.
_READ_EXACTLY = 128 * 1024

_LENGTH = Struct("<Q")
_NEXT_LENGTH = Struct("<4xQ")  # skips the footer of the previous frame
_HEADER = Struct("<QI")
_CRC = Struct("<I")


class FrameDecoder:
    """A decoder that accepts a TFRecord byte stream in pieces of any size, and returns complete records.

    When `feed` reaches damage, it still returns the complete records before the damage, and sets `error`. The next
    `feed` or `finish` raises the error. Bytes fed after the damage are discarded; a reader can read them again from
    `offset`.

    Args:
        max_record_bytes: the maximum length of a record. A longer record causes a `RecordTooLargeError`, and no memory
            is allocated for it.
        verify: whether to check the checksums of the data. Checksums of lengths are always checked, because lengths
            locate frames.

    Attributes:
        offset: the offset of the next frame in the stream, which is the end of the last record returned.
        records: the number of records returned. A reader that starts in the middle of a file sets `offset` and
            `records` before the first `feed`.
        error: the error found at `offset`, or `None`. The reader sets the error's ``path``.
    """

    def __init__(self, *, max_record_bytes: int = MAX_RECORD_BYTES, verify: bool = True) -> None:
        self.offset = 0
        self.records = 0
        self.error: FormatError | None = None
        self._max_record_bytes = max_record_bytes
        self._verify = verify
        # The unfinished frame. It is kept in parts, so that its data is copied only once, however it was split.
        self._header = b""
        self._length: int | None = None  # set once the header is complete and matches its checksum
        self._body: list[Buffer] = []
        self._missing = 0  # the number of bytes of the body that have not been fed yet
        self._record: bytes | None = None  # the body once it is complete; its checksum is next
        self._checksum = 0
        self._footer = b""
        self._unread: Buffer = b""  # after an error: the unprocessed rest of the piece

    @property
    def wanted(self) -> int:
        """The number of bytes to feed next so that a large record is not copied; 0 if any block will do.

        After a header, this is exactly the record's length, and `feed` returns an object of that length as the record.
        After the record, it is 16, for the record's footer and the next header. For a record that began inside a block,
        it is the number of missing bytes, and the record is copied once. The value is at most ``max_record_bytes``, but
        the file may end earlier.
        """
        if self._length is None or self._length < _READ_EXACTLY or self.error is not None:
            return 0
        return self._missing or FRAME_OVERHEAD - len(self._footer)

    def feed(self, data: bytes) -> list[bytes]:
        """Process the next bytes of the stream. Return the records that are now complete.

        Raises:
            FormatError: an earlier call found damage; see `error`.
        """
        if self.error is not None:
            raise self.error
        records: list[bytes] = []
        position = 0
        if self._header:
            position = self._complete(data, records)
        if not self._header and self.error is None:
            position = self._walk(data, position, records)
            if self.error is None and position < len(data):
                self._begin(data, position)
                position += len(self._header)
        if self.error is not None:
            self._unread = memoryview(data)[position:]
        return records

    def take_remains(self) -> Iterator[Buffer]:
        """Yield, after an error, all bytes from `offset` on that have been fed: at most one record and one block.

        A salvager needs these bytes. They are yielded in parts, and only once. Each part is released when the next one
        is requested, so a caller that joins the parts never has two copies of all bytes in memory.
        """
        parts = deque((self._header, *self._body, self._record or b"", self._footer, self._unread))
        self._body = []
        self._record = None
        self._unread = b""
        while parts:
            yield parts.popleft()

    def finish(self) -> None:
        """Mark the end of the stream.

        Raises:
            TruncatedError: the stream ended inside a record, or 1 to 11 bytes after the last record, which TensorFlow
                silently ignores.
            FormatError: an earlier call found damage.
        """
        if self.error is not None:
            raise self.error
        if not self._header:
            return
        if self._length is None:
            there, promised = len(self._header), HEADER_BYTES
            what = f"inside a record's header: only {there} of its {promised} bytes are present"
        else:
            there = HEADER_BYTES + self._length - self._missing + len(self._footer)
            promised = self._length + FRAME_OVERHEAD
            what = f"inside a record: only {there:,} of the {promised:,} bytes that its header announces are present"
        self.error = TruncatedError(
            f"the file ends {what}; it was not written or copied completely. The {self.records:,} records before "
            "it are intact",
            offset=self.offset,
            record=self.records,
        )
        raise self.error

    def _walk(self, data: bytes, position: int, records: list[bytes]) -> int:
        """Append the records whose frames are complete in ``data``. Return the position of the first frame that is not.

        In Python, all frames are located by their lengths first, and checked together afterwards. A wrong length leads
        to wrong frames, but these lie within ``data`` and are discarded. In C, each frame is checked immediately, so
        the first frame that is left for Python is incomplete or damaged.
        """
        size = len(data)
        if native is not None:
            whole, before = len(records), position
            most = min(self._max_record_bytes, sys.maxsize)
            position = native.cut_frames(data, position, most, self._verify, records)
            self.offset += position - before
            self.records += len(records) - whole
        if size - position < FRAME_OVERHEAD:
            return position
        found: list[bytes] = []
        append = found.append
        unpack_next_length = _NEXT_LENGTH.unpack_from
        start = position + HEADER_BYTES
        end = start + _LENGTH.unpack_from(data, position)[0]
        last = size - FRAME_OVERHEAD
        while end <= last:
            append(data[start:end])
            start = end + FRAME_OVERHEAD
            end = start + unpack_next_length(data, end)[0]
        if end <= size - FOOTER_BYTES:
            append(data[start:end])
        if not found:
            return position

        good, position = self._count_good(data, position, found)
        if good == len(found):
            records += found
            return position
        records += found[:good]
        if self._believe(data[position : position + HEADER_BYTES]) is not None:
            self._data_is_bad()
        return position

    def _count_good(self, data: bytes, position: int, found: list[bytes]) -> tuple[int, int]:
        """Return the number of intact frames between ``position`` and the first damaged frame, and where they end."""
        begin, good = position, len(found)
        if good < _FEW:
            for index, record in enumerate(found):
                end = begin + len(record) + FRAME_OVERHEAD
                if (
                    masked_crc32c(data[begin : begin + 8]) != _CRC.unpack_from(data, begin + 8)[0]
                    or len(record) > self._max_record_bytes
                    or (self._verify and masked_crc32c(record) != _CRC.unpack_from(data, end - FOOTER_BYTES)[0])
                ):
                    good = index
                    break
                begin = end
        else:
            lengths, borders = frame_borders(found, position)
            words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the four bytes at each position
            bad = masked_crc32c_of_lengths(lengths.view(np.uint64)) != words[borders[:-1] + 8]
            bad |= lengths > self._max_record_bytes
            if self._verify:
                bad |= ~data_holds(data, found, borders)
            if bad.any():
                good = int(bad.argmax())
            begin = int(borders[good])
        self.offset += begin - position
        self.records += good
        return good, begin

    def _begin(self, data: bytes, position: int) -> None:
        """Keep the beginning of a frame that begins at ``position`` but does not end within ``data``."""
        self._header = data[position : position + HEADER_BYTES]
        if len(self._header) < HEADER_BYTES:
            return
        self._length = self._believe(self._header)
        if self._length is None:
            return
        start = position + HEADER_BYTES
        self._missing = self._length
        self._take(data, start)

    def _complete(self, data: bytes, records: list[bytes]) -> int:
        """Continue the unfinished frame. Return the number of bytes of ``data`` that belong to it."""
        position = 0
        if self._length is None:
            position = HEADER_BYTES - len(self._header)
            self._header += data[:position]
            if len(self._header) < HEADER_BYTES:
                return len(data)
            self._length = self._believe(self._header)
            if self._length is None:
                return position
            self._missing = self._length
        position = self._take(data, position)
        if self._missing or len(self._footer) < FOOTER_BYTES:
            return position
        record = self._record
        assert record is not None, "the record's data is complete"
        if self._verify and self._checksum != _CRC.unpack(self._footer)[0]:
            self._data_is_bad()
            return position
        self._record = None
        records.append(record)
        self.offset += len(record) + FRAME_OVERHEAD
        self.records += 1
        self._header = self._footer = b""
        self._length = None
        return position

    def _take(self, data: bytes, position: int) -> int:
        """Consume the bytes of the body and the footer in ``data``. Return the position after them."""
        if self._missing and position < len(data):
            end = min(position + self._missing, len(data))
            size = end - position
            if size < _TINY:
                gathered = self._body[-1] if self._body else None
                if not isinstance(gathered, bytearray):
                    gathered = bytearray()
                    self._body.append(gathered)
                gathered += data[position:end]
            else:
                # A view keeps its entire block alive until the record is complete. Only the first and the last block of
                # a record can contain other data too.
                self._body.append(data if size == len(data) else memoryview(data)[position:end])
            self._missing -= size
            position = end
        if not self._missing:
            if self._record is None:
                self._record = self._joined()
            rest = data[position : position + FOOTER_BYTES - len(self._footer)]
            self._footer += rest
            position += len(rest)
        return position

    def _joined(self) -> bytes:
        """Join the complete body. Compute its checksum now, so that a later call with only the footer is short."""
        # `join` releases the GIL only if all pieces are bytes. The other pieces are the ends of a large record.
        pieces = [piece if isinstance(piece, bytes) else bytes(piece) for piece in self._body]
        self._body = []
        record = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._verify:
            self._checksum = masked_crc32c(record)
        return record

    def _believe(self, header: bytes) -> int | None:
        """Return the length in a header, or set `error` and return `None` if the length cannot be trusted."""
        length, crc = _HEADER.unpack(header)
        if masked_crc32c(header[:8]) != crc:
            hint = (
                ""
                if self.records
                else "check that this is a TFRecord file and that its compression is correct. If so: "
            )
            self.error = CorruptRecordError(
                f"the record's length ({length:,}) does not match its checksum",
                offset=self.offset,
                record=self.records,
                part="length",
            ).with_remedy(hint + READ_ON, command=hint + REPAIR)
            return None
        if length > self._max_record_bytes:
            self.error = RecordTooLargeError(
                f"the record has {length:,} bytes, more than the limit of {self._max_record_bytes:,}; if such "
                "records are intended, pass a larger max_record_bytes",
                offset=self.offset,
                record=self.records,
                length=length,
                limit=self._max_record_bytes,
            )
            return None
        return int(length)

    def _data_is_bad(self) -> None:
        self.error = CorruptRecordError(
            "the record's data does not match its checksum", offset=self.offset, record=self.records, part="data"
        ).with_remedy(f"{READ_ON}; to read it as it is, pass verify=False", command=REPAIR)
