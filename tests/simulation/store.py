"""An object store of a world: honest to its contract, and to what real stores are beyond it.

Each request takes its time, may fail before its effect or after it, and may take effect when nobody waits any more: the
client was killed, or told that it failed. A list is read page by page while others write. With ``lax`` a condition is
looked at when an upload begins, and not when its several parts are completed, as Ceph does it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import anyio
from crc32c import crc32c

from asyncrec.errors import ObjectChangedError, ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage.base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage, StorageFactory
from asyncrec.storage.prefixed import PrefixedStorage
from asyncrec.storage.url import check_key

from .process import PROCESS, Killed, Process

__all__ = ["SCHEME", "Bucket", "BucketStorage", "factory"]

SCHEME = "sim"


@dataclass(frozen=True, slots=True)
class _Object:
    data: bytes
    info: ObjectInfo


class Bucket:
    """What the store has.

    Attributes:
        failing: the share of requests that fail.
        down_until: no request is answered before.
        parts: bytes of a part.
        page: keys of one page of a list.
        short: the share of blocks that are shorter than they may be.
    lost: a publication that is told to have failed may have taken effect.
    late: it may also do so up to a minute later.
    """

    def __init__(self, loop: Any, rng: random.Random, *, epoch: float) -> None:
        self.objects: dict[str, _Object] = {}
        self.unfinished: dict[str, _Sink] = {}
        self.failing = 0.0
        self.down_until = 0.0
        self.parts = 1 << 20
        self.lax = False
        self.late = False
        self.short = 0.0
        self.lost = True
        self.checksums = True
        self.latency = rng.choice((0.0, 0.001, 0.05, 0.5))
        self.page = rng.choice((3, 1000, 1000))
        self.faults = 0
        self._loop = loop
        self._rng = rng
        self._epoch = epoch
        self._versions = itertools.count(1)
        self._flying: list[tuple[Process, Callable[[], object]]] = []

    def killed(self, process: Process) -> None:
        """What it had sent is on its way, or was lost."""
        for owner, effect in list(self._flying):
            if owner is process and self._rng.random() < 0.5:
                self._land_later(effect)
        self._flying = [(owner, effect) for owner, effect in self._flying if owner is not process]

    def publish(self, key: str, data: bytes, *, exclusive: bool) -> ObjectInfo:
        if exclusive and key in self.objects:
            raise ObjectExistsError(f"{SCHEME}://bucket/{key}: it is there already, and was to be created")
        modified = datetime.fromtimestamp(self._epoch + self._loop.now, UTC)
        checksum = crc32c(data) if self.checksums else None
        info = ObjectInfo(key, len(data), f"v{next(self._versions)}", checksum, modified)
        self.objects[key] = _Object(data, info)
        return info

    async def request(self, what: str, effect: Callable[[], Any]) -> Any:
        """One: its way there, its effect, and the answer's way."""
        process = PROCESS.get()
        if process is None or process.dead:
            raise Killed
        flight = (process, effect)
        fate = self._fate(what)
        self._loop.log.note(f"store {what} {fate}")
        self._flying.append(flight)
        try:
            await self._travel()
            while self._loop.now < self.down_until:
                await anyio.sleep(min(20.0, self.down_until - self._loop.now))
                raise TransientStorageError(f"{what}: the store is down")
        finally:
            if not process.dead and flight in self._flying:
                self._flying.remove(flight)
        if fate == "before":
            raise TransientStorageError(f"{what}: it failed")
        if fate == "late":
            self._land_later(effect)
            raise TransientStorageError(f"{what}: no answer came")
        result = effect()
        if self.latency:
            await self._travel()
        if fate == "after":
            raise TransientStorageError(f"{what}: the answer was lost")
        return result

    def _fate(self, what: str) -> str:
        if self._rng.random() >= self.failing:
            return ""
        self.faults += 1
        if not what.startswith(("publish", "delete")):
            return self._rng.choice(("before", "after"))
        fates = ["before"]
        if self.lost or not what.startswith("publish"):
            fates.append("after")
        if self.late:
            fates.append("late")
        return self._rng.choice(fates)

    async def _travel(self) -> None:
        await anyio.sleep(self._rng.random() * self.latency if self.latency and self._rng.random() < 0.5 else 0.0)

    def _land_later(self, effect: Callable[[], object]) -> None:
        def land() -> None:
            try:
                effect()
            except (ObjectExistsError, ObjectNotFoundError):
                pass

        # By nobody: the process may be dead.
        context = self._loop.nobody.copy()
        self._loop.call_later(self._rng.random() * 60.0, land, context=context)


class BucketStorage(Storage):
    """A client of the bucket; also lists and removes unfinished uploads, as S3 does."""

    def __init__(self, bucket: Bucket, root: str = f"{SCHEME}://bucket") -> None:
        self.bucket = bucket
        self.root = root

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _Sink(self.bucket, check_key(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, etag: str | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return _Source(self.bucket, check_key(key), start, end, etag)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        last = start_after
        while True:
            page = await self.bucket.request(f"list {prefix} after {last}", lambda after=last: self._page(prefix, after))
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


def _found(bucket: Bucket, key: str) -> _Object:
    found = bucket.objects.get(key)
    if found is None:
        raise ObjectNotFoundError(f"{SCHEME}://bucket/{key}: there is no such object")
    return found


class _Sink(ByteSink):
    def __init__(self, bucket: Bucket, key: str, *, exclusive: bool) -> None:
        self.chunk_size = bucket.parts
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
                    raise ObjectExistsError(f"{SCHEME}://bucket/{key}: it is there already, and was to be created")

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
        # Of one part the store decides; of several it has decided when the upload began, where it is lax.
        exclusive = self._exclusive and not (bucket.lax and len(self._parts) > 1)

        def complete() -> ObjectInfo:
            if self._parts and bucket.unfinished.pop(self._id, None) is None:
                raise ObjectNotFoundError(f"{self.key}: there is no such upload")
            return bucket.publish(self.key, b"".join(self._parts), exclusive=exclusive)

        try:
            with anyio.CancelScope(shield=True):  # as real backends do it: its answer says whether it is there
                self.published = await bucket.request(f"publish {self.key}", complete)
        except TransientStorageError:
            raise  # it may take effect later
        except BaseException:
            bucket.unfinished.pop(self._id, None)
            raise


class _Source(ByteSource):
    def __init__(self, bucket: Bucket, key: str, start: int, end: int | None, etag: str | None) -> None:
        self._bucket, self._key, self._position, self._end, self._etag = bucket, key, start, end, etag

    async def __aenter__(self) -> _Source:
        found = await self._bucket.request(f"get {self._key}", lambda: _found(self._bucket, self._key))
        if self._etag not in (None, found.info.etag):
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
    """For `register_writer_factory`: ``sim://bucket/...`` in the world that runs."""

    @asynccontextmanager
    async def open_bucket(url: str) -> AsyncIterator[Storage]:
        await anyio.lowlevel.checkpoint()
        prefix = url.partition("://")[2].partition("/")[2]
        storage = BucketStorage(bucket())
        yield PrefixedStorage(storage, prefix) if prefix else storage

    return StorageFactory("sim", (SCHEME,), open_bucket)
