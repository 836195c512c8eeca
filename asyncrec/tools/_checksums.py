"""`ChecksummedStorage` passes the reads of one object through, and knows the CRC32C of all its bytes afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from crc32c import crc32c

from asyncrec._concurrency.tasks import in_thread
from asyncrec.storage._base import ByteSource, ObjectInfo, ReadOnlyStorage, Storage

# A checksum of this much takes some 50 us; of more it is a worker thread's work.
_MOST_ON_LOOP = 1 << 20


class ChecksummedStorage(ReadOnlyStorage):
    """Another storage, for reading one object from its beginning, by one reader at a time.

    A range that is read again counts once: the reader goes back when something came damaged.

    Attributes:
        crc32c: of the bytes ``[0, position)``.
        position: how far the object was read.
        info: what the store said of it; `None` before it was opened.
    """

    why = "it is only read here, for its checksum"

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.root = storage.root
        self.read_ahead = storage.read_ahead
        self.flush_level = storage.flush_level
        self.lists_by_pages = storage.lists_by_pages
        self.crc32c = 0
        self.position = 0
        self.info: ObjectInfo | None = None

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        async with self._storage.open_source(key, start=start, end=end, info=info) as source:
            self.info = source.info
            yield _Source(self, source, start)

    async def head(self, key: str) -> ObjectInfo:
        return await self._storage.head(key)

    async def passed(self, start: int, block: bytes) -> None:
        """``block`` was read from ``start``."""
        new = self.position - start
        if not 0 <= new < len(block):
            return  # read before; or behind a gap, and then the checksum stays that of what came before it
        rest = memoryview(block)[new:]
        if len(rest) > _MOST_ON_LOOP:
            self.crc32c = await in_thread(crc32c, rest, self.crc32c)
        else:
            self.crc32c = crc32c(rest, self.crc32c)
        self.position = start + len(block)


class _Source(ByteSource):
    def __init__(self, storage: ChecksummedStorage, source: ByteSource, start: int) -> None:
        self._storage = storage
        self._source = source
        self._at = start
        self._block = b""  # received, and not given out yet: cancelled, it can be received again
        self.info = source.info

    async def receive(self, max_bytes: int) -> bytes:
        if not self._block:
            self._block = await self._source.receive(max_bytes)
        await self._storage.passed(self._at, self._block)
        block, self._block = self._block[:max_bytes], self._block[max_bytes:]
        self._at += len(block)
        return block
