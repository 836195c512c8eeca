"""Records <-> frames: the byte layout of a TFRecord file.

    u64le length | u32le masked CRC of the 8 length bytes | data | u32le masked CRC of the data

16 bytes around each record, no magic, no padding (TensorFlow, ``core/lib/io/record_writer.h``). `encode_frames` makes
frames of many records at once (see `asyncrec._framing.encoding`), `FrameDecoder` takes any split of the byte stream and
returns whole records. Both work on a batch at a time, in C if there is a compiler, and copy a small record once; a
large one is returned as the object in which it came.

A length is believed only if its checksum holds and it is within the limit; nothing is allocated for any other length.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from struct import Struct

from asyncrec._framing.borders import data_holds, frame_borders
from asyncrec._framing.crc import Buffer, masked_crc32c, masked_crc32c_of_lengths
from asyncrec._framing.damage import READ_ON, REPAIR
from asyncrec._framing.encoding import FOOTER_BYTES, FRAME_OVERHEAD, HEADER_BYTES, encode_frames
from asyncrec._native import native
from asyncrec._numpy import np
from asyncrec.errors import CorruptRecordError, FormatError, RecordTooLargeError, TruncatedError

__all__ = ["ANY_RECORD_BYTES", "FRAME_OVERHEAD", "HEADER_BYTES", "MAX_RECORD_BYTES", "FrameDecoder", "encode_frames"]

MAX_RECORD_BYTES = 256 * 2**20
"""The longest record that is written or read unless the caller raises it: above any document or image, below what
exhausts a worker. If a writer takes a larger one, its readers learn the length (`ShardEntry.max_record_bytes`)."""

ANY_RECORD_BYTES = 1 << 62
"""No limit: for what was written already, of which its checksums are believed."""

# Below this many records the fixed cost of NumPy (some 20 us) is more than what it saves.
_FEW = 32
# Pieces below this are gathered as they come, so that a stream in tiny pieces costs no object for each.
_TINY = 4096
# From here on a read of its own for the record is cheaper than a copy of it.
_READ_EXACTLY = 128 * 1024

_LENGTH = Struct("<Q")
_NEXT_LENGTH = Struct("<4xQ")  # behind the footer of the frame before
_HEADER = Struct("<QI")
_CRC = Struct("<I")


class FrameDecoder:
    """Takes a TFRecord byte stream in any pieces, and returns whole records.

    On damage `feed` still returns the whole records before it and keeps the error in `error`; the next `feed` or
    `finish` raises it. What was fed after the damage is dropped: the reader finds it again by `offset`.

    Args:
        max_record_bytes: a longer record is a `RecordTooLargeError`, before anything is allocated for it.
        verify: `False` leaves out the checksums of the data. Those of the lengths are always checked: they find frames.

    Attributes:
        offset: the byte of the stream at which the next frame begins: behind the last record returned.
        records: how many were returned. A reader that starts in the middle of a file sets both before the first `feed`.
        error: why there is no record at `offset`; `None` while all is well. The reader fills in its ``path``.
    """

    def __init__(self, *, max_record_bytes: int = MAX_RECORD_BYTES, verify: bool = True) -> None:
        self.offset = 0
        self.records = 0
        self.error: FormatError | None = None
        self._max_record_bytes = max_record_bytes
        self._verify = verify
        # The frame that is begun, part by part, so that it costs one copy however it was split.
        self._header = b""
        self._length: int | None = None  # once the header is whole and holds
        self._body: list[Buffer] = []
        self._missing = 0  # bytes of the body
        self._record: bytes | None = None  # the body once it is whole, and then its checksum
        self._checksum = 0
        self._footer = b""
        self._unread: Buffer = b""  # after an error: what was fed with the frame at fault, behind those parts

    @property
    def wanted(self) -> int:
        """How many bytes to feed next so that a large record is not copied; 0 if any block will do.

        After a header, this is exactly the record's length: `feed` returns an object of that length as the record. Then
        it is 16: the record's footer and the header of the next. A record that began inside a block is completed by its
        exact rest, with one copy. It is at most ``max_record_bytes``; a file may still end before.
        """
        if self._length is None or self._length < _READ_EXACTLY or self.error is not None:
            return 0
        return self._missing or FRAME_OVERHEAD - len(self._footer)

    def feed(self, data: bytes) -> list[bytes]:
        """Take the next bytes of the stream; return every record completed by now.

        Raises:
            FormatError: the damage that an earlier call met; see `error`.
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
        """Return, after an error, everything fed from `offset` on: at most a record and a block. For a salvager.

        In parts, once: each is given up when the next is asked for, so that a caller that joins them holds them once.
        """
        parts = deque((self._header, *self._body, self._record or b"", self._footer, self._unread))
        self._body = []
        self._record = None
        self._unread = b""
        while parts:
            yield parts.popleft()

    def finish(self) -> None:
        """Note that the stream has ended.

        Raises:
            TruncatedError: it ended inside a record. 1 to 11 bytes after the last record are inside a record, too;
                TensorFlow silently takes them for the end.
            FormatError: the damage that an earlier call met.
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
        """Append the frames that are whole in ``data``; return where the first other frame begins.

        Lengths are followed first and checked after, all together. A wrong length leads astray, but not out of
        ``data``, and costs no more than ``data`` itself; what follows it is thrown away. In C each frame is checked at
        once; what is left then is the first frame that is not whole or not good.
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
        """Return how many of the frames found from ``position`` on are good before one is not, and where they end."""
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
            words = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))  # the four bytes from each byte on
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
        """Keep the frame that begins in ``data`` and does not end there."""
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
        """Go on with the unfinished frame; return how much of ``data`` it took."""
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
        assert record is not None, "the body is whole"
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
        """Take what ``data`` holds of the body and the footer; return where that ends."""
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
                # A view pins its block until the record is whole: one block at each end of a record, no more.
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
        """Join the body and sum it up, with its last bytes: a call with a footer alone should not take long."""
        # Python releases the GIL only to join bytes; the other pieces are the ends of a large record.
        pieces = [piece if isinstance(piece, bytes) else bytes(piece) for piece in self._body]
        self._body = []
        record = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        if self._verify:
            self._checksum = masked_crc32c(record)
        return record

    def _believe(self, header: bytes) -> int | None:
        """Return the length in a header, or set `error` and return `None` if it cannot be believed."""
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
