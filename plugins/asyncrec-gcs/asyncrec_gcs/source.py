"""`GcsSource`: ranges of one generation of an object, each a request of its own, read to its end before it is given."""

from __future__ import annotations

from asyncrec.errors import ObjectChangedError, StorageError, TransientStorageError
from asyncrec.storage import ObjectInfo, RangedSource, parse_content_range

from .bucket import Bucket
from .protocol import object_url, range_header

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
        super().__init__(self._shown, start=start, end=end, etag=etag)

    async def look(self) -> ObjectInfo:
        resource = await self._bucket.resource(self._key, f"{self._shown}: opening")
        params = {"alt": "media", "ifGenerationMatch": resource.generation}
        self._url = object_url(self._bucket.endpoint, self._bucket.name, self._key, **params)
        return resource.info

    async def fetch(self, start: int, end: int) -> list[bytes]:
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
                span = parse_content_range(answer.headers.get("Content-Range"))[:2]
            except ValueError as error:
                raise StorageError(f"{what}: {error}") from None
        if span != (start, end):
            raise StorageError(f"{what}: the store sent bytes {span[0]:,} to {span[1]:,} instead")
        if len(answer.body) != end - start:
            raise TransientStorageError(f"{what}: {len(answer.body):,} bytes came")
        return [answer.body]
