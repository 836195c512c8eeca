"""`CachedStorage` is a storage that is read through a `DiskCache`. It implements ``cache=`` for all readers.

A copy is looked up by the version of its object. The caller, the manifest (`by_content`) or an earlier listing by this
storage provides the version; otherwise one HEAD request determines it. The bytes are then read from the copy, or from
the pieces in the cache. One process fetches a missing piece for all others. Bytes for which the cache or the disk has
no room are read from the store. A reader itself fetches the pieces that it needs, instead of a background task.
Therefore, no task has to be stopped on exit, and no unneeded piece is fetched.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from datetime import UTC, datetime
from functools import partial
from os import PathLike

import anyio

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.tasks import acquire_in_thread, in_thread
from asyncrec.errors import ArgumentValueError, IntegrityError, ObjectChangedError, StorageError
from asyncrec.storage._base import ByteSource, ObjectInfo, ReadOnlyStorage, Storage
from asyncrec.storage._cache_files import CachedVersion, Filling
from asyncrec.storage._cached_source import CachedSource
from asyncrec.storage._disk_cache import DiskCache, NotCachedError
from asyncrec.storage._listing import closing_listing
from asyncrec.storage._local.disk import Place
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._resuming_source import ResumingSource
from asyncrec.storage._retry import BRIEF, patience
from asyncrec.storage._url import join

# The default limit on the total size of all cached files. It leaves room for other data on the disk of a training
# machine.
CACHE_BYTES = 64 << 30
_READ_BYTES = 1 << 20
# The shortest and longest pauses between two checks of whether another process has fetched a piece.
_POLL_SECONDS = (0.01, 0.1)
# The longest wait for a piece, so that a stopped process does not block the others forever.
_MOST_SECONDS = 60.0
# The maximum number of objects whose versions are remembered. A forgotten version costs one more request.
_MOST_LISTED = 1 << 16
# The etag prefix of versions identified by their content.
_BY_CONTENT = "crc32c:"


async def cache_at(folder: str | PathLike[str] | None, cache_bytes: Size) -> DiskCache | None:
    """Return the cache in a folder, trimmed to ``cache_bytes``, or `None` if there is no folder.

    Raises:
        ValueError: ``cache_bytes`` is below 1.
        StorageError: ``folder`` is not a folder.
    """
    if folder is None:
        return None
    cache = DiskCache(folder, byte_count(cache_bytes, "cache_bytes"))
    await in_thread(cache.room.trim)
    return cache


def through(storage: Storage, cache: DiskCache | None) -> Storage:
    """Return a storage that reads ``storage`` through ``cache``, or ``storage`` itself if there is no cache."""
    return storage if cache is None else CachedStorage(storage, cache)


def by_content(folder: Storage, key: str, size: int, crc32c: int | None) -> ObjectInfo | None:
    """Return the `ObjectInfo` with which an object is read through a cache, from the values in its manifest entry.

    Return `None` if there is no checksum, or if ``folder`` does not read through a cache. The etag is not the store's,
    and is valid only for ``folder``.
    """
    if crc32c is None or not isinstance(folder, CachedStorage):
        return None
    return ObjectInfo(key, size, f"{_BY_CONTENT}{crc32c:08x}", crc32c, datetime.fromtimestamp(0, UTC))


def expect(folder: Storage, key: str, size: int, crc32c: int | None) -> None:
    """Note the version of a small object from its manifest entry, so that the next `get` reads it through the cache.

    Do nothing unless ``folder`` reads through a cache.
    """
    info = by_content(folder, key, size, crc32c)
    if info is not None and isinstance(folder, CachedStorage):
        folder.note(info)


class CachedStorage(ReadOnlyStorage):
    """A storage whose objects are read through a cache, on one event loop. It does not close the inner storage.

    Attributes:
        cache: the cache through which the objects are read.
    """

    why = "this storage reads through a cache and cannot write"

    def __init__(self, storage: Storage, cache: DiskCache) -> None:
        self.cache = cache
        self.root = storage.root
        self.read_ahead = storage.read_ahead
        self.flush_level = storage.flush_level
        self.lists_by_pages = storage.lists_by_pages
        self._storage = storage
        self._listed: dict[str, ObjectInfo] = {}
        self._stored: dict[str, ObjectInfo] = {}  # the store's version of each object, by the copy's name
        self._stuck: set[tuple[str, int]] = set()  # pieces whose wait has timed out
        self._coming: dict[tuple[str, int], anyio.Event] = {}  # pieces that a task of this loop fetches or waits for

    def __repr__(self) -> str:
        return f"CachedStorage({self._storage!r}, {self.cache.room.folder!r})"

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        if start < 0 or (end is not None and end < 0):
            raise ArgumentValueError(f"the range [{start}, {end}) of {key!r}: offsets count from the beginning")
        return CachedSource(self, key, start, end, info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async with closing_listing(self._storage.list_objects(prefix, start_after=start_after)) as listing:
            async for info in listing:
                self.note(info)
                yield info

    async def head(self, key: str) -> ObjectInfo:
        return await self._storage.head(key)

    async def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        if key in self._listed:
            # If the object's version differs from the one in the listing or the manifest, return the object anyway,
            # because the caller checks it.
            with suppress(ObjectChangedError, IntegrityError):
                return await super().get(key, max_bytes=max_bytes)
            self._listed.pop(key, None)
        return await self._storage.get(key, max_bytes=max_bytes)

    def note(self, info: ObjectInfo) -> None:
        """Remember the version of an object."""
        if len(self._listed) >= _MOST_LISTED:
            self._listed.clear()
        self._listed[info.key] = info

    async def known(self, key: str, info: ObjectInfo | None) -> ObjectInfo:
        """Return the remembered version of an object, or the store's description of it."""
        return info or self._listed.get(key) or await self._storage.head(key)

    def version_of(self, key: str, info: ObjectInfo) -> CachedVersion:
        return CachedVersion.of(join(self.root, key), info)

    def copy_of(self, key: str, info: ObjectInfo) -> tuple[Place, Callable[[object], bool], Callable[[], int]]:
        """Return the arguments with which `OpenFiles.open` opens the copy of a version."""
        version = self.version_of(key, info)
        path = self.cache.path_of(version)
        return Place(key=version.name, path=path, shown=path), lambda _: True, partial(self.cache.open_copy, version)

    def in_store(self, key: str, info: ObjectInfo, start: int, end: int) -> AbstractAsyncContextManager[ByteSource]:
        """Open a source of the same version in the store."""
        known = self._stored.get(self.version_of(key, info).name) if info.etag.startswith(_BY_CONTENT) else info
        return self._storage.open_source(key, start=start, end=end, info=known)

    def check(self, key: str, info: ObjectInfo, found: ObjectInfo) -> None:
        """Raise an error if the object found is not the expected one.

        Raises:
            ObjectChangedError: the object has a different size.
            IntegrityError: the store has a different checksum for the object.
        """
        if info.etag == found.etag:
            return
        path = join(self.root, key)
        if found.size != info.size:
            raise ObjectChangedError(
                f"{path} has {found.size:,} bytes, not the expected {info.size:,}. If the data set was rewritten, "
                "open it again; 'asyncrec verify' checks it"
            )
        if None not in (info.crc32c, found.crc32c) and info.crc32c != found.crc32c:
            raise IntegrityError(
                f"{path}: the store reports the crc32c {found.crc32c:08x}, not the expected {info.crc32c:08x}: the "
                "object was replaced or damaged, and was not cached"
            )

    async def drop_damaged(self, key: str, info: ObjectInfo) -> bool:
        """Return whether rereading a damaged record of this version may help. See `DiskCache.drop_damaged`."""
        return self.cache.takes(info.size) and await in_thread(self.cache.drop_damaged, self.version_of(key, info))

    async def ensure(self, key: str, info: ObjectInfo, filling: Filling, piece: int) -> None:
        """Make sure that a piece is in the cache.

        Raises:
            NotCachedError: the disk is full, or the process that fetches the piece is stuck.
        """
        at = filling.version.name, piece
        while not filling.there[piece]:
            if (coming := self._coming.get(at)) is not None:
                await coming.wait()
                await in_thread(filling.look)
                continue
            self._coming[at] = anyio.Event()
            try:
                await self._bring(key, info, filling, piece)
            finally:
                self._coming.pop(at).set()

    async def _bring(self, key: str, info: ObjectInfo, filling: Filling, piece: int) -> None:
        """Fetch a piece, or wait until another process has fetched it."""
        cache, (pause, longest) = self.cache, _POLL_SECONDS
        at, deadline = (filling.version.name, piece), anyio.current_time() + _MOST_SECONDS
        # Poll the lock instead of waiting for it, so that a cancelled wait leaves no thread behind.
        while (lock := await acquire_in_thread(partial(cache.claim, filling, piece), _release)) is None:
            if filling.there[piece]:
                return
            if at in self._stuck or anyio.current_time() > deadline:
                self._stuck.add(at)
                raise NotCachedError
            await anyio.sleep(pause)
            pause = min(2 * pause, longest)
        try:
            name, (start, end) = filling.version.name, filling.version.piece(piece)
            known = self._stored.get(name) if info.etag.startswith(_BY_CONTENT) else info
            # Retry only briefly, because the reader itself resumes after a fault, with a more patient policy.
            with patience(BRIEF):
                opening = ResumingSource(self._storage, key, start=start, end=end, info=known, read_ahead=0)
                async with opening as source:
                    try:
                        self.check(key, info, source.info)
                    except StorageError:
                        await in_thread(cache.discard, filling.version)
                        raise
                    while block := await source.receive(_READ_BYTES):
                        await in_thread(cache.write, filling, block, start)
                        start += len(block)
                self._stored[name] = source.info
            await in_thread(cache.finish, filling, piece)
        finally:
            lock.release()


def _release(lock: FileLock | None) -> None:
    if lock is not None:
        lock.release()
