"""A store in memory that counts the requests which `asyncrec_s3` makes for the same calls (`paper`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count

import anyio

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError
from asyncrec.storage import Buffer, ByteSink, ByteSource, ObjectInfo, Storage

from .paper import PAGE, Requests

WINDOW = 8 << 20
_EPOCH = 1_790_000_000


class CountingBucket(Storage):
    """A bucket, on the clock of the loop; `requests` counts what it was asked, by kind."""

    root = "s3://crawl"
    read_ahead = 2 * WINDOW
    flush_level = "buffered"

    def __init__(self, *, part_bytes: int = WINDOW) -> None:
        self.requests = Requests()
        self.part_bytes = part_bytes
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}
        self._versions = count(1)

    async def ask(self, kind: str) -> None:
        await anyio.lowlevel.checkpoint()
        self.requests[kind] += 1

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        sink = _Sink(self, key, exclusive=exclusive)
        yield sink
        sink.published = await sink.publish()

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        if len(data) >= self.part_bytes:
            return await super().put(key, data, exclusive=exclusive)
        await self.ask("PutObject")
        return self.add(key, bytes(data), exclusive=exclusive)

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        await self.ask("GetObject")
        yield _Source(*self.find(key), start, end)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        keys = sorted(key for key in self._objects if key.startswith(prefix) and key > start_after)
        for first in range(0, max(1, len(keys)), PAGE):
            await self.ask("ListObjectsV2")
            for key in keys[first : first + PAGE]:
                if key in self._objects:
                    yield self._objects[key][1]

    async def head(self, key: str) -> ObjectInfo:
        await self.ask("HeadObject")
        return self.find(key)[1]

    async def delete(self, key: str) -> None:
        await self.ask("DeleteObject")
        self._objects.pop(key, None)

    def sizes(self) -> dict[str, int]:
        """The bytes of each object."""
        return {key: info.size for key, (_, info) in self._objects.items()}

    def find(self, key: str) -> tuple[bytes, ObjectInfo]:
        if key not in self._objects:
            raise ObjectNotFoundError(f"{self.root}/{key}: there is no such object")
        return self._objects[key]

    def add(self, key: str, data: bytes, *, exclusive: bool) -> ObjectInfo:
        if exclusive and key in self._objects:
            raise ObjectExistsError(f"{self.root}/{key}: it is there already, and was to be created")
        made = datetime.fromtimestamp(_EPOCH + anyio.current_time(), UTC)
        info = ObjectInfo(key=key, size=len(data), etag=f"v{next(self._versions)}", crc32c=None, modified=made)
        self._objects[key] = data, info
        return info


class _Sink(ByteSink):
    def __init__(self, store: CountingBucket, key: str, *, exclusive: bool) -> None:
        self.chunk_size = store.part_bytes
        self._store, self._key, self._exclusive = store, key, exclusive
        self._data = bytearray()
        self._begun = False

    async def send(self, buffers: Sequence[Buffer]) -> None:
        size = len(self._data)
        for buffer in buffers:
            self._data += buffer
        if not self._begun and len(self._data) - size < self.chunk_size:
            return  # a short one, which goes up at the end
        if not self._begun:
            self._begun = True
            if self._exclusive:
                await self._store.ask("HeadObject")
            await self._store.ask("CreateMultipartUpload")
        await self._store.ask("UploadPart")

    async def publish(self) -> ObjectInfo:
        if not self._begun:
            return await self._store.put(self._key, bytes(self._data), exclusive=self._exclusive)
        await self._store.ask("CompleteMultipartUpload")
        await self._store.ask("HeadObject")
        return self._store.add(self._key, bytes(self._data), exclusive=self._exclusive)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await anyio.lowlevel.checkpoint()
        return 0


class _Source(ByteSource):
    def __init__(self, data: bytes, info: ObjectInfo, start: int, end: int | None) -> None:
        self.info = info
        self._data, self._position = data, start
        self._end = info.size if end is None else min(end, info.size)

    async def receive(self, max_bytes: int) -> bytes:
        size = min(max_bytes, WINDOW, self._end - self._position)
        if size <= 0:
            return b""
        await anyio.lowlevel.checkpoint()
        block = self._data[self._position : self._position + size]
        self._position += len(block)
        return block
