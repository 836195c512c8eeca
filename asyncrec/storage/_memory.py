"""Objects in this process's memory: `MemoryStorage`, ``memory://name/...``. For tests, examples and small caches.

All storages of one name share one store for as long as the process lives; `MemoryStorage()` without a name has one of
its own. It keeps the contract to the letter, so that it serves as the reference: every operation is a checkpoint, reads
are pinned to a version, checksums are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from types import TracebackType

import anyio
from crc32c import crc32c

from asyncrec.errors import ArgumentValueError, ObjectChangedError, ObjectExistsError, ObjectNotFoundError, StorageError
from asyncrec.plugins import hookimpl
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._url import check_key, join

__all__ = ["MemoryStorage"]

# Small, so that a test of some hundred kilobytes has several chunks; large enough for copying to be what costs.
_CHUNK_SIZE = 64 << 10
# Keys looked at between two checkpoints of a listing.
_LIST_BATCH = 1_000


@dataclass(frozen=True)
class _Object:
    data: bytes
    info: ObjectInfo


@dataclass
class _Store:
    objects: dict[str, _Object] = field(default_factory=dict)
    versions: Iterator[int] = field(default_factory=lambda: count(1))


_named: dict[str, _Store] = {}


class MemoryStorage(Storage):
    """See the module.

    Args:
        name: of the store; `None` for a new one that nobody shares.
        chunk_size: of its sinks.
    """

    def __init__(self, name: str | None = None, *, chunk_size: int = _CHUNK_SIZE) -> None:
        if chunk_size < 1:
            raise ArgumentValueError(f"chunk_size is {chunk_size}; it is a number of bytes, at least 1")
        self.root = f"memory://{name or ''}"
        self.chunk_size = chunk_size
        self._store = _Store() if name is None else _named.setdefault(name, _Store())

    def __repr__(self) -> str:
        return f"MemoryStorage({self.root!r}, {len(self._store.objects)} objects)"

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _MemorySink(self, check_key(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, etag: str | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"the range [{start}, {end}) of {key!r}: offsets count from the beginning")
        return _MemorySource(self, check_key(key), start=start, end=end, etag=etag)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await anyio.lowlevel.checkpoint()
        keys = sorted((_order(key), key) for key in self._store.objects if key.startswith(prefix))
        first = bisect_right(keys, _order(start_after), key=lambda pair: pair[0]) if start_after else 0
        for n, (_, key) in enumerate(keys[first:], 1):
            if n % _LIST_BATCH == 0:
                await anyio.lowlevel.checkpoint()
            found = self._store.objects.get(key)
            if found is not None:
                yield found.info

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        await anyio.lowlevel.checkpoint()
        return self._find(key).info

    async def delete(self, key: str) -> None:
        check_key(key)
        await anyio.lowlevel.checkpoint()
        self._store.objects.pop(key, None)

    def _find(self, key: str) -> _Object:
        found = self._store.objects.get(key)
        if found is None:
            raise ObjectNotFoundError(f"{join(self.root, key)}: there is no such object")
        return found

    def _refuse_existing(self, key: str) -> None:
        if key in self._store.objects:
            raise ObjectExistsError(f"{join(self.root, key)}: it is there already, and was to be created")

    def _publish(self, key: str, data: bytes, checksum: int, *, exclusive: bool) -> ObjectInfo:
        if exclusive:
            self._refuse_existing(key)
        etag = f"v{next(self._store.versions)}"
        info = ObjectInfo(key=key, size=len(data), etag=etag, crc32c=checksum, modified=datetime.now(UTC))
        self._store.objects[key] = _Object(data, info)
        return info


class _MemorySink(ByteSink):
    def __init__(self, storage: MemoryStorage, key: str, *, exclusive: bool) -> None:
        self.chunk_size = storage.chunk_size
        self._storage = storage
        self._key = key
        self._exclusive = exclusive
        self._data = bytearray()
        self._checksum = 0
        self._state = "new"  # open, failed, closed

    async def __aenter__(self) -> _MemorySink:
        if self._state != "new":
            raise RuntimeError("a sink is entered once")
        await anyio.lowlevel.checkpoint()
        if self._exclusive:
            self._storage._refuse_existing(self._key)
        self._state = "open"
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await self._checkpoint()
        for buffer in buffers:
            self._data += buffer
            self._checksum = crc32c(buffer, self._checksum)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        await self._checkpoint()
        return 0

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        failed = self._state == "failed"
        self._state = "closed"
        data, self._data = self._data, bytearray()
        if exc is not None:
            return
        await anyio.lowlevel.checkpoint()
        if failed:
            raise StorageError(f"{self._shown}: not published, because writing it was cancelled before")
        self.published = self._storage._publish(self._key, bytes(data), self._checksum, exclusive=self._exclusive)

    @property
    def _shown(self) -> str:
        return join(self._storage.root, self._key)

    async def _checkpoint(self) -> None:
        if self._state in ("new", "closed"):
            raise anyio.ClosedResourceError
        if self._state == "failed":
            raise StorageError(f"{self._shown}: writing it was cancelled before; it can only be abandoned")
        self._state = "failed"
        await anyio.lowlevel.checkpoint()
        self._state = "open"


class _MemorySource(ByteSource):
    def __init__(self, storage: MemoryStorage, key: str, *, start: int, end: int | None, etag: str | None) -> None:
        self._storage = storage
        self._key = key
        self._position = start
        self._end = end
        self._etag = etag
        self._data: bytes | None = None

    async def __aenter__(self) -> _MemorySource:
        await anyio.lowlevel.checkpoint()
        found = self._storage._find(self._key)
        if self._etag not in (None, found.info.etag):
            raise ObjectChangedError(
                f"{join(self._storage.root, self._key)}: it is not the version that was opened before; open it again "
                "from the start"
            )
        self.info = found.info
        self._data = found.data
        self._end = found.info.size if self._end is None else min(self._end, found.info.size)
        return self

    async def receive(self, max_bytes: int) -> bytes:
        if self._data is None:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes is {max_bytes}; it is at least 1")
        await anyio.lowlevel.checkpoint()
        assert self._end is not None, "set on entering"
        # An empty slice where the position is past the end.
        block = self._data[self._position : min(self._position + max_bytes, self._end)]
        self._position += len(block)
        return block

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._data = None


def _order(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


@asynccontextmanager
async def open_memory(url: str, *, chunk_size: int = _CHUNK_SIZE) -> AsyncIterator[Storage]:
    """The store that ``memory://name`` means, or what lies below a prefix of it."""
    name, _, prefix = url.partition("://")[2].partition("/")
    storage = MemoryStorage(name, chunk_size=chunk_size)
    yield PrefixedStorage(storage, prefix) if prefix else storage


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory("memory", ("memory",), open_memory)]
