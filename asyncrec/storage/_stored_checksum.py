"""`stored_crc32c`: the checksum of an object, for stores that keep none."""

from __future__ import annotations

from asyncrec._framing.crc import crc32c
from asyncrec.storage._base import Storage
from asyncrec.storage._resuming_source import ResumingSource

__all__ = ["stored_crc32c"]

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
