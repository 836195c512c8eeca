"""A `Decompressor` turns the bytes of a compressed file into the byte stream, in bounded memory."""

from __future__ import annotations

from collections import deque
from typing import Any

from asyncrec._framing.compression.engines import DEFLATE_ERRORS, decompressobj
from asyncrec._framing.compression.gzip_header import GzipHeader
from asyncrec._framing.damage import READ_ON, REPAIR
from asyncrec.errors import ArgumentValueError, CorruptRecordError, FormatError, TruncatedError

# Both libraries copy the input they could not yet use at each call; in slices that cost stays linear.
# A fault takes the output of its slice along, so they are not larger than speed asks for.
_SLICE = 32 * 1024


class SlicedInput:
    """Blocks of compressed bytes, fed to it and returned in slices.

    Attributes:
        consumed: how many bytes were used.
    """

    def __init__(self, fault: int | None) -> None:
        """``fault``: the byte from which on slices are single bytes, so that what is before the fault comes out."""
        self.consumed = 0
        self._fault = fault
        self._block = b""
        self._at = 0  # in the block
        self._blocks: deque[bytes] = deque()

    def feed(self, data: bytes) -> None:
        """Take the next block."""
        if data:
            self._blocks.append(data)

    def peek(self) -> memoryview:
        """Return the next slice; it is empty when everything was used."""
        if self._at == len(self._block):
            self._block = self._blocks.popleft() if self._blocks else b""
            self._at = 0
        size = _SLICE
        if self._fault is not None and self.consumed < self._fault + _SLICE:
            size = min(self._fault - self.consumed, _SLICE) if self.consumed < self._fault else 1
        return memoryview(self._block)[self._at : self._at + size]

    def advance(self, count: int) -> None:
        """Move on by ``count`` bytes of the slice, which were used."""
        self._at += count
        self.consumed += count


# A header without optional fields, as most writers make it, needs no reading if it came in one piece.
_PLAIN_HEADER = GzipHeader.SHORT[:4]


class Decompressor:
    """Takes the bytes of a compressed file, and returns the byte stream, as much at a time as the reader asks for.

    `feed`, then `read` until it returns ``b""``, then `feed` again; at the end `finish`. A file of no bytes at all
    holds no records, as TensorFlow has it. After an error each further `read` or `finish` raises the same.

    Args:
        type: ``"GZIP"`` or ``"ZLIB"``. A GZIP stream may begin at any member: positions count from what is fed.
        fault: `consumed` as it was when decompression failed before. From there on it goes byte by byte for 32 KiB, so
            that what is before the fault comes out.

    Attributes:
        member_offset: the compressed byte, counted from the first one fed, at which the member begins that the last
            bytes read belong to; after an error, the member at fault, which may have given no bytes.
        member_start: the decompressed byte at which that member begins.
        members_end: the compressed byte at which the last whole member, or the stream, ends; 0 before the first.
    """

    def __init__(self, type: str, *, fault: int | None = None) -> None:
        if type not in ("GZIP", "ZLIB"):
            raise ArgumentValueError(f'{type!r} is not a supported compression; expected "GZIP" or "ZLIB"')
        self.member_offset = 0
        self.member_start = 0
        self.members_end = 0
        self._type = type
        self._stream: Any = None  # of the member being read; None between members, and until its header was read
        self._header: GzipHeader | None = None  # of the member that begins, while it is being read
        self._members = 0  # read to their end
        self._began = (0, 0)  # compressed and decompressed byte at which the current member begins
        self._input = SlicedInput(fault)
        self._made = 0  # decompressed bytes, in all
        self._pending = False  # the last read was full: the stream may hold more output without further input
        self._error: FormatError | None = None

    @property
    def consumed(self) -> int:
        """How many compressed bytes were used; after an error, those used before the call that failed."""
        return self._input.consumed

    @property
    def between_members(self) -> bool:
        """Whether what was read last was the end of its member."""
        return self._stream is None and self._header is None

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the file. They are kept until read; so feed no more before ``b""`` comes."""
        self._input.feed(data)

    def read(self, max_bytes: int) -> bytes:
        """Return the next bytes, at most ``max_bytes`` and of one member only; ``b""`` when it needs more input.

        Memory is bounded by ``max_bytes``, whatever the ratio.

        Raises:
            CorruptRecordError: the data does not decompress (``part`` is ``"compression"``, ``offset`` the bytes read
                so far). Of the faulty call's own 32 KiB of input nothing comes out, even before the fault, unless
                it was given as ``fault``.
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
            # At the end zlib leaves the rest in both attributes.
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
        """Note that the file has ended, once `read` has returned ``b""``.

        Raises:
            TruncatedError: inside a member or the stream.
            CorruptRecordError: the damage that an earlier call met.
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
        """Begin the next member or stream; `False` if that takes more input."""
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
                # Padding to a block's length, which gzip accepts.
                self._input.advance(len(piece) - len(bytes(piece).lstrip(b"\0")))
                continue
            if self._type == "GZIP" and piece[0] != 0x1F:
                self._began = (self.consumed, self._made)  # the one before is whole
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
        """Read on in a header; return whether it has ended, and the member's data is next."""
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
        """Return the error; ``mends``: the intact data before it can be read."""
        self.member_offset, self.member_start = self._began
        self._error = CorruptRecordError(
            message,
            offset=self._made,
            member_offset=self._began[0] if self._type == "GZIP" else None,
            part="compression",
        )
        return self._error.with_remedy(READ_ON, command=REPAIR) if mends else self._error
