"""The client of a world's object store, which fulfils the storage contract but otherwise behaves like real stores.

Each request takes time, may fail before or after it takes effect, and may take effect after its client was killed or
got an error. Listings are read page by page while other processes write. With ``lax``, a condition is checked when an
upload begins rather than when it is completed, as in Ceph.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio

from asyncrec.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._url import check_key

from .bucket import SCHEME, Bucket, Stored
from .process import PROCESS, Killed

__all__ = ["SCHEME", "BucketStorage", "factory"]


class BucketStorage(Storage):
    """A client of the bucket. Like the S3 client, it can also list and remove unfinished uploads."""

    def __init__(self, bucket: Bucket, root: str = f"{SCHEME}://bucket") -> None:
        self.bucket = bucket
        self.root = root

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _Sink(self.bucket, check_key(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return _Source(self.bucket, check_key(key), start, end, info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        last = start_after
        while True:
            page = await self.bucket.request(
                f"list {prefix} after {last}", lambda after=last: self._page(prefix, after)
            )
            for info in page:
                yield info
            if len(page) < self.bucket.page:
                return
            last = page[-1].key

    def _page(self, prefix: str, after: str) -> list[ObjectInfo]:
        keys = sorted(key for key in self.bucket.objects if key.startswith(prefix) and key > after)
        return [self.bucket.objects[key].info for key in keys[: self.bucket.page]]

    async def head(self, key: str) -> ObjectInfo:
        info: ObjectInfo = await self.bucket.request(f"head {key}", lambda: _found(self.bucket, key).info)
        return info

    async def delete(self, key: str) -> None:
        await self.bucket.request(f"delete {key}", lambda: self.bucket.objects.pop(check_key(key), None))

    async def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        uploads = await self.bucket.request(f"uploads {prefix}", lambda: dict(self.bucket.unfinished))
        for upload, sink in sorted(uploads.items()):
            if sink.key.startswith(prefix):
                yield ObjectInfo(sink.key, 0, upload, None, sink.begun)

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        await self.bucket.request(f"abort {upload.key}", lambda: self.bucket.unfinished.pop(upload.etag, None))


def _found(bucket: Bucket, key: str) -> Stored:
    found = bucket.objects.get(key)
    if found is None:
        raise ObjectNotFoundError(f"{SCHEME}://bucket/{key}: the object does not exist")
    return found


class _Sink(ByteSink):
    def __init__(self, bucket: Bucket, key: str, *, exclusive: bool) -> None:
        # Objects that decide conflicts are uploaded in one part, whatever the part size of shards.
        decides = any(folder in f"/{key}" for folder in ("/_manifest/", "/_flush/"))
        self.chunk_size = max(bucket.parts, 1 << 20) if decides else bucket.parts
        self.key = key
        self.begun = datetime.fromtimestamp(bucket._epoch + bucket._loop.now, UTC)
        self._bucket = bucket
        self._exclusive = exclusive
        self._parts: list[bytes] = []
        self._failed = False
        self._id = f"u{next(bucket._versions):06d}"

    async def __aenter__(self) -> _Sink:
        bucket, key = self._bucket, self.key
        if self._exclusive:

            def look() -> None:
                if key in bucket.objects:
                    raise ObjectExistsError(
                        f"{SCHEME}://bucket/{key}: the object already exists, but was to be created exclusively"
                    )

            await bucket.request(f"look {key}", look)
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        self._failed = True
        self._bucket.unfinished[self._id] = self
        await self._bucket.request(f"part {self.key} {len(data)}", lambda: self._parts.append(data))
        self._failed = False

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await anyio.lowlevel.checkpoint()
        return 0

    async def __aexit__(self, kind: Any, error: Any, traceback: Any) -> None:
        bucket = self._bucket
        process = PROCESS.get()
        if process is None or process.dead:
            raise Killed
        if error is not None or self._failed:
            bucket.unfinished.pop(self._id, None)
            if error is None:
                raise TransientStorageError(f"{self.key}: a part was not sent; it can only be abandoned")
            return
        # The store checks the condition now. For several parts, a lax store checked it when the upload began.
        exclusive = self._exclusive and not (bucket.lax and len(self._parts) > 1)

        def complete() -> ObjectInfo:
            if self._parts and bucket.unfinished.pop(self._id, None) is None:
                raise ObjectNotFoundError(f"{self.key}: there is no such upload")
            return bucket.publish(self.key, b"".join(self._parts), exclusive=exclusive)

        try:
            with anyio.CancelScope(shield=True):  # as in real backends, to learn whether the object exists
                self.published = await bucket.request(f"publish {self.key}", complete)
        except TransientStorageError:
            raise  # the request may take effect later
        except BaseException:
            bucket.unfinished.pop(self._id, None)
            raise


class _Source(ByteSource):
    def __init__(self, bucket: Bucket, key: str, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._bucket, self._key, self._position, self._end, self._known = bucket, key, start, end, info

    async def __aenter__(self) -> _Source:
        found = await self._bucket.request(f"get {self._key}", lambda: _found(self._bucket, self._key))
        if self._known is not None and self._known.etag != found.info.etag:
            raise ObjectChangedError(f"{self._key}: it is not the version that was opened before")
        self.info = found.info
        self._data = found.data
        self._end = len(found.data) if self._end is None else min(self._end, len(found.data))
        return self

    async def receive(self, max_bytes: int) -> bytes:
        assert self._end is not None
        begin, until = self._position, min(self._position + max_bytes, self._end)
        if until - begin > 1 and self._bucket._rng.random() < self._bucket.short:
            until = self._bucket._rng.randrange(begin + 1, until)
        block: bytes = await self._bucket.request(f"receive {self._key}", lambda: self._data[begin:until])
        self._position = begin + len(block)
        return block

    async def __aexit__(self, *error: object) -> None:
        self._data = b""


def factory(bucket: Callable[[], Bucket]) -> StorageFactory:
    """Return the factory of ``sim://bucket/...`` in the running world, for `register_writer_factory`."""

    @asynccontextmanager
    async def open_bucket(url: str) -> AsyncIterator[Storage]:
        await anyio.lowlevel.checkpoint()
        prefix = url.partition("://")[2].partition("/")[2]
        storage = BucketStorage(bucket())
        yield PrefixedStorage(storage, prefix) if prefix else storage

    return StorageFactory("sim", (SCHEME,), open_bucket)
