"""`GcsSource`: ranges of one generation of an object, each a request of its own.

Between two calls no connection is held and nothing is buffered: a range is read to its end before it is returned. Large
ranges come from asking for much: `GcsStorage.read_ahead` is what makes the core do so.
"""

from __future__ import annotations

from types import TracebackType

import anyio
import anyio.lowlevel

from asyncrec.errors import ArgumentValueError, ObjectChangedError, StorageError, TransientStorageError
from asyncrec.storage import ByteSource

from .bucket import Bucket
from .protocol import object_url, parse_content_range, range_header

__all__ = ["WINDOW", "GcsSource"]

# The most that one request fetches: it carries its latency of some 30 ms at the speed of a connection.
WINDOW = 8 * 1024 * 1024


class GcsSource(ByteSource):
    """A source of one object, by its generation."""

    def __init__(self, bucket: Bucket, key: str, *, start: int, end: int | None, etag: str | None) -> None:
        self._bucket = bucket
        self._key = key
        self._shown = bucket.shown(key)
        self._position = start
        self._given_end = end
        self._etag = etag
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

    async def receive(self, max_bytes: int) -> bytes:
        if not self._open:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes is {max_bytes}; it is at least 1")
        if self._position >= self._end:
            await anyio.lowlevel.checkpoint()
            return b""
        block = await self._fetch(self._position, min(self._position + min(max_bytes, WINDOW), self._end))
        self._position += len(block)
        return block

    async def _fetch(self, start: int, end: int) -> bytes:
        """Fetch exactly the bytes ``[start, end)``. Not repeated here: the core goes on from where it is."""
        what = f"{self._shown}: reading bytes {start:,} to {end:,}"
        headers = {"Range": range_header(start, end)}
        answer = await self._bucket.request(
            "GET", self._url, what=what, expect=(200, 206, 404, 416), condition="same", headers=headers, media=True
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
