"""`PrefixedStorage` is the part of another storage below a prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import anyio

from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage, UnfinishedUploads
from asyncrec.storage._listing import closing_listing
from asyncrec.storage._url import check_key, join

T = TypeVar("T")


def folder_at(storage: Storage, prefix: str) -> Storage:
    """Return the part of a storage below a prefix, or ``storage`` itself if the prefix is ``""``."""
    return PrefixedStorage(storage, prefix) if prefix else storage


class PrefixedStorage(Storage):
    """The objects of ``storage`` below ``prefix``, with keys relative to ``prefix``. It never closes ``storage``.

    Args:
        prefix: a folder, which must be a valid key. A trailing slash is optional.

    If ``storage`` offers `UnfinishedUploads`, so does this storage.
    """

    def __new__(cls, storage: Storage, prefix: str) -> PrefixedStorage:
        # Callers detect optional interfaces by type, so this storage's type must depend on the inner storage's
        # interfaces.
        return super().__new__(_PrefixedUploads if isinstance(storage, UnfinishedUploads) else PrefixedStorage)

    def __init__(self, storage: Storage, prefix: str) -> None:
        self._storage = storage
        self._prefix = check_key(prefix.rstrip("/")) + "/"
        self.root = join(storage.root, self._prefix.rstrip("/"))
        self.read_ahead = storage.read_ahead
        self.flush_level = storage.flush_level
        self.lists_by_pages = storage.lists_by_pages

    @property
    def storage(self) -> Storage:
        """The inner storage."""
        return self._storage

    @property
    def prefix(self) -> str:
        """The prefix of this part's keys in `storage`, with a trailing slash."""
        return self._prefix

    def __repr__(self) -> str:
        return f"PrefixedStorage({self._storage!r}, {self._prefix!r})"

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return _Sink(self._storage.open_sink(self._inner(key), exclusive=exclusive), len(self._prefix))

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        inner = self._inner(key)
        known = None if info is None else replace(info, key=inner)
        opening = self._storage.open_source(inner, start=start, end=end, info=known)
        return _Source(opening, len(self._prefix))

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        after = self._prefix + start_after if start_after else ""
        return self._listing(self._storage.list_objects(self._prefix + prefix, start_after=after))

    async def _listing(self, inner: AsyncIterator[ObjectInfo]) -> AsyncIterator[ObjectInfo]:
        async with closing_listing(inner) as listing:
            async for info in listing:
                yield self._outer(info)

    async def head(self, key: str) -> ObjectInfo:
        return self._outer(await self._storage.head(self._inner(key)))

    async def delete(self, key: str) -> None:
        await self._storage.delete(self._inner(key))

    # Call the inner storage's own methods for entire objects, which may be faster than the default implementations.

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        return await self._storage.get(self._inner(key), max_bytes=max_bytes)

    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        return self._outer(await self._storage.put(self._inner(key), data, exclusive=exclusive))

    def _inner(self, key: str) -> str:
        return self._prefix + check_key(key)

    def _outer(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, key=info.key[len(self._prefix) :])


class _PrefixedUploads(PrefixedStorage):
    """A `PrefixedStorage` that implements `UnfinishedUploads`, because the inner storage does."""

    _storage: Any  # a Storage that is also UnfinishedUploads, which no type can express

    def list_unfinished(self, prefix: str = "") -> AsyncIterator[ObjectInfo]:
        return self._listing(self._storage.list_unfinished(self._prefix + prefix))

    async def remove_unfinished(self, upload: ObjectInfo) -> None:
        await self._storage.remove_unfinished(replace(upload, key=self._prefix + upload.key))


class _Opened(Generic[T]):
    """Base class for wrappers of the inner storage's sinks and sources, each of which is also a context manager."""

    def __init__(self, opening: AbstractAsyncContextManager[T], cut: int) -> None:
        self._opening = opening
        self._entered: T | None = None
        self._cut = cut

    async def __aenter__(self) -> Self:
        self._entered = await self._opening.__aenter__()
        return self

    @property
    def _inner(self) -> T:
        if self._entered is None:
            raise anyio.ClosedResourceError("its context was not entered")
        return self._entered

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._opening.__aexit__(exc_type, exc, traceback)


class _Sink(_Opened[ByteSink], ByteSink):
    """A sink of the inner storage. The key in `published` is relative to the prefix."""

    @property
    def chunk_size(self) -> int:  # type: ignore[override]  # read-only, computed on each access
        return self._inner.chunk_size

    def hold_at_most(self, size: int) -> None:
        self._inner.hold_at_most(size)

    async def send(self, buffers: Sequence[Buffer]) -> None:
        await self._inner.send(buffers)

    async def flush(self, tail: Sequence[Buffer]) -> int:
        return await self._inner.flush(tail)

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        try:
            return await super().__aexit__(exc_type, exc, traceback)
        finally:
            if (info := self._inner.published) is not None:
                self.published = replace(info, key=info.key[self._cut :])


class _Source(_Opened[ByteSource], ByteSource):
    """A source of the inner storage. The key in `info` is relative to the prefix."""

    @property
    def info(self) -> ObjectInfo:  # type: ignore[override]  # read-only, computed on each access
        info = self._inner.info
        return replace(info, key=info.key[self._cut :])

    @property
    def buffered(self) -> int:  # type: ignore[override]  # read-only, computed on each access
        return self._inner.buffered

    @property
    def flowing(self) -> bool:  # type: ignore[override]  # read-only, computed on each access
        return self._inner.flowing

    async def receive(self, max_bytes: int) -> bytes:
        return await self._inner.receive(max_bytes)
