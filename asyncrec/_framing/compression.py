"""The byte stream of a TFRecord file <-> GZIP or ZLIB, as TensorFlow reads and writes it.

GZIP (RFC 1952) is written in independent members, a new one about every 4 MiB at a record's beginning: stock readers
read members through to the end, and each can be decompressed alone, for random access and for salvage. ZLIB (RFC 1950)
is one stream, because TensorFlow stops silently after the first. Nothing in the output depends on the clock.

The work is done by isal (igzip), whose level 2 reaches zlib's usual ratio at some eight times its speed and writes what
any inflater reads. What isal lacks goes to zlib: the levels 0 and 4 to 9, memory levels and strategies; and everything
where isal cannot be imported. Both give up the GIL: a `Compressor` or `Decompressor` is made for worker threads, by one
at a time.
"""

from __future__ import annotations

import operator
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from asyncrec._framing.crc import Buffer, masked_crc32c
from asyncrec._framing.damage import READ_ON
from asyncrec._framing.gzip_header import GzipHeader
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, CorruptRecordError, FormatError, TruncatedError

try:
    from isal import isal_zlib

    _isal: Any = isal_zlib
except ImportError:  # no build of it for this platform
    _isal = None

__all__ = [
    "CompressionOptions",
    "CompressionType",
    "Compressor",
    "Decompressor",
    "detect_compression",
    "make_compressor",
    "parse_compression",
]

CompressionType = Literal["", "GZIP", "ZLIB"]

_TYPES = ("", "ZLIB", "GZIP")  # in the order of TensorFlow's TFRecordCompressionType: 0, 1, 2
_ISAL_LEVELS = (1, 2, 3)  # isal also has a 0, but it compresses; zlib's 0 stores, and that is what 0 is asked for
_ISAL_DEFAULT = 2
_TENSORFLOW_MEM_LEVEL = 9
_GZIP = 16  # added to the window bits, it asks zlib for the GZIP container

# A large buffer goes through in pieces of this, so that one call's output is no second copy of a large record.
_PIECE = 1 << 20
# Both libraries copy the input they could not yet use at each call; in slices that cost stays linear.
# A fault takes the output of its slice along, so they are not larger than speed asks for.
_SLICE = 32 * 1024

# A header without optional fields, as most writers make it, needs no reading where it came in one piece.
_PLAIN_HEADER = GzipHeader.SHORT[:4]

_ERRORS: tuple[type[Exception], ...] = (zlib.error,) if _isal is None else (zlib.error, _isal.error)


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionOptions:
    """How to compress. Only ``type`` matters to readers of the file; the rest weighs time against size.

    Attributes:
        type: ``""`` (none), ``"GZIP"`` or ``"ZLIB"``.
        level: 0 (stored) to 9. `None`, or -1 as zlib has it, is isal's level 2. 1 to 3 are isal's; the others zlib's.
        window_bits: 9 to 15, the base-two logarithm of the window; `None` is 15.
        mem_level: 1 to 9, zlib's memory for the compressor's state; `None` is isal's own, and 9 with zlib, as in
            TensorFlow.
        strategy: 0 to 4, zlib's ``Z_DEFAULT_STRATEGY`` to ``Z_FIXED``. To give ``mem_level`` or ``strategy`` is to ask
            for zlib.
        member_bytes: GZIP only: a member that has had so much input is ended before the next record. 4 MiB costs
            nothing measurable in size, and is little to decompress for one record.

    Raises:
        ValueError: a value out of its range, or one that has no meaning without compression.
    """

    type: CompressionType = ""
    level: int | None = None
    window_bits: int | None = None
    mem_level: int | None = None
    strategy: int | None = None
    member_bytes: int = 4 * 2**20

    def __post_init__(self) -> None:
        if self.type not in _TYPES:
            raise ArgumentValueError(_not_a_type(self.type))
        for name, low, high in (("level", -1, 9), ("window_bits", 9, 15), ("mem_level", 1, 9), ("strategy", 0, 4)):
            value = getattr(self, name)
            if value is None:
                continue
            if self.type == "":
                raise ArgumentValueError(
                    f'{name}={value!r} has no meaning without compression: give type="GZIP" or "ZLIB"'
                )
            if not low <= value <= high:
                raise ArgumentValueError(f"{name}={value!r}: expected {low} to {high}, or None for the default")
        if self.member_bytes < 1:
            raise ArgumentValueError(f"member_bytes={self.member_bytes!r}: a member holds at least one byte")


