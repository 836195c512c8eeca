"""A store in memory that counts the requests that `asyncrec_s3` would make for the same calls (see `paper`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from asyncrec.storage import Buffer, ByteSink, ByteSource, ObjectInfo
from asyncrec.storage._memory import MemoryStorage

from .paper import PAGE, Requests, put_parts

WINDOW = 8 << 20


class CountingBucket(MemoryStorage):
    """A bucket that counts requests by kind in `requests`, and lists the keys that were read in `read`."""

    read_ahead = 2 * WINDOW

    def __init__(self, *, part_bytes: int = WINDOW) -> None:
        super().__init__(chunk_size=part_bytes)
        self.requests = Requests()
        self.read: list[str] = []

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        parts = 0  # counted from the first one of full length

        async def counted(buffers: Sequence[Buffer]) -> None:
            nonlocal parts
            parts += parts > 0 or sum(map(len, buffers)) >= self.chunk_size
            await send(buffers)

        async with super().open_sink(key, exclusive=exclusive) as sink:
            send, sink.send = sink.send, counted  # type: ignore[method-assign]
            yield sink
        self.requests += put_parts(parts, exclusive=exclusive) if parts else Requests(PutObject=1)

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        self.requests["GetObject"] += 1
        self.read.append(key)
        async with super().open_source(key, **options) as source:
            yield source

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        self.requests["ListObjectsV2"] += 1
        number = 0
        async for info in super().list_objects(prefix, start_after=start_after):
            self.requests["ListObjectsV2"] += number > 0 and number % PAGE == 0
            number += 1
            yield info

    async def head(self, key: str) -> ObjectInfo:
        self.requests["HeadObject"] += 1
        return await super().head(key)

    async def delete(self, key: str) -> None:
        self.requests["DeleteObject"] += 1
        await super().delete(key)

    def sizes(self) -> dict[str, int]:
        """Return the size of each object in bytes."""
        return {key: each.info.size for key, each in self._objects.items()}
