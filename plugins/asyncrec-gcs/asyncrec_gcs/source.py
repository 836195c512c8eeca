"""`GcsSource`: ranges of one generation of an object, or, for a reader that keeps up, one answer to its end."""

from __future__ import annotations

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import RangedSource, parse_content_range

from .bucket import Bucket
from .protocol import object_url, range_header
from .session import Incoming

__all__ = ["WINDOW", "GcsSource"]

# The most that one request fetches: it carries its latency of some 30 ms at the speed of a connection.
WINDOW = 8 * 1024 * 1024


class GcsSource(RangedSource):
    """A source of one object, by its generation."""

    window = WINDOW

    def __init__(self, bucket: Bucket, key: str, *, start: int, end: int | None, etag: str | None) -> None:
        self._bucket = bucket
        self._key = key
        self._shown = bucket.shown(key)
        super().__init__(self._shown, start=start, end=end, etag=etag, slots=bucket.streams)

    async def look(self) -> ObjectInfo:
        resource = await self._bucket.resource(self._key, f"{self._shown}: opening")
        params = {"alt": "media", "ifGenerationMatch": resource.generation}
        self._url = object_url(self._bucket.endpoint, self._bucket.name, self._key, **params)
        return resource.info

    async def fetch(self, start: int, end: int) -> list[bytes]:
        incoming = await self.stream(start, end)
        try:
            blocks = await incoming.receive(end - start + 1)  # to its end, which gives the connection back
        finally:
            await incoming.aclose()
        if (size := sum(map(len, blocks))) != end - start:
            raise TransientStorageError(f"{self._shown}: reading bytes {start:,} to {end:,}: {size:,} bytes came")
        return blocks

    async def stream(self, start: int, end: int) -> Incoming:
        what = f"{self._shown}: reading bytes {start:,} to {end:,}"
        incoming = await self._bucket.download(self._url, what=what, headers={"Range": range_header(start, end)})
        try:
            self._check_span(incoming, start, end, what)
        except StorageError:
            await incoming.aclose()
            raise
        return incoming

    def _check_span(self, incoming: Incoming, start: int, end: int, what: str) -> None:
        """Check which bytes an answer has: by 200 the whole object, where it was asked for."""
        try:
            whole = incoming.status == 200
            span = (0, self.info.size) if whole else parse_content_range(incoming.headers.get("Content-Range"))[:2]
        except ValueError as error:
            raise StorageError(f"{what}: {error}") from None
        if span != (start, end):
            raise StorageError(f"{what}: the store sent bytes {span[0]:,} to {span[1]:,} instead")
