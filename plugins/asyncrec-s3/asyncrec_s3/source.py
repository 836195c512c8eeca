"""`S3Source` reads one version of an object in ranges or, if the reader keeps up, from a single response."""

from __future__ import annotations

from collections.abc import Sequence

from asyncrec.errors import ObjectChangedError, TransientStorageError
from asyncrec.storage import ObjectInfo
from asyncrec.storage.http import LongAnswer, RangedSource

from .parts import MIB
from .shared import Shared

__all__ = ["S3Source"]

# The maximum number of bytes that one range request fetches. The latency of a request (about 30 ms on S3) is small
# compared with the transfer of 8 MiB over one connection.
WINDOW = 8 * MIB
# The maximum number of bytes kept to be compared with a second response, because the first may name a wrong version.
_COMPARED = MIB // 2
# Free a large block once, after which glibc keeps up to twice that much freed memory instead of returning it to the
# system. Otherwise, reading in blocks of 256 KiB would spend a third of its time on page faults.
bytes(WINDOW)


class S3Source(RangedSource):
    """A source for one object, created by `S3Storage.open_source`, and its own context manager."""

    window = WINDOW

    def __init__(self, shared: Shared, key: str, *, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._shared = shared
        self._shown = key
        self._key = shared.options.prefix + key
        self._certain = info is not None  # whether the version was passed, or confirmed by a second response
        self._start = start
        self._given = bytearray()  # the bytes returned so far, all from one response
        super().__init__(
            f"read s3://{shared.options.bucket}/{self._key}", start=start, end=end, info=info, slots=shared.streams
        )

    async def __aenter__(self) -> RangedSource:
        self._shared.check()
        return await super().__aenter__()

    async def look(self) -> ObjectInfo:
        return (await self._shared.bucket.head(self._key, shown=self._shown)).info

    async def receive(self, max_bytes: int) -> bytes:
        self._shared.check()
        block = await super().receive(max_bytes)
        if not self._certain:
            self._given += block
            if len(self._given) > _COMPARED:
                self._be_certain()
        return block

    async def first(self, start: int, end: int | None) -> tuple[ObjectInfo, LongAnswer] | None:
        return await self._shared.bucket.begin(self._key, start, end, shown=self._shown)

    async def fetch(self, start: int, end: int) -> Sequence[bytes]:
        while True:
            try:
                blocks = await self._read(start, end, self.info)
            except ObjectChangedError as error:
                await self._changed(error)
                continue
            self._be_certain()
            return blocks

    async def stream(self, start: int, end: int) -> LongAnswer:
        try:
            return await self._shared.bucket.download(self._key, start, end, self.info.etag)
        except ObjectChangedError as error:
            await self._changed(error)
            raise

    async def _changed(self, error: ObjectChangedError) -> None:
        """Handle a response that names another version. The version has changed only if HEAD agrees.

        Even then, the change is ignored if only one response had named the old version, the new version has the same
        size, and it begins with the few bytes that the caller has already received. In that case, the first response
        was damaged.

        Raises:
            TransientStorageError: HEAD still returns the old version.
            ObjectChangedError: ``error``, because the object has changed.
        """
        found = await self.look()
        if found.etag == self.info.etag:
            raise TransientStorageError(
                f"{self._what}: the etag of a response differs from that of the object"
            ) from error
        if self._certain or found.size != self.info.size:
            raise error
        if given := self._given:
            again = await self._read(self._start, self._start + len(given), found)
            if b"".join(again) != given:
                raise error
        self.info = found

    async def _read(self, start: int, end: int, version: ObjectInfo) -> Sequence[bytes]:
        return await (await self._shared.bucket.download(self._key, start, end, version.etag)).whole()

    def _be_certain(self) -> None:
        self._certain, self._given = True, bytearray()
