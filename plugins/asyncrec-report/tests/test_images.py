"""The type of an image is detected from its first bytes; any bytes result in an image or None."""

from __future__ import annotations

import struct
import zlib

import pytest
from asyncrec_report.images import Image, image_of
from hypothesis import given
from hypothesis import strategies as st


def png(width: int, height: int) -> bytes:
    """Return a complete PNG image of a single colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + b"\x20\x80\xc0" * width for _ in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


JPEG = (
    b"\xff\xd8\xff\xe0\x00\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0"
    b"\xff\xff\xc4\x00\x03\0\xff\xc2\x00\x0b\x08" + struct.pack(">HH", 48, 64) + b"\x01\x01\x11\0"
)
GIF = b"GIF89a" + struct.pack("<HH", 16, 24) + bytes(3)
VP8X = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0" + (99).to_bytes(3, "little") + (49).to_bytes(3, "little")
VP8L = b"RIFF\0\0\0\0WEBPVP8L\0\0\0\0\x2f" + struct.pack("<I", 99 | 49 << 14)
VP8 = b"RIFF\0\0\0\0WEBPVP8 \0\0\0\0\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 100, 50)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (png(3, 2), Image("png", 3, 2)),
        (JPEG, Image("jpeg", 64, 48)),
        (GIF, Image("gif", 16, 24)),
        (VP8X, Image("webp", 100, 50)),
        (VP8L, Image("webp", 100, 50)),
        (VP8, Image("webp", 100, 50)),
        (png(3, 2)[:20], None),
        (JPEG[:-6], None),
        (VP8X[:28], None),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(8), None),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", None),
        (b"RIFF\0\0\0\0WAVE", None),
        (b"", None),
    ],
)
def test_image_of_recognises_format_and_dimensions(data: bytes, expected: Image | None) -> None:
    assert image_of(data) == expected


@given(st.sampled_from([png(1, 1)[:8], JPEG[:4], GIF[:6], VP8X[:16], VP8L[:16], VP8[:16]]), st.binary(max_size=64))
def test_image_of_handles_any_bytes_after_signature(signature: bytes, rest: bytes) -> None:
    found = image_of(signature + rest)
    assert found is None or (found.width > 0 and found.height > 0)
