"""`GcsStorage` is a bucket as a `Storage`. It supports only asyncio; `asyncrec_gcs.plugin` bridges it to trio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial

from asyncrec.errors import ArgumentTypeError, StorageError
from asyncrec.storage import DEFAULT, ByteSink, ByteSource, ObjectInfo, RetryPolicy, Storage, check_key, retrying

from .bucket import Bucket
from .options import Options
from .session import CLIENTS
from .sink import GcsSink
from .source import WINDOW, GcsSource

# The maximum number of objects that GCS returns per page.
_PAGE = 1_000


class GcsStorage(Storage):
    """A bucket as a `Storage`, whose keys are the objects' names and whose etags are their generations.

    A storage belongs to its event loop and cannot be pickled. Another process must open its own storage.
    """

    read_ahead = 2 * WINDOW  # one window is processed while the next one arrives

    def __init__(self, bucket: Bucket) -> None:
        self.root = bucket.root
        self._bucket = bucket

    def __repr__(self) -> str:
        return f"GcsStorage({self.root!r})"

    def __reduce__(self) -> str:
        raise ArgumentTypeError(
            f"{self!r} cannot be sent to another process; open another storage there with the same options"
        )

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return GcsSink(self._bucket, check_key(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return GcsSource(self._bucket, check_key(key), start=start, end=end, info=info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        what = f"{self._bucket.shown(prefix)}*: listing"
        page, after = "", start_after.encode()
        while True:
            ask = partial(self._bucket.page, prefix=prefix, start_offset=start_after, page=page, size=_PAGE, what=what)
            infos, following = await retrying(ask, what=what, policy=self._bucket.policy)
            for info in infos:
                # The store's offset is inclusive, and some emulators ignore it.
                if info.key.encode() > after:
                    yield info
            if not following:
                return
            if following == page:
                raise StorageError(f"{what}: the store announces another page but returns the same page again")
            page = following

    async def head(self, key: str) -> ObjectInfo:
        return (await self._bucket.resource(check_key(key), f"{self._bucket.shown(key)}: looking")).info

    async def delete(self, key: str) -> None:
        await self._bucket.remove(check_key(key))


@asynccontextmanager
async def open_bucket(options: Options, *, policy: RetryPolicy = DEFAULT) -> AsyncIterator[Storage]:
    """Open the storage for ``options`` on the running asyncio loop.

    Raises:
        StoragePermissionError: the credentials file is not usable.
    """
    async with CLIENTS.use(options.access) as client:
        yield GcsStorage(Bucket(client, options, policy))