def parse_compression(value: object) -> CompressionOptions:
    """What a user passed as ``compression=`` to a writer.

    Accepts ``""``, `None`, ``"GZIP"``, ``"ZLIB"``; 0 (none), 1 (ZLIB), 2 (GZIP) and enums of them, as
    TensorFlow's ``TFRecordCompressionType``; `CompressionOptions`; and an object shaped like its ``TFRecordOptions``.

    Raises:
        ValueError: not a compression, ``"auto"``, which is for reading alone, or an option that has no meaning here.
        TypeError: nothing of the kind.
    """
    if isinstance(value, CompressionOptions):
        return value
    if hasattr(value, "compression_type"):
        return _from_tensorflow(value)
    return CompressionOptions(type=_type_of(value))


def detect_compression(head: bytes) -> CompressionType:
    """How a file is compressed, from its first 12 bytes or more (fewer only if it has no more).

    Plain when the first length and its checksum agree, for that is no accident; else by the magic of GZIP or the
    header of ZLIB. What is none of them counts as plain, and the decoder then says what is wrong with it.
    """
    if len(head) >= 12 and masked_crc32c(head[:8]) == int.from_bytes(head[8:12], "little"):
        return ""
    if head[:3] == b"\x1f\x8b\x08":
        return "GZIP"
    if len(head) >= 2:
        # RFC 1950: deflate, a window of at most 32 KiB, no preset dictionary, and a check over both bytes.
        method, flags = head[0], head[1]
        if method & 0x0F == 8 and method >> 4 <= 7 and not flags & 0x20 and (method << 8 | flags) % 31 == 0:
            return "ZLIB"
    return ""


class Compressor(ABC):
    """Frames in, the bytes of the file out. Used by one thread at a time.

    Attributes:
        member_offset: the compressed byte at which the member begins that holds the data of the last `compress`. 0 for
            ZLIB, which is one stream, and without compression.
        member_input: bytes given to that member so far, those of the last `compress` among them.
        total_out: bytes returned so far, by all methods.
    """

    member_offset: int = 0
    member_input: int = 0
    total_out: int = 0

    @abstractmethod
    def compress(self, buffers: Sequence[Buffer]) -> list[bytes]:
        """Take whole frames; return what is ready, which may be nothing. Members are begun here alone."""

    @abstractmethod
    def flush(self) -> bytes:
        """What is missing for a reader to decompress everything given so far. Costs ratio; the member goes on."""

    @abstractmethod
    def finish(self) -> bytes:
        """The end of the file. Once, and last. An empty GZIP file is one empty member, as TensorFlow writes it."""


def make_compressor(options: CompressionOptions) -> Compressor:
    """A `Compressor` for one file."""
    return _Deflating(options) if options.type else _Plain()


class _Plain(Compressor):
    def compress(self, buffers: Sequence[Buffer]) -> list[bytes]:
        size = sum(map(len, buffers))
        self.member_input += size
        self.total_out += size
        return [bytes(buffer) for buffer in buffers]  # bytes stay the object they are; only joined runs are copied

    def flush(self) -> bytes:
        return b""

    def finish(self) -> bytes:
        return b""


class _Deflating(Compressor):
    """GZIP in members, or the one stream of ZLIB: a member that never has enough."""

    def __init__(self, options: CompressionOptions) -> None:
        self._options = options
        self._limit = options.member_bytes if options.type == "GZIP" else None
        self._stream = _begin(options)
        self._flushed = True  # there is nothing a reader could not have

    def compress(self, buffers: Sequence[Buffer]) -> list[bytes]:
        if not any(map(len, buffers)):
            return []
        ready: list[bytes] = []
        if self._limit is not None and self.member_input >= self._limit:
            end = self._stream.flush(zlib.Z_FINISH)
            ready.append(end)
            self.member_offset = self.total_out + len(end)
            self.member_input = 0
            self._stream = _begin(self._options)
        for buffer in buffers:
            self.member_input += len(buffer)
            if len(buffer) <= _PIECE:
                ready.append(self._stream.compress(buffer))
                continue
            view = memoryview(buffer)
            ready += [self._stream.compress(view[at : at + _PIECE]) for at in range(0, len(view), _PIECE)]
        ready = [piece for piece in ready if piece]
        self._flushed = False
        self.total_out += sum(map(len, ready))
        return ready

    def flush(self) -> bytes:
        # A second sync flush would add an empty block each time.
        if self._flushed:
            return b""
        self._flushed = True
        return self._count(self._stream.flush(zlib.Z_SYNC_FLUSH))

    def finish(self) -> bytes:
        return self._count(self._stream.flush(zlib.Z_FINISH))

    def _count(self, data: bytes) -> bytes:
        self.total_out += len(data)
        return data


