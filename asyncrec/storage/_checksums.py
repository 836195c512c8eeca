"""Checksums of stored objects.

`check_sent` compares an object with the bytes sent. If a store keeps no checksum, `stored_crc32c` reads the object
back, and `end_crc32c` reads only its end.
"""

from __future__ import annotations

from asyncrec._framing.crc import crc32c
from asyncrec.errors import IntegrityError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._chunk_writer import END_BYTES
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly

# The number of bytes read at a time. Their checksum is computed on the event loop, in about 50 us.
_BLOCK = 1 << 20


def check_sent(path: str, published: ObjectInfo | None, *, size: int, crc32c: int | None, then: str) -> None:
    """Compare an object that a sink has published at ``path`` with the bytes sent.

    The error message ends with ``then``, which describes the consequence for the object.

    Raises:
        IntegrityError: the size or the checksum differs.
    """
    assert published is not None, "a clean exit publishes the object"
    known = published.crc32c is not None and crc32c is not None
    if published.size != size or (known and published.crc32c != crc32c):
        sent, stored = (f" (crc32c {each:08x})" if each is not None else "" for each in (crc32c, published.crc32c))
        raise IntegrityError(
            f"{path}: {size:,} bytes{sent} were sent, but the store has {published.size:,}{stored}; {then}"
        )


async def stored_crc32c(storage: Storage, key: str, *, info: ObjectInfo | None = None) -> int:
    """Read an object, in the version that ``info`` describes if it is passed, and return the CRC32C of its bytes.

    Raises:
        ObjectNotFoundError: the object, or this version of it, does not exist.
        StorageError: the object cannot be read.
    """
    checksum = 0
    async with ResumingSource(storage, key, info=info) as source:
        while block := await source.receive(_BLOCK):
            checksum = crc32c(block, checksum)
    return checksum


async def end_crc32c(storage: Storage, info: ObjectInfo) -> int:
    """Return the CRC32C of an object's last `END_BYTES`, or of all its bytes if there are fewer.

    ``info`` describes the version of the object to read.

    Raises:
        ObjectNotFoundError, ObjectChangedError: this version no longer exists.
    """
    start = max(0, info.size - END_BYTES)
    async with ResumingSource(storage, info.key, start=start, end=info.size, info=info, read_ahead=0) as source:
        return crc32c(await receive_exactly(source, info.size - start))
