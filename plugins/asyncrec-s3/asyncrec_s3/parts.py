"""Pure functions for multipart uploads: part sizes, ETags and checksums.

Limits: https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html (10,000 parts of 5 MiB to 5 GiB, except that
the last may be smaller, and 5 TiB in total).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable

import crc32c

from asyncrec.errors import ArgumentValueError
from asyncrec.storage import Buffer

MIB = 1 << 20
MIN_PART = 5 * MIB
MAX_PART = 5 << 30
MAX_PARTS = 10_000
# 900 parts of 5 MiB, then 900 of 10 MiB, and so on reach 5 TiB before the 10,000th part, but 1,000 of each would not.
# With parts of 8 MiB, the size does not grow before 7 GiB, so all ordinary shards take the same memory.
_DOUBLED_EVERY = 900


def part_size(number: int, first: int) -> int:
    """Return the size in bytes of part ``number`` (from 1) if the first part has ``first`` bytes.

    Raises:
        ValueError: the number is out of range.
    """
    if not 1 <= number <= MAX_PARTS:
        raise ArgumentValueError(
            f"S3 numbers parts from 1 to {MAX_PARTS:,}, not {number:,}; write a smaller object, or pass a larger "
            "chunk_size"
        )
    return min(first << ((number - 1) // _DOUBLED_EVERY), MAX_PART)


class Digest:
    """The checksums of one body. Create a digest of a large body in a worker thread.

    CRC32C takes a thirtieth of the time of MD5. ``kind`` is ``"md5"``, ``"crc32c"`` or ``"both"``.

    Attributes:
        params: the checksum parameters of the request that sends the body.
        md5: the MD5 in hexadecimal, which should equal the ETag; `None` without MD5.
        crc32c: the CRC32C of this body alone, in S3's encoding; `None` without CRC32C.
    """

    __slots__ = ("crc32c", "md5", "params")

    def __init__(self, data: Buffer, kind: str) -> None:
        self.md5: str | None = None
        self.crc32c: str | None = None
        self.params: dict[str, str] = {}
        if kind != "crc32c":
            digest = hashlib.md5(data, usedforsecurity=False)
            self.md5 = digest.hexdigest()
            self.params["ContentMD5"] = base64.b64encode(digest.digest()).decode()
        if kind != "md5":
            self.crc32c = self.params["ChecksumCRC32C"] = base64_of_crc(crc32c.crc32c(data))


def base64_of_crc(value: int) -> str:
    """Return a CRC32C in S3's encoding: base64 of four big-endian bytes."""
    return base64.b64encode(value.to_bytes(4, "big")).decode()


def crc_of_base64(text: str | None) -> int | None:
    """Decode the CRC32C of a whole object. Return `None` if it is missing or a checksum of checksums (``...-N``)."""
    if not text or "-" in text:
        return None
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    return int.from_bytes(raw, "big") if len(raw) == 4 else None


def is_md5(etag: str) -> bool:
    """Return whether an ETag has the form of an MD5, or that of a multipart upload (an MD5 with ``-N``)."""
    return re.fullmatch(r"[0-9a-f]{32}(-[0-9]+)?", etag) is not None


def multipart_etag(etags: Iterable[str]) -> str | None:
    """Return the ETag of an object whose parts have these ETags, or `None` if they are not MD5s."""
    raw = []
    for etag in etags:
        if not is_md5(etag) or "-" in etag:
            return None
        raw.append(bytes.fromhex(etag))
    return f"{hashlib.md5(b''.join(raw), usedforsecurity=False).hexdigest()}-{len(raw)}"
