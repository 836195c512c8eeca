"""The contents of a `DiskCache`: `CachedVersion`, a version of an object, and `Filling`, a file with some pieces."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass

from crc32c import crc32c

from asyncrec.storage._base import ObjectInfo
from asyncrec.storage._local.disk import mapped_errors, read_at

# Large enough for a negligible cost per request (0.125 requests per MiB), small enough to arrive soon.
PIECE_BYTES = 8 << 20
# A copy of a shard keeps the suffix, so that any tool can read it; all other copies have the second suffix.
SUFFIXES = (_SHARD, _OTHER) = (".tfrecord", ".copy")
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CachedVersion:
    """One version of an object.

    Attributes:
        path: the object's path, for messages.
        name: the name of its file.
        crc32c: the checksum that its content must have; `None` if it is unknown.
    """

    path: str
    name: str
    size: int
    crc32c: int | None

    @classmethod
    def of(cls, path: str, info: ObjectInfo) -> CachedVersion:
        content = info.etag if info.crc32c is None else f"crc32c {info.crc32c:08x}"
        identity = f"{path}\0{content}\0{info.size}".encode("utf-8", "surrogateescape")
        suffix = _SHARD if path.endswith(_SHARD) else _OTHER
        return cls(path, hashlib.blake2b(identity, digest_size=16).hexdigest() + suffix, info.size, info.crc32c)

    @property
    def number(self) -> int:
        """A number from the beginning of its name, for spreading locks."""
        return int(self.name[:8], 16)

    @property
    def pieces(self) -> int:
        return -(-self.size // PIECE_BYTES)

    def piece_of(self, position: int) -> int:
        """Return the number of the piece that contains a byte."""
        return position // PIECE_BYTES

    def piece(self, number: int) -> tuple[int, int]:
        """Return the first byte of a piece, and the byte after its last."""
        return number * PIECE_BYTES, min(self.size, (number + 1) * PIECE_BYTES)


class Filling:
    """An open file with some pieces of an object.

    Attributes:
        there: one byte for each piece, nonzero once the piece was seen in the file.
    """

    def __init__(self, version: CachedVersion, fd: int) -> None:
        self.version = version
        self.fd = fd
        self.there = bytearray(version.pieces)

    @property
    def is_whole(self) -> bool:
        return 0 not in self.there

    def look(self) -> None:
        """Determine which pieces are in the file."""
        version = self.version
        if os.fstat(self.fd).st_size == version.size:  # renamed meanwhile
            self.there[:] = b"\1" * version.pieces
        else:
            marks = read_at(self.fd, version.pieces, version.size)
            self.there[: len(marks)] = marks

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


def checksum_of(fd: int, size: int, path: str) -> int:
    checksum = position = 0
    with mapped_errors("reading", path):
        while position < size and (block := read_at(fd, min(_READ_BYTES, size - position), position)):
            checksum = crc32c(block, checksum)
            position += len(block)
    return checksum