class Decompressor:
    """The bytes of a compressed file in, the byte stream out, as much at a time as the reader asks for.

    `feed`, then `read` until it returns ``b""``, then `feed` again; at the end `finish`. A file of no bytes at all
    holds no records, as TensorFlow has it. After an error each further `read` or `finish` raises the same.

    Args:
        type: ``"GZIP"`` or ``"ZLIB"``. A GZIP stream may begin at any member: positions count from what is fed.
        fault: `consumed` as it was when decompression failed before. From there on it goes byte by byte for 32 KiB, so
            that what is before the fault comes out.

    Attributes:
        consumed: compressed bytes used; after an error, those before the call that failed.
        member_offset: the compressed byte, counted from the first one fed, at which the member begins that the last
            bytes read belong to; after an error, the member at fault, which may have given no bytes.
        member_start: the decompressed byte at which that member begins.
        members_end: the compressed byte at which the last whole member, or the stream, ends; 0 before the first.
    """

    def __init__(self, type: str, *, fault: int | None = None) -> None:
        if type not in ("GZIP", "ZLIB"):
            raise ArgumentValueError(f'{type!r} is not decompressed: expected "GZIP" or "ZLIB"')
        self.member_offset = 0
        self.member_start = 0
        self.members_end = 0
        self._type = type
        self._stream: Any = None  # of the member being read; None between members, and until its header was read
        self._header: GzipHeader | None = None  # of the member that begins, while it is being read
        self._members = 0  # read to their end
        self._began = (0, 0)  # compressed and decompressed byte at which the current member begins
        self._block = b""
        self._at = 0  # in the block
        self._blocks: deque[bytes] = deque()
        self.consumed = 0
        self._fault = fault
        self._made = 0  # decompressed bytes, in all
        self._pending = False  # the last read was full: the stream may hold more output without further input
        self._error: FormatError | None = None

    @property
    def between_members(self) -> bool:
        """Whether what was read last was the end of its member."""
        return self._stream is None and self._header is None

    def feed(self, data: bytes) -> None:
        """Give it the next bytes of the file. They are kept until read; so feed no more before ``b""`` comes."""
        if data:
            self._blocks.append(data)

    def read(self, max_bytes: int) -> bytes:
        """The next bytes, at most ``max_bytes`` and of one member only; ``b""`` when it needs more input.

        Memory is bounded by ``max_bytes``, whatever the ratio.

        Raises:
            CorruptRecordError: the data does not decompress (``part`` is ``"compression"``, ``offset`` the bytes read
                so far). Of the faulty call's own 32 KiB of input nothing comes out, even before the fault, unless
                it was told of it.
        """
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes={max_bytes!r}: at least 1, for b'' means that input is needed")
        if self._error is not None:
            raise self._error
        while self._stream is not None or self._next_member():
            piece = self._peek()
            if not piece and not self._pending:
                break
            try:
                data: bytes = self._stream.decompress(piece, max_bytes)
            except _ERRORS as error:
                raise self._corrupt(f"the {self._type} data does not decompress ({error}); {READ_ON}") from error
            ended: bool = self._stream.eof
            # At the end zlib leaves the rest in both attributes.
            self._advance(len(piece) - len(self._stream.unused_data if ended else self._stream.unconsumed_tail))
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
        """Say that the file has ended; once `read` has returned ``b""``.

        Raises:
            TruncatedError: inside a member or the stream.
            CorruptRecordError: the damage an earlier call met.
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
            f"the file ends after {self.consumed:,} bytes, inside {where}; "
            "it was not written to its end, or not copied whole",
            offset=self._made,
            member_offset=self._began[0] if self._type == "GZIP" else None,
        )
        raise self._error

    def _next_member(self) -> bool:
        """Begin the member, or stream, that comes next; `False` when there is no input to tell."""
        while piece := self._peek():
            if self._header is not None:
                if self._pass_header(self._header, piece):
                    return True
                continue
            if self._members and self._type == "ZLIB":
                raise self._corrupt(
                    f"the ZLIB stream ends at byte {self.consumed:,}, and data follows it. TensorFlow would stop here "
                    "without a word; concatenated files must be GZIP, or be decompressed apart"
                )
            if self._members and piece[0] == 0:
                # Padding to a block's length, which gzip accepts.
                self._advance(len(piece) - len(bytes(piece).lstrip(b"\0")))
                continue
            if self._type == "GZIP" and piece[0] != 0x1F:
                raise self._corrupt(
                    f"what follows the GZIP member that ends at byte {self.consumed:,} is no GZIP; {READ_ON}"
                    if self._members
                    else 'this is no GZIP; open it with compression="auto", or the right one'
                )
            self._began = (self.consumed, self._made)
            self._pending = False
            plain = len(piece) >= len(GzipHeader.SHORT) and piece[: len(_PLAIN_HEADER)] == _PLAIN_HEADER
            if self._type == "GZIP" and not plain:
                self._header = GzipHeader()
                continue
            self._stream = self._decompressobj()
            return True
        return False

    def _pass_header(self, header: GzipHeader, piece: memoryview) -> bool:
        """Read on in a header; whether it has ended, and the member's data is next."""
        try:
            taken = header.feed(bytes(piece))
        except ValueError as error:
            raise self._corrupt(f"the GZIP data does not decompress: {error}; {READ_ON}") from None
        self._advance(taken)
        if header.ended:
            self._header = None
            self._stream = self._decompressobj()
            self._stream.decompress(GzipHeader.SHORT, 1)
        return header.ended

    def _decompressobj(self) -> Any:
        return (_isal or zlib).decompressobj(zlib.MAX_WBITS + (_GZIP if self._type == "GZIP" else 0))

    def _peek(self) -> memoryview:
        if self._at == len(self._block):
            self._block = self._blocks.popleft() if self._blocks else b""
            self._at = 0
        size = _SLICE
        if self._fault is not None and self.consumed < self._fault + _SLICE:
            size = min(self._fault - self.consumed, _SLICE) if self.consumed < self._fault else 1
        return memoryview(self._block)[self._at : self._at + size]

    def _advance(self, count: int) -> None:
        self._at += count
        self.consumed += count

    def _corrupt(self, message: str) -> CorruptRecordError:
        self.member_offset, self.member_start = self._began
        self._error = CorruptRecordError(
            message,
            offset=self._made,
            member_offset=self._began[0] if self._type == "GZIP" else None,
            part="compression",
        )
        return self._error


