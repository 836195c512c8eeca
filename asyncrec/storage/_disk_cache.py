"""`DiskCache` is a local folder with copies of stored objects, shared by all processes of a machine.

Without a cache, each of the 16 workers on a machine would request the same shards from the store. If a shard were
downloaded completely when it is first read, the first batch would have to wait for every shard in the window. If
workers read ranges from the store during the download, each worker would request the same bytes again. Therefore, an
object is fetched in pieces of 8 MiB, each when it is first needed. One process fetches a piece under a lock, while the
others wait. All processes can read the piece as soon as it is complete.

Until all pieces are complete, they are kept in one file, each at its offset. Only processes of this user read that
file. In the file, the object's bytes are followed by one byte for each piece, which is set when the piece is complete.
If a process is killed while it fetches a piece, the piece's byte remains unset and the lock is released. The process
that fetches the last piece verifies the checksum, cuts off the bytes after the object, and renames the file, which
never changes again. Files are evicted one at a time, the least recently used first (a file's modification time is the
time of its last use). The lock for eviction is also held while a file is created or renamed, so the files stay within
the bound, and an incomplete file never gets the name of a complete copy. A file that is evicted while it is being read
remains readable until it is closed.

A file's name is derived from the object's URL, size, and checksum (or etag, if there is no checksum). Each version
therefore has its own file, and an object listed in a manifest is found without a request to the store. All functions
block, so call them in worker threads.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike

from asyncrec.errors import ArgumentValueError, IntegrityError, ObjectNotFoundError, StorageError
from asyncrec.storage._base import Buffer
from asyncrec.storage._cache_files import CachedVersion, CacheRoom, Filling, checksum_of
from asyncrec.storage._local.disk import mapped_errors, partial_name, write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import is_not_own, open_own

_log = logging.getLogger("asyncrec.storage")

# The maximum number of lock files in the folder. Two pieces that share a lock cannot be fetched at the same time.
_LOCKS = 256
_FULL = (errno.ENOSPC, errno.EDQUOT)
# The maximum number of attempts to create a file. An attempt fails if another task discards the file at that moment.
_TRIES = 10


class NotCachedError(Exception):
    """The data cannot be cached: the disk is full, or the process that fetches it is stuck. Read it from the store."""


class DiskCache:
    """A folder that contains copies of objects, and can be used by any number of tasks and processes.

    Args:
        folder: created if it does not exist; nothing else should be kept in it.
        max_bytes: the maximum total size of all files. A file that is still being filled counts at its full size.

    Attributes:
        room: the `CacheRoom` that manages the folder.
        downloads: the number of pieces that this object has fetched.
        full: whether the disk was found to be full. If so, no more pieces are fetched.
    """

    def __init__(self, folder: str | PathLike[str], max_bytes: int) -> None:
        if max_bytes < 1:
            raise ArgumentValueError(
                f"cache_bytes must be positive, not {max_bytes}; to read without a cache, omit cache="
            )
        self.room = CacheRoom(os.path.abspath(os.fspath(folder)), max_bytes)
        self.downloads = 0
        self.full = False
        self._looked_at: set[str] = set()  # names of files that need not be checked again
        self._dropped: set[str] = set()

    def takes(self, size: int) -> bool:
        """Return whether an object of this size can be cached. It must be neither empty nor larger than the bound."""
        return 0 < size <= self.room.max_bytes

    def path_of(self, version: CachedVersion) -> str:
        return os.path.join(self.room.folder, version.name)

    def open_copy(self, version: CachedVersion) -> int:
        """Open an object's copy and record its use. If others can write to the folder, verify it once per process.

        Raises:
            FileNotFoundError: the copy does not exist, or is not trusted.
        """
        path = self.path_of(version)
        try:
            fd = open_own(path, os.O_RDONLY, linked=True, anyones=True)
        except StorageError as error:
            if is_not_own(error):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None
            raise
        try:
            status = os.fstat(fd)
            if status.st_size != version.size or not self.room.trusts(version, fd, status):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            with suppress(PermissionError):  # another user's file, which may then be evicted too early
                os.utime(fd)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def open_filling(self, version: CachedVersion) -> Filling | None:
        """Open the file of an object's pieces. If it does not exist, create it with room for the entire object.

        Return `None` if the copy already exists.

        Raises:
            NotCachedError: the disk is full.
            IntegrityError: all pieces are complete, but differ from the expected object; they were discarded.
            StorageError: the path is not a regular file owned by this user.
        """
        if self.full:
            raise NotCachedError
        path = self._filling_path(version)
        with self._full_disk(version):
            fd = self._opened(path, version)
            if fd is None:
                # Make room and create the file under one lock. Otherwise, two processes might use the same free space.
                with self.room.evicting():
                    # Another process may have completed the copy in the meantime.
                    with suppress(FileNotFoundError):
                        os.close(self.open_copy(version))
                        return None
                    fd = self._opened(path, version)
                    if fd is None:
                        self.room.make_room(version.size)
                        fd = self._made(path, version)
            filling = Filling(version, fd)
            try:
                with mapped_errors("opening", path):
                    os.utime(fd)
                    filling.look()
                if filling.is_whole:  # the process that fetched the last piece was killed
                    self._publish(filling)
            except BaseException:
                filling.close()
                raise
        return filling

    def _opened(self, path: str, version: CachedVersion) -> int | None:
        """Open the file of pieces. Return `None` if the file does not exist or does not yet have its full length."""
        try:
            fd = open_own(path, os.O_RDWR)
        except ObjectNotFoundError:
            return None
        if os.fstat(fd).st_size >= version.size:
            return fd
        os.close(fd)
        return None

    def _made(self, path: str, version: CachedVersion) -> int:
        """Create the file of pieces. Retry if another task discards an existing file while it is being opened."""
        for left in reversed(range(_TRIES)):
            try:
                fd = open_own(path, os.O_RDWR | os.O_CREAT, 0o666)
                break
            except ObjectNotFoundError:
                if not left:
                    raise
        try:
            with mapped_errors("opening", path):
                os.ftruncate(fd, version.size + version.pieces)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def claim(self, filling: Filling, piece: int) -> FileLock | None:
        """Claim a piece in order to fetch it. Return `None` if another process is fetching it or has fetched it."""
        with self._full_disk(filling.version):
            lock = FileLock.attempt(*self.room.opened(f".lock-{(filling.version.number + piece) % _LOCKS:03d}"))
        filling.look()
        if lock is not None and filling.there[piece]:
            lock.release()
            return None
        return lock

    def write(self, filling: Filling, data: Buffer, position: int) -> None:
        """Write bytes of a piece into its file.

        Raises:
            NotCachedError: the disk is full.
        """
        with self._full_disk(filling.version), mapped_errors("writing", self._filling_path(filling.version)):
            write_at(filling.fd, data, position)

    def finish(self, filling: Filling, piece: int) -> None:
        """Mark a piece as complete. If all pieces are now complete, turn the file into a copy of the object.

        Raises:
            NotCachedError: the disk is full.
            IntegrityError: the object is not the expected one, and was discarded.
        """
        self.write(filling, b"\1", filling.version.size + piece)
        self.downloads += 1
        filling.look()
        if filling.is_whole:
            with self._full_disk(filling.version):
                self._publish(filling)

    def discard(self, version: CachedVersion) -> None:
        """Discard the pieces of an object that is not the expected one."""
        path = self._filling_path(version)
        with suppress(FileNotFoundError), mapped_errors("deleting", path):
            os.unlink(path)

    def drop_damaged(self, version: CachedVersion) -> bool:
        """Discard a damaged copy. Return whether rereading a damaged record from the cache may help.

        A copy is damaged if its checksum is wrong. If that cannot be determined (because no checksum is known, or some
        pieces are missing), the first call discards the copy.
        """
        name, path = version.name, self.path_of(version)
        if name in self._looked_at:
            return name in self._dropped  # the record was read before another task discarded the copy
        try:
            fd = open_own(path, os.O_RDONLY, linked=True, anyones=True)
        except StorageError as error:
            if not is_not_own(error):
                raise
            found = None
        else:
            try:
                found = checksum_of(fd, os.fstat(fd).st_size, path)
            finally:
                os.close(fd)
        if found is None:
            path = self._filling_path(version)
            if not os.path.lexists(path):
                return True  # another task discarded it, or another process evicted it
        if found is None or found == version.crc32c or version.crc32c is None:
            self._looked_at.add(name)
        if found is not None and found == version.crc32c:
            return True  # another process may have fetched it again
        self._dropped.add(name)
        _log.warning(
            "%s: the cached copy of %s is damaged%s; the data is read from the store again",
            path,
            version.path,
            "" if None in (found, version.crc32c) else f" (crc32c {found:08x}, expected {version.crc32c:08x})",
            extra={"path": version.path, "copy": path},
        )
        with suppress(FileNotFoundError), mapped_errors("deleting", path):
            os.unlink(path)
        return True

    def _publish(self, filling: Filling) -> None:
        """Turn a file whose pieces are all complete into a copy."""
        version, fd = filling.version, filling.fd
        path = self._filling_path(version)
        # If the file has already been truncated, its checksum has been verified.
        cut = os.fstat(fd).st_size == version.size
        found = version.crc32c if cut or version.crc32c is None else checksum_of(fd, version.size, path)
        with mapped_errors("renaming", path):
            if found == version.crc32c and version.pieces == 1:
                # A longer object need not be durable, because the checksums of its records reveal any data that a crash
                # destroyed.
                os.fsync(fd)
            # The lock prevents other processes from replacing the file at this path in the meantime.
            with self.room.evicting(), suppress(FileNotFoundError):
                status, named = os.fstat(fd), os.lstat(path)
                if (status.st_dev, status.st_ino) == (named.st_dev, named.st_ino):
                    if found == version.crc32c:
                        os.ftruncate(fd, version.size)
                        with suppress(PermissionError):  # an untrusted file of another user has this name
                            os.rename(path, self.path_of(version))
                    else:
                        os.unlink(path)
        if found != version.crc32c:
            raise IntegrityError(
                f"{version.path}: the store sent {version.size:,} bytes with crc32c {found:08x}, but "
                f"{version.crc32c:08x} is expected: the object was replaced, or was damaged in the store or on the "
                "way; it is not cached. Run 'asyncrec verify' for details"
            )

    @contextmanager
    def _full_disk(self, version: CachedVersion) -> Iterator[None]:
        """Raise NotCachedError if the block finds the disk full, and delete the object's pieces to free their space."""
        try:
            yield
        except StorageError as error:
            if error.errno not in _FULL:
                raise
            if not self.full:
                self.full = True
                _log.warning(
                    "%s; data that is not in the cache is read from the store", error, extra={"path": self.room.folder}
                )
            with suppress(OSError):
                os.unlink(self._filling_path(version))
            raise NotCachedError from error

    def _filling_path(self, version: CachedVersion) -> str:
        return os.path.join(self.room.folder, partial_name(version.name, str(os.geteuid())))
