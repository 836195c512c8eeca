"""`ShardCache` keeps whole shards of a store in a local folder that the processes of a machine share.

A file's name is made of the store's root, the key and the etag, so that another version is another file. It appears by
an atomic rename after its size and its checksum were found right, and is never changed. One process downloads a shard
while the others wait for it. What was not used for longest goes first (its time of modification is that of its last
use), under a lock that keeps two processes from evicting at once. A file that is evicted while it is read stays
readable until it is closed. One in which a record proves damaged is compared with the checksum it came with, and where
that holds no more it is dropped, and brought again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from os import PathLike

import anyio
from crc32c import crc32c

from asyncrec._concurrency.tasks import acquire_in_thread, in_thread
from asyncrec.errors import ArgumentValueError, IntegrityError, StorageError
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._chunk_writer import ChunkWriter, ResumingSource
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import is_not_own, open_own
from asyncrec.storage._local.storage import LocalStorage, mapped_errors
from asyncrec.storage._url import join

_log = logging.getLogger("asyncrec.sampling")

_SUFFIX = ".tfrecord"
_READ_BYTES = 1 << 20
# Locks of downloads: so many files and no more stay in the folder; two shards that share one wait for each other.
_LOCKS = 64
# How often a process asks whether another's download is done: it takes seconds, so this costs nothing.
_POLL_SECONDS = 0.05
# An unfinished file this old was left by a process that was killed.
_ABANDONED_SECONDS = 24 * 3600


class ShardCache:
    """A folder that holds whole shards, used by any number of tasks and processes.

    Args:
        folder: made when it is not there; nothing else should be kept in it.
        max_bytes: of all files together; exceeded by at most the shards that are just being downloaded.

    Attributes:
        storage: the folder; keys are what `fetch` returns.
        downloads: how many shards this process brought here.
    """

    def __init__(self, folder: str | PathLike[str], max_bytes: int) -> None:
        if max_bytes < 1:
            raise ArgumentValueError(
                f"cache_bytes is {max_bytes}; a cache that holds nothing is no cache: leave out cache="
            )
        self.storage = LocalStorage(folder)
        self.downloads = 0
        self._folder = os.path.abspath(os.fspath(folder))
        self._max_bytes = max_bytes
        self._trusted: set[tuple[str, int]] = set()  # files, in a folder that others can write to
        self._looked_at: set[str] = set()  # files in which a record was damaged, and that are as they came
        self._dropped: set[str] = set()

    async def trim(self) -> None:
        """See to it that no more than ``max_bytes`` are here, left by whoever was allowed more."""
        if await in_thread(os.path.isdir, self._folder):
            await in_thread(self._make_room, 0)

    def takes(self, size: int) -> bool:
        """Whether an object of so many bytes is kept at all: it must not push out everything else by itself."""
        return size <= self._max_bytes

    async def fetch(self, storage: Storage, key: str, info: ObjectInfo, *, crc32c: int | None) -> str:
        """See to it that this version of an object is here; its key in `storage`.

        Args:
            crc32c: of the content, as the manifest has it; where it has none, the store's is used.

        Raises:
            ObjectChangedError: the store has another version by now.
            IntegrityError: what came is not what the manifest says; nothing is kept of it.
        """
        digest = _digest(storage, key, info)
        name = digest + _SUFFIX
        expected = info.crc32c if crc32c is None else crc32c
        if await in_thread(self._use, name, info.size, expected):
            return name
        async with self._sole_download(int(digest, 16) % _LOCKS):
            # Another process may have brought it meanwhile.
            if not await in_thread(self._use, name, info.size, expected):
                await in_thread(self._make_room, info.size)
                await self._download(storage, key, info, name, expected)
                await in_thread(self._make_room, 0)
        return name

    async def drop_damaged(self, storage: Storage, key: str, info: ObjectInfo, *, crc32c: int | None) -> bool:
        """A record of this object, read from here, is damaged: whether it may come right when it is read once more.

        What is here is dropped, where it is not what came. Without a checksum to tell by, that is the first time.
        """
        name = _digest(storage, key, info) + _SUFFIX
        if name in self._looked_at:
            return name in self._dropped  # read while another task dropped it
        expected = info.crc32c if crc32c is None else crc32c
        path = os.path.join(self._folder, name)
        found = await in_thread(_checksum, path)
        if found is None:
            return True  # another task dropped it, or another process evicted it
        if found == expected or expected is None:
            self._looked_at.add(name)
        if found == expected:
            return True  # perhaps since another process brought it again
        self._dropped.add(name)
        _log.warning(
            "%s: the cached copy of %s is damaged (crc32c %08x, and %s is expected); it is read from the store again",
            path,
            join(storage.root, key),
            found,
            "another" if expected is None else f"{expected:08x}",
            extra={"path": join(storage.root, key), "copy": path},
        )
        await in_thread(_remove, path)
        return True

    async def _download(self, storage: Storage, key: str, info: ObjectInfo, name: str, crc32c: int | None) -> None:
        async with ResumingSource(storage, key, info=info) as source, self.storage.open_sink(name) as sink:
            writer = ChunkWriter(sink)
            while block := await source.receive(_READ_BYTES):
                await writer.write([block])
            await writer.finish()
            # Raised in here, nothing is published.
            if writer.size != info.size or (crc32c is not None and writer.crc32c != crc32c):
                raise IntegrityError(
                    f"{join(storage.root, key)}: {writer.size:,} bytes with crc32c {writer.crc32c:08x} came, and "
                    f"{info.size:,} with {'any' if crc32c is None else f'{crc32c:08x}'} are expected: "
                    "it was damaged in the store or on its way; nothing of it is kept"
                )
        self.downloads += 1

    @asynccontextmanager
    async def _sole_download(self, lock: int) -> AsyncIterator[None]:
        attempt = partial(self._attempt, f".lock-{lock:02d}")
        # Asked for and not waited for, so that a cancelled wait leaves no thread behind.
        while (held := await acquire_in_thread(attempt, _release)) is None:  # noqa: ASYNC110  # no event of ours tells
            await anyio.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            held.release()

    def _use(self, name: str, size: int, crc32c: int | None) -> bool:
        """Whether the file is here, whole; and say that it was used now.

        In a folder that others can write to, its checksum is compared once.
        """
        path = os.path.join(self._folder, name)
        with mapped_errors("finding", path):
            try:
                status = os.lstat(path)
                if not stat.S_ISREG(status.st_mode) or status.st_size != size:
                    return False
                if (name, status.st_ino) not in self._trusted and self._is_shared():
                    own = status.st_uid == os.geteuid()
                    if not (own if crc32c is None else _checksum(path) == crc32c):
                        return False
                    self._trusted.add((name, status.st_ino))
                with suppress(PermissionError):  # another user's, who may see it go earlier than its use deserves
                    os.utime(path, follow_symlinks=False)
            except FileNotFoundError:
                return False
        return True

    def _is_shared(self) -> bool:
        status = os.stat(self._folder)
        return bool(status.st_mode & 0o022) or status.st_uid not in (os.geteuid(), 0)

    def _make_room(self, size: int) -> None:
        """Evict until ``size`` more bytes have room."""
        with self._evicting():
            files: list[tuple[float, int, str]] = []
            for entry in os.scandir(self._folder):
                with suppress(FileNotFoundError, PermissionError):  # gone; or another user's, who removes it
                    status = entry.stat(follow_symlinks=False)
                    if not stat.S_ISREG(status.st_mode):
                        continue
                    if entry.name.endswith(".partial"):
                        if status.st_mtime < time.time() - _ABANDONED_SECONDS:
                            os.unlink(entry.path)
                    elif entry.name.endswith(_SUFFIX):
                        files.append((status.st_mtime, status.st_size, entry.path))
            there = sum(size for _, size, _ in files)
            for _, gone, path in sorted(files):
                if there + size <= self._max_bytes:
                    break
                with suppress(FileNotFoundError, PermissionError):
                    os.unlink(path)
                there -= gone

    @contextmanager
    def _evicting(self) -> Iterator[None]:
        lock = FileLock(*self._opened(".lock-evict"), wait=True)
        try:
            yield
        finally:
            lock.release()

    def _attempt(self, name: str) -> FileLock | None:
        return FileLock.attempt(*self._opened(name))

    def _opened(self, name: str) -> tuple[int, str]:
        """A file to lock, open, and its path."""
        # A folder made here is this user's alone; one that users share was made by them, and has the mode they gave it.
        self.storage.disk.make_folder(self._folder, 0o700)
        path = os.path.join(self._folder, name)
        return open_own(path, os.O_RDWR | os.O_CREAT, 0o666, anyones=True), path


def _digest(storage: Storage, key: str, info: ObjectInfo) -> str:
    """Names one version of an object."""
    identity = f"{join(storage.root, key)}\0{info.etag}\0{info.size}".encode("utf-8", "surrogateescape")
    return hashlib.blake2b(identity, digest_size=16).hexdigest()


def _checksum(path: str) -> int | None:
    """Of a file; `None` when it is not there, or is no regular one."""
    try:
        fd = open_own(path, os.O_RDONLY, linked=True, anyones=True)
    except StorageError as error:
        if is_not_own(error):
            return None
        raise
    checksum = 0
    with os.fdopen(fd, "rb", buffering=0) as file, mapped_errors("reading", path):
        while block := file.read(_READ_BYTES):
            checksum = crc32c(block, checksum)
    return checksum


def _remove(path: str) -> None:
    with suppress(FileNotFoundError), mapped_errors("deleting", path):
        os.unlink(path)


def _release(lock: FileLock | None) -> None:
    if lock is not None:
        lock.release()
