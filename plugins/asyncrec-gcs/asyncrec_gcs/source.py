"""`GcsSource`: ranges of one generation of an object, each a request of its own.

Between two calls no connection is held: a range is read to its end before any of it is returned. Sequential reading
asks for more each time, since a request costs about as long as a megabyte; a source that is opened and then left idle
holds little.
"""

from __future__ import annotations

from types import TracebackType

import anyio

from asyncrec.errors import ObjectChangedError, StorageError, TransientStorageError
from asyncrec.storage.base import ByteSource

from .bucket import Bucket
from .protocol import object_url, parse_content_range, range_header

__all__ = ["GcsSource"]

# The first window, doubled with each until the last: 256 KiB is a block of the core's reader, and at 4 MiB the wait
# for the first byte is less than half of the whole on a fast line.
_FIRST_WINDOW = 256 * 1024
_LAST_WINDOW = 4 * 1024 * 1024


class GcsSource(ByteSource):
    """See `asyncrec.storage.base.ByteSource`. Holds at most 4 MiB, or what the largest `receive` asks for."""

    def __init__(self, bucket: Bucket, key: str, *, start: int, end: int | None, etag: str | None) -> None:
        self._bucket = bucket
        self._key = key
        self._shown = bucket.shown(key)
        self._position = start
        self._given_end = end
        self._etag = etag
        self._window = _FIRST_WINDOW
        self._buffer = memoryview(b"")  # what follows the position
        self._open = False

    async def __aenter__(self) -> GcsSource:
        resource = await self._bucket.resource(self._key, f"{self._shown}: opening")
        if self._etag not in (None, resource.generation):
            raise ObjectChangedError(
                f"{self._shown}: its generation is {resource.generation}, opened was {self._etag}: open it again from "
                "the start"
            )
        self.info = resource.info
        self._end = self.info.size if self._given_end is None else min(self._given_end, self.info.size)
        params = {"alt": "media", "ifGenerationMatch": resource.generation}
        self._url = object_url(self._bucket.endpoint, self._bucket.name, self._key, **params)
        self._open = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        self._buffer = memoryview(b"")

    async def receive(self, max_bytes: int) -> bytes:
        if not self._open:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ValueError(f"max_bytes is {max_bytes}; it is at least 1")
        if self._position >= self._end:
            return b""
        if not self._buffer:
            size = min(max(max_bytes, self._window), self._end - self._position)
            block = await self._fetch(self._position, self._position + size)
            self._window = min(2 * self._window, _LAST_WINDOW)
            if len(block) <= max_bytes:
                self._position += len(block)
                return block
            self._buffer = memoryview(block)
        taken, self._buffer = self._buffer[:max_bytes], self._buffer[max_bytes:]
        self._position += len(taken)
        return bytes(taken)

    async def _fetch(self, start: int, end: int) -> bytes:
        """Exactly the bytes ``[start, end)``. Not repeated here: the core goes on from where it is."""
        what = f"{self._shown}: reading bytes {start:,} to {end:,}"
        headers = {"Range": range_header(start, end)}
        answer = await self._bucket.request(
            "GET", self._url, what=what, expect=(200, 206, 404, 416), headers=headers, media=True
        )
        if answer.status in (404, 416):
            raise ObjectChangedError(f"{what}: HTTP {answer.status}: it was deleted or replaced since it was opened")
        if answer.status == 200:  # the whole object, where it was asked for
            span = 0, self.info.size
        else:
            try:
                span = parse_content_range(answer.headers.get("Content-Range"))
            except ValueError as error:
                raise StorageError(f"{what}: {error}") from None
        if span != (start, end):
            raise StorageError(f"{what}: the store sent bytes {span[0]:,} to {span[1]:,} instead")
        if len(answer.body) != end - start:
            raise TransientStorageError(f"{what}: {len(answer.body):,} bytes came")
        return answer.body
