"""`S3Source`: ranges of one version of an object, or, for a reader that keeps up, one answer to its end."""

from __future__ import annotations

from collections.abc import Sequence

from asyncrec.errors import ObjectChangedError, TransientStorageError
from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import LongAnswer, RangedSource

from .parts import MIB
from .shared import Shared

__all__ = ["S3Source"]

# The most that one request for a range fetches. 8 MiB carries its latency (some 30 ms on S3) at the speed of a
# connection.
WINDOW = 8 * MIB
# glibc gives freed memory back, and takes it anew page by page, until a process has once freed a large block: then it
# keeps twice as much of it for the next. Reading in blocks of 256 KiB, a third of the time went there.
bytes(WINDOW)


class S3Source(RangedSource):
    """A source of one object, which `S3Storage.open_source` makes; its own context."""

    window = WINDOW

    def __init__(self, shared: Shared, key: str, start: int, end: int | None, etag: str | None) -> None:
        self._shared = shared
        self._shown = key
        self._key = shared.options.prefix + key
        self._asked_for = etag
        self._certain = etag is not None  # of the version: by the caller, or by the first bytes read
        super().__init__(
            f"read s3://{shared.options.bucket}/{self._key}", start=start, end=end, etag=etag, slots=shared.streams
        )

    async def look(self) -> ObjectInfo:
        """Find the version to read; one that contradicts the etag asked for is looked at twice: answers get damaged."""
        self._shared.check()
        found = await self._look()
        return found if self._asked_for in (None, found.etag) else await self._look()

    async def receive(self, max_bytes: int) -> bytes:
        self._shared.check()
        return await super().receive(max_bytes)

    async def fetch(self, start: int, end: int) -> Sequence[bytes]:
        while True:
            try:
                blocks = await self._shared.bucket.read(self._key, start, end, self.info.etag)
            except ObjectChangedError as error:
                await self._changed(error)
                continue
            self._certain = True
            return blocks

    async def stream(self, start: int, end: int) -> LongAnswer:
        try:
            return await self._shared.bucket.download(self._key, start, end, self.info.etag)
        except ObjectChangedError as error:
            await self._changed(error)
            raise

    async def _look(self) -> ObjectInfo:
        return (await self._shared.bucket.head(self._key, shown=self._shown)).info

    async def _changed(self, error: ObjectChangedError) -> None:
        """An answer says it is another version: believed if HEAD agrees. Forgiven while nothing was read or pinned, and
        the size is what it was: the caller counts on it."""
        found = await self._look()
        if found.etag == self.info.etag:
            raise TransientStorageError(f"{self._what}: an answer had another etag than the object has") from error
        if self._certain or found.size != self.info.size:
            raise error
        self.info = found
