"""`CompressionOptions`, the values that users may pass instead, and detection of a file's compression."""

from __future__ import annotations

import operator
import zlib
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

from asyncrec._framing.crc import masked_crc32c
from asyncrec.errors import ArgumentTypeError, ArgumentValueError

CompressionType = Literal["", "GZIP", "ZLIB"]
ReadingType = Literal["auto", "", "GZIP", "ZLIB"]
# The names that type checkers accept; `parse_compression` accepts any case.
_Names = Literal["", "none", "GZIP", "gzip", "ZLIB", "zlib"]

# Added to the window bits, this selects zlib's GZIP container.
GZIP_CONTAINER = 16

_TYPES = ("", "ZLIB", "GZIP")  # in the order of TensorFlow's TFRecordCompressionType: 0, 1, 2


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressionOptions:
    """Compression settings. Readers need only ``type``; the other options trade time for size.

    Attributes:
        type: ``""`` (none), ``"GZIP"`` or ``"ZLIB"``.
        level: 0 (stored) to 9. `None` and -1 mean isal's level 2. Levels 1 to 3 use isal, and the others use zlib.
        window_bits: 9 to 15, the base-two logarithm of the window; `None` means 15.
        mem_level: 1 to 9, zlib's memory for the compressor's state; `None` means isal's own, and 9 with zlib, as in
            TensorFlow.
        strategy: 0 to 4, zlib's ``Z_DEFAULT_STRATEGY`` to ``Z_FIXED``. Setting ``mem_level`` or ``strategy`` selects
            zlib.
        member_bytes: for GZIP, the number of bytes of input after which a member ends before the next record. The
            default, 4 MiB, does not measurably increase the size, and is fast to decompress for a single record.

    Raises:
        ValueError: a value is out of range, or has no meaning without compression.
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
                raise ArgumentValueError(f'{name}={value!r} requires compression; pass type="GZIP" or type="ZLIB"')
            if not low <= value <= high:
                raise ArgumentValueError(f"{name}={value!r}: expected {low} to {high}, or None for the default")
        if self.member_bytes < 1:
            raise ArgumentValueError(f"member_bytes={self.member_bytes!r}: must be at least 1")


Compression: TypeAlias = _Names | int | CompressionOptions | None
"""Values accepted as ``compression=`` by a writer."""

ReadingCompression: TypeAlias = Compression | Literal["auto"]
"""Values accepted as ``compression=`` by a reader. ``"auto"`` detects the compression."""


def parse_compression(value: object) -> CompressionOptions:
    """Convert the ``compression=`` argument of a writer to options.

    Accept ``""``, ``"none"``, `None`, ``"GZIP"``, ``"ZLIB"``, in any case; 0 (none), 1 (ZLIB), 2 (GZIP) and enums of
    these numbers, such as TensorFlow's ``TFRecordCompressionType``; `CompressionOptions`; and objects with the
    attributes of TensorFlow's ``TFRecordOptions``.

    Raises:
        ValueError: the value is not a compression, or is ``"auto"``, which is only for reading, or an option is not
            supported.
        TypeError: a value of this type cannot denote a compression.
    """
    if isinstance(value, CompressionOptions):
        return value
    if hasattr(value, "compression_type"):
        return _from_tensorflow(value)
    return CompressionOptions(type=_type_of(value))


def parse_reading_compression(value: object) -> ReadingType:
    """Convert a ``compression=`` argument or a manifest's value to a compression for readers. ``"auto"`` is kept.

    Raises:
        ValueError, TypeError: as for `parse_compression`.
    """
    return "auto" if value == "auto" else parse_compression(value).type


def detect_compression(head: bytes) -> CompressionType:
    """Return a file's compression, from its first 12 bytes or more (fewer only if the file is shorter).

    The file is uncompressed if its first record's length matches the checksum of that length, which does not happen by
    chance. Otherwise, it is GZIP or ZLIB if it begins with GZIP's magic number or a ZLIB header. Any other file is
    considered uncompressed, and the decoder then raises the precise error.
    """
    if len(head) >= 12 and masked_crc32c(head[:8]) == int.from_bytes(head[8:12], "little"):
        return ""
    if head[:3] == b"\x1f\x8b\x08":
        return "GZIP"
    if len(head) >= 2:
        # RFC 1950: deflate, a window of at most 32 KiB, no preset dictionary, and check bits that cover both bytes.
        method, flags = head[0], head[1]
        if method & 0x0F == 8 and method >> 4 <= 7 and not flags & 0x20 and (method << 8 | flags) % 31 == 0:
            return "ZLIB"
    return ""


def _type_of(value: object) -> CompressionType:
    if value is None:
        return ""
    value = getattr(value, "value", value)  # unwraps an enum
    if isinstance(value, str):
        named = "" if value.upper() == "NONE" else value.upper()
        if named not in _TYPES:
            raise ArgumentValueError(_not_a_type(value))
        return cast(CompressionType, named)
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
        return 'compression="auto" is only for reading; a writer needs "", "GZIP" or "ZLIB"'
    known = next((known for known in _TYPES if isinstance(value, str) and known == value.strip().upper()), None)
    hint = f'write it as "{known}"' if known is not None else 'expected "", "GZIP" or "ZLIB" (TensorFlow\'s 0, 2 or 1)'
    return f"compression={value!r}: {hint}"


_MEANINGLESS = {
    "flush_mode": "flush() always does a sync flush, so that the written data can be read",
    "input_buffer_size": "records are compressed in the batches in which they are written",
    "output_buffer_size": "the storage determines how many bytes are written at a time (chunk_size)",
}


def _from_tensorflow(options: object) -> CompressionOptions:
    """Convert the attributes of TensorFlow's ``TFRecordOptions``. Attributes that the user did not set are `None`."""
    given = {name: getattr(options, name, None) for name in (*_MEANINGLESS, "compression_method")}
    for name, reason in _MEANINGLESS.items():
        if given[name] is not None:
            raise ArgumentValueError(f"{name}={given[name]!r} is not supported; leave it out: {reason}")
    if given["compression_method"] not in (None, zlib.DEFLATED):
        raise ArgumentValueError(
            f"compression_method={given['compression_method']!r}: GZIP and ZLIB only support {zlib.DEFLATED}, deflate"
        )
    compression = _type_of(getattr(options, "compression_type", None))
    window_bits: int | None = getattr(options, "window_bits", None)
    if compression == "GZIP" and window_bits is not None and window_bits > zlib.MAX_WBITS:
        window_bits -= (
            GZIP_CONTAINER  # TensorFlow passes the number to zlib, where 25 to 31 are 9 to 15 in a GZIP container
        )
    return CompressionOptions(
        type=compression,
        level=getattr(options, "compression_level", None),
        window_bits=window_bits,
        mem_level=getattr(options, "mem_level", None),
        strategy=getattr(options, "compression_strategy", None),
    )
