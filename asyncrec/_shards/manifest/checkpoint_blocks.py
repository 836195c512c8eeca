"""The blocks of a checkpoint: some rows of columns each, deflated, with a checksum over all of it.

    kind, rows, raw, stored: what follows, in little-endian 32-bit numbers      CRC32C of these and of what follows
    ``stored`` bytes: deflated to ``raw`` bytes, or as they are where both are equal

A column of numbers is stored as the differences of neighbours, all lowest bytes first, then the next: so times, sizes
and counts, which are much alike, take little. A column of texts has each text with a NUL behind it. What a block claims
is bounded before it is believed: no block has more rows than are written, and no deflated one is less than a 256th of
what it holds, or a quarter where that is JSON, of which three bytes become an object of 72 and take a microsecond.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any

from asyncrec._framing.crc import crc32c
from asyncrec._numpy import np
from asyncrec.errors import ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

# So many rows take about a millisecond to decode: no other thread waits longer for the interpreter.
BLOCK_ROWS = 4096

_HEADER = struct.Struct("<5I")
HEADER_BYTES = _HEADER.size
_MOST_RAW = 64 << 20
_MOST_RATIO = 256
_MOST_JSON_RATIO = 4
_LEVEL = 6


class Block:
    """A block whose header is read.

    Attributes:
        kind: what is in it.
        rows: how many.
        stored: the size of what follows the header.
    """

    def __init__(self, kind: int, rows: int, raw: int, stored: int, checksum: int) -> None:
        self.kind = kind
        self.rows = rows
        self.stored = stored
        self._raw = raw
        self._checksum = checksum

    def content(self, stored: bytes, name: str) -> bytes:
        """Return what the block holds.

        Raises:
            ManifestError: it is damaged.
        """
        if crc32c(stored, crc32c(_HEADER.pack(self.kind, self.rows, self._raw, self.stored, 0))) != self._checksum:
            raise ManifestError(f"{name}: a block does not match its checksum; the checkpoint is damaged")
        if self._raw == self.stored:
            return stored
        inflating = zlib.decompressobj()
        try:
            content = inflating.decompress(stored, self._raw)
        except zlib.error as error:
            raise ManifestError(f"{name}: the checkpoint is damaged: a block does not decompress: {error}") from error
        if len(content) != self._raw or not inflating.eof or inflating.unused_data:
            raise ManifestError(f"{name}: a block does not hold {self._raw:,} bytes; the checkpoint is damaged")
        return content


def encode_block(kind: int, rows: int, content: bytes, *, json: bool) -> bytes:
    """Return a block, whose content is lines of JSON or columns.

    Raises:
        ManifestError: it would be larger than is read.
    """
    if len(content) > _MOST_RAW:
        raise ManifestError(f"{rows:,} rows of a checkpoint take {len(content):,} bytes, and {_MOST_RAW:,} are read")
    stored = zlib.compress(content, _LEVEL)
    if len(stored) >= len(content) or len(content) > _ratio(json) * len(stored):
        stored = content
    header = kind, rows, len(content), len(stored)
    return _HEADER.pack(*header, crc32c(stored, crc32c(_HEADER.pack(*header, 0)))) + stored


def parse_header(header: bytes, json_kinds: Container[int], name: str) -> Block:
    """Read a block's header; blocks of some kinds hold JSON.

    Raises:
        ManifestError: no block says so.
    """
    kind, rows, raw, stored, checksum = _HEADER.unpack(header)
    if not stored <= raw <= min(_MOST_RAW, _ratio(kind in json_kinds) * stored) or rows > min(BLOCK_ROWS, raw + 1):
        raise ManifestError(f"{name}: a block of {rows:,} rows and {raw:,} bytes in {stored:,}; it is damaged")
    return Block(kind, rows, raw, stored, checksum)


def _ratio(json: bool) -> int:
    return _MOST_JSON_RATIO if json else _MOST_RATIO


def encode_columns(texts: bytes, columns: list[NDArray[Any]]) -> bytes:
    """Put texts and columns of numbers into one content."""
    return b"".join((struct.pack("<I", len(texts)), texts, *map(_encode_numbers, columns)))


def decode_columns(
    content: bytes, rows: int, kinds: Mapping[str, Any], name: str
) -> tuple[bytes, dict[str, NDArray[Any]]]:
    """Return what `encode_columns` was given, the columns by their names.

    Raises:
        ManifestError: the content has another size.
    """
    at = 4 + struct.unpack_from("<I", content)[0] if len(content) >= 4 else 0
    if len(content) != at + rows * sum(np.dtype(kind).itemsize for kind in kinds.values()) or not at:
        raise ManifestError(f"{name}: a block of {rows:,} rows has {len(content):,} bytes; it is damaged")
    texts = content[4:at]
    columns = {}
    for column, kind in kinds.items():
        size = rows * np.dtype(kind).itemsize
        columns[column] = _decode_numbers(content[at : at + size], rows, np.dtype(kind))
        at += size
    return texts, columns


def _unsigned(kind: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<u{kind.itemsize}")


def _encode_numbers(column: NDArray[Any]) -> bytes:
    if not len(column):
        return b""
    numbers = np.ascontiguousarray(column).view(_unsigned(column.dtype))
    differences = numbers.copy()
    differences[1:] -= numbers[:-1]
    return differences.view(np.uint8).reshape(len(column), -1).T.tobytes()


def _decode_numbers(content: bytes, rows: int, kind: np.dtype[Any]) -> NDArray[Any]:
    if not rows:
        return np.empty(0, kind)
    unsigned = _unsigned(kind)
    shuffled = np.frombuffer(content, np.uint8).reshape(kind.itemsize, rows)
    differences = np.ascontiguousarray(shuffled.T).view(unsigned).ravel()
    return np.cumsum(differences, dtype=unsigned).astype(unsigned.newbyteorder("="), copy=False).view(kind)
