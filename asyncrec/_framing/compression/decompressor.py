"""`Decompressor` turns the bytes of a compressed file into the byte stream, using bounded memory."""

from __future__ import annotations

import zlib
from collections import deque
from typing import Any

from asyncrec._framing.compression.engines import DEFLATE_ERRORS, decompressobj
from asyncrec._framing.damage import READ_ON, REPAIR
from asyncrec.errors import ArgumentValueError, CorruptRecordError, FormatError, TruncatedError

# On each call, both libraries copy the input that they could not use yet, so input is passed in slices to keep the
# total time linear. A fault loses the output of its entire slice, so slices are no larger than speed requires.
_SLICE = 32 * 1024


class SlicedInput:
    """Blocks of compressed bytes, fed one by one and returned in slices.

    Attributes:
        consumed: the number of bytes used.
    """

    def __init__(self, fault: int | None) -> None:
        """Prepare for input that has a known fault at byte ``fault`` or later, unless ``fault`` is `None`.

        Slices are single bytes for 32 KiB from there on, so that all data before the fault is decompressed.
        """
        self.consumed = 0
        self._fault = fault
        self._block = b""
        self._at = 0  # the position in the block
        self._blocks: deque[bytes] = deque()

    def feed(self, data: bytes) -> None:
        """Append the next block."""
        if data:
            self._blocks.append(data)

    def peek(self) -> memoryview:
        """Return the next slice, or an empty slice if all bytes have been used."""
        if self._at == len(self._block):
            self._block = self._blocks.popleft() if self._blocks else b""
            self._at = 0
        size = _SLICE
        if self._fault is not None and self.consumed < self._fault + _SLICE:
            size = min(self._fault - self.consumed, _SLICE) if self.consumed < self._fault else 1
        return memoryview(self._block)[self._at : self._at + size]

    def advance(self, count: int) -> None:
        """Mark ``count`` bytes of the slice as used."""
        self._at += count
        self.consumed += count


_HCRC, _EXTRA, _NAME, _COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
_FIXED_BYTES = 10


class GzipHeader:
    """Parses a GZIP member's header (RFC 1952 section 2.3), up to the member's data, without keeping its fields.

    isal's own parser loses its place if a header with optional fields is split between two calls, and a block may end
    anywhere. Headers are therefore parsed here, and the decompression library receives a short header instead.

    Attributes:
        ended: whether the header is complete, so that the data follows.
    """

    SHORT = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    """A header without optional fields, which can replace any header."""

    def __init__(self) -> None:
        self.ended = False
        self._crc = 0
        self._field = b""  # the bytes received so far of a field whose value is needed
        self._flags = 0
        self._parts = ["fixed"]  # the remaining parts
        self._missing = _FIXED_BYTES  # the number of bytes that the first part still lacks, if its length is known

    def feed(self, data: bytes) -> int:
        """Process the next bytes. Return the number of bytes that belong to the header.

        Raises:
            ValueError: the header is not valid; the message contains the reason.
        """
        at = 0
        while self._parts and at < len(data):
            part = self._parts[0]
            if part == "text":
                end = data.find(0, at) + 1
                piece = data[at : end or len(data)]
                whole = end > 0
            else:
                piece = data[at : at + self._missing]
                self._missing -= len(piece)
                whole = not self._missing
                if part != "extra":
                    self._field += piece
            if part == "checksum":
                if whole and int.from_bytes(self._field, "little") != self._crc & 0xFFFF:
                    raise FormatError("the header does not match its checksum")
            elif self._flags & _HCRC or part == "fixed":
                self._crc = zlib.crc32(piece, self._crc)
            at += len(piece)
            if whole:
                self._next(part)
        self.ended = not self._parts
        return at

    def _next(self, part: str) -> None:
        """Determine the part that follows ``part``, which is now complete."""
        field, self._field = self._field, b""
        del self._parts[0]
        if part == "fixed":
            if field[:3] != self.SHORT[:3]:
                raise FormatError("the header is not that of a GZIP member compressed with deflate")
            self._flags = field[3]
            if self._flags & _RESERVED:
                raise FormatError("the header has reserved flags set")
            if self._flags & _EXTRA:
                self._parts.append("length")
            self._parts += ["text"] * (bool(self._flags & _NAME) + bool(self._flags & _COMMENT))
            if self._flags & _HCRC:
                self._parts.append("checksum")
        elif part == "length" and (length := int.from_bytes(field, "little")):
            self._parts.insert(0, "extra")
            self._missing = length
            return
        self._missing = 2  # the size of a length or a checksum


# Most writers write a header without optional fields. It needs no parsing if it arrives in one piece.
_PLAIN_HEADER = GzipHeader.SHORT[:4]


