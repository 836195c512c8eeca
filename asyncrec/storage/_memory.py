"""`MemoryStorage` (``memory://name/...``) keeps objects in this process. It is for tests, examples and small caches.

All storages with the same name share one store for the life of the process; `MemoryStorage()` without a name has its
own store. It follows the contract exactly, so it serves as the reference. Every operation is a checkpoint, reads are
pinned to a version, and checksums are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count

import anyio

from asyncrec._framing.crc import crc32c
from asyncrec.errors import ArgumentValueError, ObjectChangedError, ObjectExistsError, ObjectNotFoundError
from asyncrec.plugins import hookimpl
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._sink_state import SinkState
from asyncrec.storage._url import check_key, join

# Small enough that a test of a few hundred kilobytes has several chunks, large enough that copying is the main cost.
_CHUNK_SIZE = 64 << 10
# The number of listed keys between two checkpoints.
_LIST_BATCH = 1_000


@dataclass(frozen=True)
class _Object:
    data: bytes
    info: ObjectInfo


class _Objects(dict[str, _Object]):
    """The objects of one store, by key."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._versions = count(1)

    def path(self, key: str) -> str:
        """Return the full URL of an object, for messages."""
        return join(self._root, key)

    def find(self, key: str) -> _Object:
        found = self.get(key)
        if found is None:
            raise ObjectNotFoundError(f"{self.path(key)}: the object does not exist")
        return found

    def refuse(self, key: str) -> None:
        """Raise ObjectExistsError if the object exists."""
        if key in self:
            raise ObjectExistsError(f"{self.path(key)} exists already").with_remedy("choose another name")

    def add(self, key: str, data: bytes, checksum: int) -> ObjectInfo:
        etag = f"v{next(self._versions)}"
        info = ObjectInfo(key=key, size=len(data), etag=etag, crc32c=checksum, modified=datetime.now(UTC))
        self[key] = _Object(data, info)
        return info


_named: dict[str, _Objects] = {}


class MemoryStorage(Storage):
    """A storage in memory that follows the contract exactly.

    Args:
        name: the name of the store. With `None`, a new store is created and not shared.
        chunk_size: the chunk size of the store's sinks.
    """

    def __init__(self, name: str | None = None, *, chunk_size: int = _CHUNK_SIZE) -> None:
        if chunk_size < 1:
            raise ArgumentValueError(f"chunk_size must be at least 1 byte, not {chunk_size}")
        self.root = f"memory://{name or ''}"
        self.chunk_size = chunk_size
        self._objects = _Objects(self.root) if name is None else _named.setdefault(name, _Objects(self.root))

    def __repr__(self) -> str:
        return f"MemoryStorage({self.root!r}, {len(self._objects)} objects)"

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _MemorySink(self._objects, check_key(key), exclusive=exclusive, chunk_size=self.chunk_size)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"the range [{start}, {end}) of {key!r}: offsets count from the beginning")
        return _MemorySource(self._objects, check_key(key), start=start, end=end, info=info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        await anyio.lowlevel.checkpoint()
        keys = sorted((_order(key), key) for key in self._objects if key.startswith(prefix))
        first = bisect_right(keys, _order(start_after), key=lambda pair: pair[0]) if start_after else 0
        for n, (_, key) in enumerate(keys[first:], 1):
            if n % _LIST_BATCH == 0:
                await anyio.lowlevel.checkpoint()
            found = self._objects.get(key)
            if found is not None:
                yield found.info

    async def head(self, key: str) -> ObjectInfo:
        check_key(key)
        await anyio.lowlevel.checkpoint()
        return self._objects.find(key).info

    async def delete(self, key: str) -> None:
        check_key(key)
        await anyio.lowlevel.checkpoint()
        self._objects.pop(key, None)


class _MemorySink(ByteSink):
    def __init__(self, objects: _Objects, key: str, *, exclusive: bool, chunk_size: int) -> None:
        self.chunk_size = chunk_size
        self._objects = objects
        self._key = key
        self._exclusive = exclusive
        self._data = bytearray()
        self._checksum = 0
        self._state = SinkState(objects.path(key))

    async def __aenter__(self) -> _MemorySink:
        with self._state.entering():
            await anyio.lowlevel.checkpoint()
            if self._exclusive:
                self._objects.refuse(self._key)
        return self

    async def send(self, buffers: Sequence[Buffer]) -> None:
        with self._state.working():
            await anyio.lowlevel.checkpoint()
            for buffer in buffers:
                self._data += buffer
                self._checksum = crc32c(buffer, self._checksum)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        with self._state.working():
            await anyio.lowlevel.checkpoint()
        return 0

    async def __aexit__(self, exc_type: object, exc: BaseException | None, traceback: object) -> None:
        data, self._data = self._data, bytearray()
        if self._state.leave(exc):
            await anyio.lowlevel.checkpoint()
            if self._exclusive:
                self._objects.refuse(self._key)
            self.published = self._objects.add(self._key, bytes(data), self._checksum)


class _MemorySource(ByteSource):
    def __init__(self, objects: _Objects, key: str, *, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._objects = objects
        self._key = key
        self._position = start
        self._end = end
        self._known = info
        self._data: bytes | None = None

    async def __aenter__(self) -> _MemorySource:
        await anyio.lowlevel.checkpoint()
        found = self._objects.find(self._key)
        if self._known is not None and self._known.etag != found.info.etag:
            raise ObjectChangedError(
                f"{self._objects.path(self._key)} was replaced since it was opened; open it again and read from the "
                "start"
            )
        self.info = found.info
        self._data = found.data
        self._end = found.info.size if self._end is None else min(self._end, found.info.size)
        return self

    async def receive(self, max_bytes: int) -> bytes:
        if self._data is None:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes must be at least 1, not {max_bytes}")
        await anyio.lowlevel.checkpoint()
        assert self._end is not None, "set by __aenter__"
        # The slice is empty if the position is past the end.
        block = self._data[self._position : min(self._position + max_bytes, self._end)]
        self._position += len(block)
        return block

    async def __aexit__(self, *error: object) -> None:
        self._data = None


def _order(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


@asynccontextmanager
async def open_memory(url: str, *, chunk_size: int = _CHUNK_SIZE) -> AsyncIterator[Storage]:
    """Open the store ``memory://name``, or with ``memory://name/prefix``, the part of it below the prefix."""
    name, _, prefix = url.partition("://")[2].partition("/")
    storage = MemoryStorage(name, chunk_size=chunk_size)
    yield PrefixedStorage(storage, prefix) if prefix else storage


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory("memory", ("memory",), open_memory)]
