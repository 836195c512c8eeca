"""`GcsSource` reads one generation of an object in ranges or, if the reader keeps up, from a single response."""

from __future__ import annotations

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import RangedSource, parse_content_range

from .bucket import Bucket
from .protocol import object_url, parse_media, range_header
from .session import Incoming

__all__ = ["WINDOW", "GcsSource"]

# The maximum number of bytes per request. The latency of about 30 ms is small compared with such a transfer.
WINDOW = 8 * 1024 * 1024


class GcsSource(RangedSource):
    """A source for one object, identified by its generation."""

    window = WINDOW

    def __init__(self, bucket: Bucket, key: str, *, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._bucket = bucket
        self._key = key
        self._shown = bucket.shown(key)
        super().__init__(self._shown, start=start, end=end, info=info, slots=bucket.streams)

    async def look(self) -> ObjectInfo:
        return (await self._bucket.resource(self._key, f"{self._shown}: opening")).info

    async def first(self, start: int, end: int | None) -> tuple[ObjectInfo, Incoming] | None:
        what = f"{self._shown}: opening"
        # Request a whole object without a range, because an empty object has no valid range.
        headers = {"Range": range_header(start, end)} if start or end is not None else {}
        incoming = await self._bucket.download(self._url(), what=what, headers=headers, expect=(200, 206, 416))
        try:
            info = parse_media(self._key, incoming.status, incoming.headers) if incoming.status != 416 else None
            if info is not None:
                self._check_span(incoming, start, info.size if end is None else min(end, info.size), what, info.size)
        except BaseException:
            await incoming.aclose()
            raise
        if info is None:
            await incoming.aclose()
            return None
        return info, incoming

    async def fetch(self, start: int, end: int) -> list[bytes]:
        incoming = await self.stream(start, end)
        try:
            blocks = await incoming.receive(end - start + 1)  # one more, because the end releases the connection
        finally:
            await incoming.aclose()
        if (size := sum(map(len, blocks))) != end - start:
            raise TransientStorageError(
                f"{self._shown}: reading bytes {start:,} to {end:,}: the response had {size:,} bytes"
            )
        return blocks

    async def stream(self, start: int, end: int) -> Incoming:
        what = f"{self._shown}: reading bytes {start:,} to {end:,}"
        url = self._url(ifGenerationMatch=self.info.etag)
        incoming = await self._bucket.download(url, what=what, headers={"Range": range_header(start, end)}, pinned=True)
        try:
            self._check_span(incoming, start, end, what, self.info.size)
        except StorageError:
            await incoming.aclose()
            raise
        return incoming

    def _url(self, **params: str) -> str:
        return object_url(self._bucket.endpoint, self._bucket.name, self._key, alt="media", **params)

    def _check_span(self, incoming: Incoming, start: int, end: int, what: str, size: int) -> None:
        """Check the range of a response. A 200 has the whole object, so it is valid only if that was requested."""
        try:
            if incoming.status == 200:  # possibly not from the store but, for example, a proxy's page
                span = (0, int(incoming.headers.get("Content-Length", size)))
            else:
                span = parse_content_range(incoming.headers.get("Content-Range"))[:2]
        except ValueError as error:
            raise StorageError(f"{what}: {error}") from None
        if span != (start, end):
            raise StorageError(f"{what}: the store sent bytes {span[0]:,} to {span[1]:,} instead")
