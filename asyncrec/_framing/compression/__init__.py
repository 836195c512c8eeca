"""The byte stream of a TFRecord file <-> GZIP or ZLIB, as TensorFlow reads and writes it.

GZIP (RFC 1952) is written in independent members, a new one about every 4 MiB, at a record's beginning. Stock readers
read the members as one stream, and each can be decompressed alone, for random access and for salvage. ZLIB (RFC 1950)
is one stream, because TensorFlow stops silently after the first. The output does not depend on the clock.

A `Compressor` or `Decompressor` releases the GIL while it works. It is made for worker threads, and used by one thread
at a time.
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
