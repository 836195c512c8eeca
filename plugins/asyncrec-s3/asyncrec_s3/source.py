"""`S3Source`: ranged requests of one version of an object; between two of them it holds no connection.

Each `receive` is one request, pinned to the ETag and read to its end: a thousand sources that wait hold nothing. Large
answers come from asking for much: `S3Storage.read_ahead` is what makes the core do so.
"""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from asyncrec.errors import ObjectChangedError
from asyncrec.storage.base import ByteSource

from .parts import MIB

if TYPE_CHECKING:
    from .storage import S3Storage

__all__ = ["S3Source"]

# The most that one request fetches. 8 MiB carries its latency (some 30 ms on S3) at the speed of a connection.
WINDOW = 8 * MIB


class S3Source(ByteSource):
    """See the module; made by `S3Storage.open_source`, and its own context."""

    def __init__(self, storage: S3Storage, key: str, start: int, end: int | None, etag: str | None) -> None:
        self._storage = storage
        self._shown = key
        self._key = storage.options.prefix + key
        self._position = start
        self._end = end
        self._pinned = etag
        self._untouched = True
        self._open = False

    async def __aenter__(self) -> S3Source:
        self._storage.check()
        await self._pin()
        self._open = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False

    async def receive(self, max_bytes: int) -> bytes:
        if not self._open:
            raise anyio.ClosedResourceError(f"{self._what()}: its context is not open")
        if max_bytes < 1:
            raise ValueError(f"max_bytes is at least 1, not {max_bytes}")
        self._storage.check()
        end = min(self.info.size if self._end is None else min(self._end, self.info.size), self._position + max_bytes)
        if self._position >= end:
            await anyio.lowlevel.checkpoint()
            return b""
        end = min(end, self._position + WINDOW)
        try:
            data = await self._storage.bucket.read(self._key, self._position, end, self.info.etag)
        except ObjectChangedError:
            if self._pinned is not None or not self._untouched:
                raise
            # Nothing was read of it yet, and no version asked for: replaced since it was opened, it is opened anew.
            await self._pin()
            return await self.receive(max_bytes)
        self._untouched = False
        self._position += len(data)
        return data

    async def _pin(self) -> None:
        found = await self._storage.bucket.head(self._key, shown=self._shown)
        if self._pinned is not None and found.info.etag != self._pinned:
            raise ObjectChangedError(
                f"{self._what()}: its etag is {found.info.etag}, not {self._pinned}: open it again"
            )
        self.info = found.info

    def _what(self) -> str:
        return self._storage.bucket.what("read", self._key)
