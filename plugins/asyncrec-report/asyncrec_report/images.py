"""Detection of an image's kind and size from its first bytes.

Only formats that browsers support and that cannot contain scripts are detected: PNG, JPEG, GIF and WebP, but not SVG.
The width and the height are read from the header, because a small file may contain an image of 50,000 by 50,000 pixels,
which a page should not show. This module does no I/O.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

_MOST_SEGMENTS = 200  # the maximum number of segments before a JPEG's size; a typical file has about ten


@dataclass(frozen=True, slots=True)
class Image:
    """An image's MIME subtype ("png", "jpeg", "gif" or "webp"), and its width and height in pixels."""

    kind: str
    width: int
    height: int


def image_of(data: bytes) -> Image | None:
    """Return the image that begins with ``data``, or `None` if it is not an image or has an invalid header."""
    try:
        found = _png(data) or _jpeg(data) or _gif(data) or _webp(data)
    except (struct.error, IndexError):
        return None
    return found if found and found.width > 0 and found.height > 0 else None


def _png(data: bytes) -> Image | None:
    # w3.org/TR/png: the signature is followed by IHDR
    if not data.startswith(b"\x89PNG\r\n\x1a\n") or data[12:16] != b"IHDR":
        return None
    return Image("png", *struct.unpack_from(">II", data, 16))


def _gif(data: bytes) -> Image | None:
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        return None
    return Image("gif", *struct.unpack_from("<HH", data, 6))


def _jpeg(data: bytes) -> Image | None:
    # itu.int/rec/T-REC-T.81: segments up to a start of frame (C0 to CF except C4, C8 and CC)
    if not data.startswith(b"\xff\xd8\xff"):
        return None
    at = 2
    for _ in range(_MOST_SEGMENTS):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Image("jpeg", width, height)
        at += 2 + struct.unpack_from(">H", data, at + 2)[0]
    return None


def _webp(data: bytes) -> Image | None:
    # developers.google.com/speed/webp/docs/riff_container
    if data[:4] != b"RIFF" or data[8:12] != b"WEBP":
        return None
    chunk = data[12:16]
    if chunk == b"VP8X":
        width, height = (1 + int.from_bytes(data[at : at + 3], "little") for at in (24, 27))
        return Image("webp", width, height) if len(data) >= 30 else None
    if chunk == b"VP8L" and data[20] == 0x2F:
        bits = struct.unpack_from("<I", data, 21)[0]
        return Image("webp", 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if chunk == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return Image("webp", width & 0x3FFF, height & 0x3FFF)
    return None
