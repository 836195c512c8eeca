"""`GzipHeader` skips the header of a GZIP member (RFC 1952 section 2.3), however it is split.

isal's own parser loses its place if a header with optional fields is split between two calls, and a block may end
anywhere. So headers are parsed here, and the library that decompresses gets a short one.
"""

from __future__ import annotations

import zlib

from asyncrec.errors import FormatError

_HCRC, _EXTRA, _NAME, _COMMENT, _RESERVED = 2, 4, 8, 16, 0xE0
_FIXED_BYTES = 10


class GzipHeader:
    """Parser of the bytes of a member up to the beginning of its data. Fields are skipped without being stored.

    Attributes:
        ended: whether the header is complete, so that the data follows.
    """

    SHORT = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
    """A header without optional fields, which can replace any header."""

    def __init__(self) -> None:
        self.ended = False
        self._crc = 0
        self._field = b""  # the bytes so far of a field whose value is needed
        self._flags = 0
        self._parts = ["fixed"]  # yet to come
        self._missing = _FIXED_BYTES  # bytes missing of the first part, if its length is known

    def feed(self, data: bytes) -> int:
        """Process the next bytes; return the number of them that belong to the header.

        Raises:
            ValueError: this is not a valid header; the message says why.
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
        """Determine the part that follows the part now complete."""
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
