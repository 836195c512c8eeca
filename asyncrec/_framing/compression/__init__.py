"""The byte stream of a TFRecord file <-> GZIP or ZLIB, as TensorFlow reads and writes them.

GZIP (RFC 1952) is written in independent members. A new member begins about every 4 MiB, always at the beginning of a
record. Other readers read them as one stream, but each can be decompressed alone, for random access and for salvage.
ZLIB (RFC 1950) is written as one stream, because TensorFlow silently stops after the first. The output does not depend
on the clock.

A `Compressor` or `Decompressor` releases the GIL while it works. It is intended for worker threads, and must be used by
only one thread at a time.
"""

from __future__ import annotations

from asyncrec._framing.compression.compressor import Compressor, make_compressor
from asyncrec._framing.compression.decompressor import Decompressor
from asyncrec._framing.compression.options import (
    Compression,
    CompressionOptions,
    CompressionType,
    ReadingCompression,
    ReadingType,
    detect_compression,
    parse_compression,
    parse_reading_compression,
)

__all__ = [
    "Compression",
    "CompressionOptions",
    "CompressionType",
    "Compressor",
    "Decompressor",
    "ReadingCompression",
    "ReadingType",
    "detect_compression",
    "make_compressor",
    "parse_compression",
    "parse_reading_compression",
]
