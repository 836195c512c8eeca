"""The lines of a checkpoint. Each is a JSON object in a gzip member of its own.

So `zcat` prints all lines, gzip's CRC32 checks a line before it is parsed, and a reader of only the beginning checks
what it reads. The size of a member is checked before its line is parsed: it inflates to at most 16 MiB and at most 16
times its size, and has at least one byte for each comma and opening bracket in the line, which may occupy a hundred
bytes of memory. A line that deflates better is stored uncompressed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from asyncrec._framing.compression.engines import DEFLATE_ERRORS, compressobj, decompressobj
from asyncrec._framing.compression.options import CompressionOptions
from asyncrec.errors import ManifestError

# The maximum number of rows in a line: 4,096 take about three milliseconds to decode, in steps of half a millisecond.
MOST_ROWS = 4096
MOST_BYTES = 16 << 20

_MOST_RATIO = 16
# The input is fed in small chunks: at the end of each gzip member, the decompressor copies the rest of the chunk.
_STEP = 1 << 16
_JSON = json.JSONDecoder()


def encode_line(members: Mapping[str, Any]) -> bytes:
    """Return the encoded line.

    Raises:
        ManifestError: the line would be longer than a reader accepts.
    """
    texts = [f'"{name}":{json.dumps(value, separators=(",", ":"))}' for name, value in members.items()]
    line = b"{%b}\n" % ",".join(texts).encode()
    if len(line) > MOST_BYTES:
        raise ManifestError(f"a line of a checkpoint takes {len(line):,} bytes, and {MOST_BYTES:,} are read")
    deflated = _member(line, None)
    return deflated if _weighs_enough(line, len(deflated)) else _member(line, 0)


def _member(line: bytes, level: int | None) -> bytes:
    deflating = compressobj(CompressionOptions(type="GZIP", level=level))
    return bytes(deflating.compress(line) + deflating.flush())


def _weighs_enough(line: bytes, stored: int) -> bool:
    marks = line.count(b",") + line.count(b"[") + line.count(b"{")
    return marks <= stored and len(line) <= _MOST_RATIO * stored


class LineReader:
    """Splits the bytes of a checkpoint into lines as they arrive. It blocks, a millisecond at a time."""

    def __init__(self, name: str) -> None:
        """``name`` is for errors."""
        self._name = name
        self._number = 0
        self._inflating: Any = None  # set in the middle of a line
        self._line = bytearray()
        self._stored = 0

    @property
    def where(self) -> str:
        """The file and the number of the line, for errors."""
        return f"{self._name}: line {self._number}"

    @property
    def is_between_lines(self) -> bool:
        """Whether the last line begun has been returned."""
        return self._inflating is None

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Decode the next bytes, and yield the lines that they complete.

        Raises:
            ManifestError: the bytes are not gzip, or not lines of a checkpoint.
        """
        for at in range(0, len(data), _STEP):
            some = data[at : at + _STEP]
            while some:
                some = self._inflate(some)
                if self._inflating.eof:
                    self._inflating = None
                    yield self._parsed()

    def _inflate(self, data: bytes) -> bytes:
        """Inflate some bytes. Return the bytes after the line if it ends here."""
        if self._inflating is None:
            self._inflating, self._stored, self._number = decompressobj("GZIP"), 0, self._number + 1
            self._line.clear()
        try:
            self._line += self._inflating.decompress(data, MOST_BYTES + 1 - len(self._line))
        except DEFLATE_ERRORS as error:
            raise ManifestError(f"{self.where}: it does not decompress; the checkpoint is damaged: {error}") from error
        if len(self._line) > MOST_BYTES:
            raise ManifestError(f"{self.where}: it has more than {MOST_BYTES:,} bytes")
        rest: bytes = self._inflating.unused_data if self._inflating.eof else b""
        self._stored += len(data) - len(rest)
        return rest

    def _parsed(self) -> dict[str, Any]:
        line = bytes(self._line)
        if not line.endswith(b"\n") or line.count(b"\n") != 1:
            raise ManifestError(f"{self.where}: a member of gzip is not one line; the checkpoint is damaged")
        if not _weighs_enough(line, self._stored):
            raise ManifestError(
                f"{self.where}: {self._stored:,} bytes expand to more than they may; the checkpoint is damaged"
            )
        try:
            return _members(line.decode())
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"{self.where}: it is not a line of JSON: {str(error)[:80]}") from error


def _members(text: str) -> dict[str, Any]:
    """Parse an object member by member, so that other threads can run in between."""
    at, found = 0, dict[str, Any]()
    while text[at] == ("," if found else "{"):
        name, colon = _JSON.raw_decode(text, at + 1)
        if not isinstance(name, str) or text[colon] != ":" or name in found:
            raise ValueError(f"no member of an object at character {at}")
        found[name], at = _JSON.raw_decode(text, colon + 1)
    if text[at:] != "}\n":
        raise ValueError(f"no end of an object at character {at}")
    return found
