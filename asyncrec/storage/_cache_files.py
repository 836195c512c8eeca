"""A `DiskCache`'s files: `CachedVersion` (an object's version), `Filling` (its pieces), `CacheRoom` (the folder)."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from crc32c import crc32c

from asyncrec.storage._base import ObjectInfo
from asyncrec.storage._local.disk import Disk, is_partial, mapped_errors, read_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import open_own

# Large enough that few requests are made (0.125 per MiB), but small enough to arrive quickly.
PIECE_BYTES = 8 << 20
# The suffixes of cached copies. A shard's copy keeps its suffix, so that any tool can read it; all others get the
# second.
SUFFIXES = (_SHARD, _OTHER) = (".tfrecord", ".copy")
_READ_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class CachedVersion:
    """One version of an object.

    Attributes:
        path: the object's path, for messages.
        name: the name of the version's file.
        crc32c: the expected checksum of the content; `None` if it is unknown.
    """

    path: str
    name: str
    size: int
    crc32c: int | None

    @classmethod
    def of(cls, path: str, info: ObjectInfo) -> CachedVersion:
        content = info.etag if info.crc32c is None else f"crc32c {info.crc32c:08x}"
        identity = f"{path}\0{content}\0{info.size}".encode("utf-8", "surrogateescape")
        suffix = _SHARD if path.endswith(_SHARD) else _OTHER
        return cls(path, hashlib.blake2b(identity, digest_size=16).hexdigest() + suffix, info.size, info.crc32c)

    @property
    def number(self) -> int:
        """A number derived from the beginning of the name. It distributes the pieces over the locks."""
        return int(self.name[:8], 16)

    @property
    def pieces(self) -> int:
        return -(-self.size // PIECE_BYTES)

    def piece_of(self, position: int) -> int:
        """Return the number of the piece that contains a byte."""
        return position // PIECE_BYTES

    def piece(self, number: int) -> tuple[int, int]:
        """Return the offsets of a piece's first byte and of the byte after its last."""
        return number * PIECE_BYTES, min(self.size, (number + 1) * PIECE_BYTES)


class Filling:
    """An open file that contains some pieces of an object.

    Attributes:
        there: one byte for each piece, nonzero once the piece is known to be in the file.
    """

    def __init__(self, version: CachedVersion, fd: int) -> None:
        self.version = version
        self.fd = fd
        self.there = bytearray(version.pieces)

    @property
    def is_whole(self) -> bool:
        return 0 not in self.there

    def look(self) -> None:
        """Update `there` from the file."""
        version = self.version
        if os.fstat(self.fd).st_size == version.size:  # the file is complete and was renamed
            self.there[:] = b"\1" * version.pieces
        else:
            marks = read_at(self.fd, version.pieces, version.size)
            self.there[: len(marks)] = marks

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)


def checksum_of(fd: int, size: int, path: str) -> int:
    checksum = position = 0
    with mapped_errors("reading", path):
        while position < size and (block := read_at(fd, min(_READ_BYTES, size - position), position)):
            checksum = crc32c(block, checksum)
            position += len(block)
    return checksum


# The age at which an unfinished file is assumed to have been left by a killed process.
_ABANDONED_SECONDS = 24 * 3600
# The folder, name and inode of each file that this process has verified, in folders that others can write to.
_trusted: set[tuple[str, str, int]] = set()
_MOST_TRUSTED = 1 << 16


class CacheRoom:
    """The folder of a `DiskCache`. The total size of its files, excluding locks, is bounded. All methods block.

    Args:
        folder: created if it does not exist; nothing else should be kept in it.
        max_bytes: the maximum total size of all files. A file that is still being filled counts at its full size.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.disk = Disk()

    def trim(self) -> None:
        """Evict files until they fit into ``max_bytes``. A process with a higher limit may have stored more.

        Raises:
            StorageError: the path is not a folder.
        """
        with mapped_errors("opening", self.folder):
            try:
                if not stat.S_ISDIR(os.stat(self.folder).st_mode):
                    raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.folder)
            except FileNotFoundError:
                return
            with self.evicting():
                self.make_room(0)

    def trusts(self, version: CachedVersion, fd: int, status: os.stat_result) -> bool:
        """Return whether a copy can be trusted. If others can write to the folder, verify the copy once per process."""
        file = (self.folder, version.name, status.st_ino)
        if file in _trusted or not self._is_shared():
            return True
        own = status.st_uid == os.geteuid()
        if not (own if version.crc32c is None else checksum_of(fd, version.size, file[1]) == version.crc32c):
            return False
        if len(_trusted) >= _MOST_TRUSTED:
            _trusted.clear()
        _trusted.add(file)
        return True

    def make_room(self, size: int) -> None:
        """Evict files until ``size`` more bytes fit. Call it within `evicting`."""
        files: list[tuple[float, int, str]] = []
        for entry in os.scandir(self.folder):
            with suppress(FileNotFoundError, PermissionError):  # already gone, or another user's file
                status = entry.stat(follow_symlinks=False)
                if not stat.S_ISREG(status.st_mode) or not (entry.name.endswith(SUFFIXES) or is_partial(entry.name)):
                    continue
                if is_partial(entry.name) and status.st_mtime < time.time() - _ABANDONED_SECONDS:
                    os.unlink(entry.path)
                else:
                    files.append((status.st_mtime, status.st_size, entry.path))
        there = sum(size for _, size, _ in files)
        for _, gone, path in sorted(files):
            if there + size <= self.max_bytes:
                break
            with suppress(FileNotFoundError, PermissionError):
                os.unlink(path)
            there -= gone

    @contextmanager
    def evicting(self) -> Iterator[None]:
        """Prevent other processes from evicting, creating or renaming a file within the context."""
        lock = FileLock(*self.opened(".lock-evict"), wait=True)
        try:
            yield
        finally:
            lock.release()

    def opened(self, name: str) -> tuple[int, str]:
        """Open a file in the folder in order to lock it. Return its descriptor and its path."""
        # A folder created here is accessible only to this user. Users who share a folder create it themselves, with a
        # mode of their choice.
        with mapped_errors("creating", self.folder):
            self.disk.make_folder(self.folder, 0o700)
        path = os.path.join(self.folder, name)
        return open_own(path, os.O_RDWR | os.O_CREAT, 0o666, anyones=True), path

    def _is_shared(self) -> bool:
        status = os.stat(self.folder)
        return bool(status.st_mode & 0o022) or status.st_uid not in (os.geteuid(), 0)
