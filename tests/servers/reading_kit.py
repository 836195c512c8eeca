"""The storage kit's read tests, for read-only storages: the objects to be read are stored by other means."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from asyncrec.errors import StorageError
from asyncrec.storage import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.testing._storage.reading import ReadingCases
from asyncrec.testing._storage.urls import SchemeCases

__all__ = ["ReadingKit"]


class ReadingKit(ReadingCases, SchemeCases):
    """Base class of these tests. Derived classes define how to open the storage and how to store its objects."""

    def open_reading(self) -> AbstractAsyncContextManager[Storage]:
        raise NotImplementedError

    def store(self, key: str, data: bytes) -> None:
        raise NotImplementedError

    def remove(self, key: str) -> None:
        raise NotImplementedError

    def stored(self, key: str) -> bytes | None:
        raise NotImplementedError

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        async with self.open_reading() as storage:
            yield _Filled(storage, self)

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        self.store(key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        return self.stored(key)


class _Filled(Storage):
    """A storage that reads through the storage under test, but writes by means of the kit."""

    def __init__(self, storage: Storage, kit: ReadingKit) -> None:
        self.root = storage.root
        self._storage = storage
        self._kit = kit

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        raise NotImplementedError

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return self._storage.open_source(key, start=start, end=end, info=info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        try:
            async for info in self._storage.list_objects(prefix, start_after=start_after):
                yield info
        except StorageError as error:
            if "cannot be listed" not in str(error):
                raise
            yield await self._storage.head(prefix)  # a web server cannot list objects

    async def head(self, key: str) -> ObjectInfo:
        return await self._storage.head(key)

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        self._kit.store(key, bytes(data))
        return await self._storage.head(key)

    async def delete(self, key: str) -> None:
        self._kit.remove(key)
