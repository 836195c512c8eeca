"""`CachedSource` reads one object through a cache: from its copy, from the cached pieces, or from the store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from types import TracebackType
from typing import Protocol

import anyio

from asyncrec._concurrency.tasks import acquire_in_thread, in_thread, surely_in_thread
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError
from asyncrec.storage._base import ByteSource, ObjectInfo
from asyncrec.storage._cache_files import CachedVersion, Filling
from asyncrec.storage._disk_cache import DiskCache, NotCachedError
from asyncrec.storage._local.disk import Place, read_at
from asyncrec.storage._local.source import LocalSource


class ReadsThrough(Protocol):
    """The part of the interface of `CachedStorage` that a `CachedSource` uses."""

    cache: DiskCache

    async def known(self, key: str, info: ObjectInfo | None) -> ObjectInfo: ...

    def version_of(self, key: str, info: ObjectInfo) -> CachedVersion: ...

    def in_store(self, key: str, info: ObjectInfo, start: int, end: int) -> AbstractAsyncContextManager[ByteSource]: ...

    def check(self, key: str, info: ObjectInfo, found: ObjectInfo) -> None: ...

    async def ensure(self, key: str, info: ObjectInfo, filling: Filling, piece: int) -> None: ...


class _Copy(LocalSource):
    """A source that reads the complete copy of a version in the cache."""

    def __init__(self, cache: DiskCache, version: CachedVersion, start: int, end: int) -> None:
        path = cache.path_of(version)
        super().__init__(
            cache.room.disk, Place(key=version.name, path=path, shown=path), start=start, end=end, info=None
        )
        self._cache = cache
        self._version = version

    def _opened(self) -> int:
        return self._cache.open_copy(self._version)


class CachedSource(ByteSource):
    """A source that reads an object's cached copy, its cached pieces, or the object in the store."""

    def __init__(self, storage: ReadsThrough, key: str, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._storage = storage
        self._key = key
        self._position = start
        self._wanted_end = end
        self._end = start
        self._known = info
        self._entered = False
        self._opening: AbstractAsyncContextManager[ByteSource] | None = None
        self._source: ByteSource | None = None
        self._filling: Filling | None = None

    async def __aenter__(self) -> CachedSource:
        info = self.info = await self._storage.known(self._key, self._known)
        self._end = info.size if self._wanted_end is None else min(self._wanted_end, info.size)
        try:
            if self._position < self._end:
                await self._find(self._storage.cache, self._storage.version_of(self._key, info))
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        self._entered = True
        return self

    async def _find(self, cache: DiskCache, version: CachedVersion) -> None:
        """Open the copy, the cached pieces, or the object in the store."""
        while cache.takes(version.size):
            with suppress(ObjectNotFoundError):
                await self._open(_Copy(cache, version, self._position, self._end))
                return
            try:
                self._filling = await acquire_in_thread(partial(cache.open_filling, version), _close)
            except NotCachedError:
                break
            if self._filling is not None:
                return
        await self._open_in_store()

    async def receive(self, max_bytes: int) -> bytes:
        if not self._entered:
            raise anyio.ClosedResourceError
        if max_bytes < 1:
            raise ArgumentValueError(f"max_bytes must be at least 1, not {max_bytes}")
        if self._source is None and self._filling is not None and self._position < self._end:
            block = await self._from_pieces(self._filling, max_bytes)
            if block is not None:
                self._position += len(block)
                return block
        if self._source is None:
            await anyio.lowlevel.checkpoint()
            return b""
        return await self._source.receive(max_bytes)

    @property
    def buffered(self) -> int:  # type: ignore[override]  # read-only, computed on each access
        return 0 if self._source is None else self._source.buffered

    @property
    def flowing(self) -> bool:  # type: ignore[override]  # read-only, computed on each access
        return self._source is not None and self._source.flowing

    async def _from_pieces(self, filling: Filling, max_bytes: int) -> bytes | None:
        """Return the next bytes, or `None` if the cache cannot store them, so that they must be read from the store."""
        piece = filling.version.piece_of(self._position)
        try:
            await self._storage.ensure(self._key, self.info, filling, piece)
        except NotCachedError:
            await self._open_in_store()
            return None
        most = filling.version.piece(piece)[1]
        size = min(max_bytes, most - self._position, self._end - self._position)
        return await in_thread(read_at, filling.fd, size, self._position)

    async def _open_in_store(self) -> None:
        await self._open(self._storage.in_store(self._key, self.info, self._position, self._end))
        assert self._source is not None, "_open sets the source"
        self._storage.check(self._key, self.info, self._source.info)

    async def _open(self, opening: AbstractAsyncContextManager[ByteSource]) -> None:
        self._source = await opening.__aenter__()
        self._opening = opening

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        self._entered = False
        opening, self._opening, self._source = self._opening, None, None
        filling, self._filling = self._filling, None
        if filling is not None:
            # If this is the last descriptor of an evicted file, closing it waits until the file's blocks are freed.
            if exc_type is GeneratorExit:  # garbage-collected: nothing can be awaited any more
                filling.close()
            else:
                await surely_in_thread(filling.close)
        return None if opening is None else await opening.__aexit__(exc_type, exc, traceback)


def _close(filling: Filling | None) -> None:
    if filling is not None:
        filling.close()