class Decompressor:
    """A decompressor that returns the byte stream of a compressed file, in amounts chosen by the reader.

    Call `feed`, then call `read` until it returns ``b""``, and repeat; at the end of the file, call `finish`. An empty
    file is valid, and has no records, as in TensorFlow. After an error, every later `read` or `finish` raises it again.

    Args:
        type: ``"GZIP"`` or ``"ZLIB"``. A GZIP stream may begin at any member. Offsets count from the first byte fed.
        fault: if an earlier attempt to decompress the file failed, the value that `consumed` had then. From that offset
            on, 32 KiB of input are decompressed byte by byte, so that all data before the fault is returned.

    Attributes:
        member_offset: the compressed offset of the member that the last bytes returned belong to. After an error, the
            offset of the damaged member, of which no bytes may have been returned.
        member_start: the decompressed offset of this member.
        members_end: the compressed offset at which the last complete member, or the stream, ends; 0 if none has ended.
    """

    def __init__(self, type: str, *, fault: int | None = None) -> None:
        if type not in ("GZIP", "ZLIB"):
            raise ArgumentValueError(f'{type!r} is not a supported compression; expected "GZIP" or "ZLIB"')
        self.member_offset = 0
        self.member_start = 0
        self.members_end = 0
        self._type = type
        # The stream of the member being read; None between members, and until the header has been read.
        self._stream: Any = None
        self._header: GzipHeader | None = None  # the header being read, or None
        self._members = 0  # the number of members that have been read to the end
        self._began = (0, 0)  # the compressed and the decompressed offset of the current member
        self._input = SlicedInput(fault)
        self._made = 0  # the number of decompressed bytes
        self._pending = False  # the last read was full, so there may be more output without further input
        self._error: FormatError | None = None

    @property
    def consumed(self) -> int:
        """The number of compressed bytes used; after an error, the number used before the call that failed."""
        return self._input.consumed

    @property
    def between_members(self) -> bool:
        """Whether no member is being read."""
        return self._stream is None and self._header is None

    def feed(self, data: bytes) -> None:
        """Append the next bytes of the file. They are buffered, so call `read` until it returns ``b""`` first."""
        self._input.feed(data)

    def read(self, max_bytes: int) -> bytes:
        """Return up to ``max_bytes`` of the next bytes, all from the same member, or ``b""`` if more input is needed.

        Memory is bounded by ``max_bytes``, whatever the compression ratio.

        Raises:
            CorruptRecordError: the data cannot be decompressed (``part`` is ``"compression"``, and ``offset`` is the
                number of bytes read so far). The 32 KiB of input that contain the fault return no data, not even the
                data before the fault, unless ``fault`` was passed.
        """
        if max_bytes < 1:
            raise ArgumentValueError(
                f"max_bytes={max_bytes!r}: must be at least 1, because b'' means that input is needed"
            )
        if self._error is not None:
            raise self._error
        while self._stream is not None or self._next_member():
            piece = self._input.peek()
            if not piece and not self._pending:
                break
            try:
                data: bytes = self._stream.decompress(piece, max_bytes)
            except DEFLATE_ERRORS as error:
                raise self._corrupt(f"the {self._type} data cannot be decompressed ({error})", mends=True) from error
            ended: bool = self._stream.eof
            # At the end, zlib stores the remaining input in both attributes.
            self._input.advance(len(piece) - len(self._stream.unused_data if ended else self._stream.unconsumed_tail))
            self._pending = not ended and len(data) == max_bytes
            if ended:
                self._stream = None
                self._members += 1
                self.members_end = self.consumed
            if data:
                self._made += len(data)
                self.member_offset, self.member_start = self._began
                return data
        return b""

    def finish(self) -> None:
        """Mark the end of the file, once `read` has returned ``b""``.

        Raises:
            TruncatedError: the file ended inside a member or the stream.
            CorruptRecordError: an earlier call has found damage.
        """
        if self._error is not None:
            raise self._error
        if self.between_members:
            return
        self.member_offset, self.member_start = self._began
        where = (
            f"the {self._type} {'member' if self._type == 'GZIP' else 'stream'} that begins at byte {self._began[0]:,}"
        )
        self._error = TruncatedError(
            f"the file ends after {self.consumed:,} bytes, inside {where}; it was not written or copied completely",
            offset=self._made,
            member_offset=self._began[0] if self._type == "GZIP" else None,
        )
        raise self._error

    def _next_member(self) -> bool:
        """Begin the next member or stream. Return `False` if more input is needed."""
        while piece := self._input.peek():
            if self._header is not None:
                if self._pass_header(self._header, piece):
                    return True
                continue
            if self._members and self._type == "ZLIB":
                raise self._corrupt(
                    f"the ZLIB stream ends at byte {self.consumed:,}, but data follows it. TensorFlow would stop "
                    "here without an error; concatenated files must be GZIP, or be decompressed separately"
                )
            if self._members and piece[0] == 0:
                # The file was padded with zeros to a multiple of a block size. gzip accepts this too.
                self._input.advance(len(piece) - len(bytes(piece).lstrip(b"\0")))
                continue
            if self._type == "GZIP" and piece[0] != 0x1F:
                self._began = (self.consumed, self._made)  # the previous member is complete
                raise self._corrupt(
                    f"the GZIP member ends at byte {self.consumed:,}, but the data after it is not GZIP"
                    if self._members
                    else 'the file is not GZIP; open it with compression="auto", or with its actual compression',
                    mends=self._members > 0,
                )
            self._began = (self.consumed, self._made)
            self._pending = False
            plain = len(piece) >= len(GzipHeader.SHORT) and piece[: len(_PLAIN_HEADER)] == _PLAIN_HEADER
            if self._type == "GZIP" and not plain:
                self._header = GzipHeader()
                continue
            self._stream = decompressobj(self._type)
            return True
        return False

    def _pass_header(self, header: GzipHeader, piece: memoryview) -> bool:
        """Continue reading a header. Return whether it is complete, so that the member's data is next."""
        try:
            taken = header.feed(bytes(piece))
        except ValueError as error:
            raise self._corrupt(f"the GZIP data cannot be decompressed: {error}", mends=True) from None
        self._input.advance(taken)
        if header.ended:
            self._header = None
            self._stream = decompressobj(self._type)
            self._stream.decompress(GzipHeader.SHORT, 1)
        return header.ended

    def _corrupt(self, message: str, *, mends: bool = False) -> CorruptRecordError:
        """Store and return the error. With ``mends``, the error's remedy explains how to read the intact data."""
        self.member_offset, self.member_start = self._began
        self._error = CorruptRecordError(
            message,
            offset=self._made,
            member_offset=self._began[0] if self._type == "GZIP" else None,
            part="compression",
        )
        return self._error.with_remedy(READ_ON, command=REPAIR) if mends else self._error