def _begin(options: CompressionOptions) -> Any:
    """A compressor of isal's or zlib's for one member or stream."""
    window = (options.window_bits or zlib.MAX_WBITS) + (_GZIP if options.type == "GZIP" else 0)
    default = options.level is None or options.level == -1
    plain = options.mem_level is None and options.strategy is None
    if _isal is not None and plain and (default or options.level in _ISAL_LEVELS):
        return _isal.compressobj(_ISAL_DEFAULT if default else options.level, zlib.DEFLATED, window)
    return zlib.compressobj(
        -1 if options.level is None else options.level,
        zlib.DEFLATED,
        window,
        options.mem_level or _TENSORFLOW_MEM_LEVEL,
        options.strategy or zlib.Z_DEFAULT_STRATEGY,
    )


def _type_of(value: object) -> CompressionType:
    if value is None:
        return ""
    value = getattr(value, "value", value)  # of an enum
    if isinstance(value, str):
        if value not in _TYPES:
            raise ArgumentValueError(_not_a_type(value))
        return cast(CompressionType, value)
    try:
        number = operator.index(cast(Any, value))
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ArgumentTypeError(f'compression={value!r}: expected "", "GZIP", "ZLIB" or CompressionOptions')
    if not 0 <= number < len(_TYPES):
        raise ArgumentValueError(_not_a_type(number))
    return cast(CompressionType, _TYPES[number])


def _not_a_type(value: object) -> str:
    if value == "auto":
        return 'compression="auto" is for reading; a writer has nothing to detect: give "", "GZIP" or "ZLIB"'
    known = next((known for known in _TYPES if isinstance(value, str) and known == value.strip().upper()), None)
    hint = f'write it as "{known}"' if known is not None else 'expected "", "GZIP" or "ZLIB" (TensorFlow\'s 0, 2 or 1)'
    return f"compression={value!r}: {hint}"


_MEANINGLESS = {
    "flush_mode": "flush() is always a sync flush: it makes readable what was written, and that is what it is for",
    "input_buffer_size": "records are compressed in the batches they are written in",
    "output_buffer_size": "the storage says how many bytes it takes at a time (chunk_size)",
}


def _from_tensorflow(options: object) -> CompressionOptions:
    """TensorFlow's ``TFRecordOptions``, read by its attributes; each is `None` where the user did not set it."""
    given = {name: getattr(options, name, None) for name in (*_MEANINGLESS, "compression_method")}
    for name, reason in _MEANINGLESS.items():
        if given[name] is not None:
            raise ArgumentValueError(f"{name}={given[name]!r} has no meaning here, leave it out: {reason}")
    if given["compression_method"] not in (None, zlib.DEFLATED):
        raise ArgumentValueError(
            f"compression_method={given['compression_method']!r}: GZIP and ZLIB know only {zlib.DEFLATED}, deflate"
        )
    compression = _type_of(getattr(options, "compression_type", None))
    window_bits: int | None = getattr(options, "window_bits", None)
    if compression == "GZIP" and window_bits is not None and window_bits > zlib.MAX_WBITS:
        window_bits -= _GZIP  # TensorFlow hands the number to zlib, where 25 to 31 are 9 to 15 in a GZIP container
    return CompressionOptions(
        type=compression,
        level=getattr(options, "compression_level", None),
        window_bits=window_bits,
        mem_level=getattr(options, "mem_level", None),
        strategy=getattr(options, "compression_strategy", None),
    )
