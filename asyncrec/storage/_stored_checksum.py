"""`stored_crc32c`: the checksum of an object, for stores that keep none; `end_crc32c`: of its end alone."""

from __future__ import annotations

from asyncrec._framing.crc import crc32c
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._chunk_writer import END_BYTES
from asyncrec.storage._resuming_source import ResumingSource, receive_exactly

__all__ = ["END_BYTES", "end_crc32c", "stored_crc32c"]

# Checksummed on the event loop: about 50 us.
_BLOCK = 1 << 20


async def stored_crc32c(storage: Storage, key: str, *, etag: str | None = None) -> int:
    """The CRC32C of an object's bytes, which are read; of the version ``etag`` where it is given.

    Raises:
        ObjectNotFoundError: there is no such object, or no longer this version of it.
        StorageError: it cannot be read.
    """
    checksum = 0
    async with ResumingSource(storage, key, etag=etag) as source:
        while block := await source.receive(_BLOCK):
            checksum = crc32c(block, checksum)
    return checksum


async def end_crc32c(storage: Storage, info: ObjectInfo) -> int:
    """The CRC32C of the last `END_BYTES` of this version of an object, which are read; of all where there are fewer.

    Raises:
        ObjectNotFoundError, ObjectChangedError: there is no longer this version of it.
    """
    start = max(0, info.size - END_BYTES)
    async with ResumingSource(storage, info.key, start=start, end=info.size, etag=info.etag, read_ahead=0) as source:
        return crc32c(await receive_exactly(source, info.size - start))
