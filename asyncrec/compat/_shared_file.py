"""`SharedFile`: a file to which any number of writers, in this process or others, can append complete records.

Two ranks of a job, or two instances of ``SummaryWriter`` created in the same second, write to the same event file. In
tensorboardX, the second writer empties the file, and then the two overwrite each other. Here, the second writer joins
the first, and the file contains every append of both.

- The first writer to open a file empties it, as ``open(path, "wb")`` does. While any writer has the file open, no other
  writer empties it. Each writer holds a shared flock(2) while it has the file open; the first one holds an exclusive
  flock while it empties the file. The flock is released when the process ends, or by `close`, even if child processes
  have inherited the file.
- Each write holds a second lock (an open file description lock, if the system has them). Before it appends anything,
  the writer that holds this lock truncates any incomplete append, its own or another writer's, left by a kill or a full
  disk.

No call waits longer than a few seconds for another writer. All calls block the caller's thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from asyncrec._records.torn_end import whole_end
from asyncrec.errors import StorageError
from asyncrec.storage._local.disk import local_error
from asyncrec.storage._local.lock import NO_LOCKS, try_flock, unlock
from asyncrec.storage._local.opening import open_in_place

# Seconds to wait for another writer's write, which takes milliseconds. A slower writer is suspended, or not asyncrec's.
_PATIENCE = 5.0
_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)


class SharedFile:
    """A local file that is open for appending. Opening it creates its folder.

    Raises:
        StorageError: an exclusive writer (``open_writer(mode="a")``) has the file open, or the system cannot open it.
            If the system cannot open it, the error is also the built-in one, such as `IsADirectoryError`.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._end = 0  # the file is known to be intact up to this offset
        self._fd = -1
        with _mapped("writing", path):
            with suppress(FileExistsError):  # opening the file raises the same error as `open`
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self._open(path)

    def append(self, data: bytes | bytearray) -> None:
        """Append ``data``, which must consist of complete records. If this fails, none of ``data`` stays in the file.

        Raises:
            OSError: a system call failed.
            StorageError: another writer has held the lock for several seconds.
            CorruptRecordError: other writers' records are damaged, so a reader would not reach the new ones.
        """
        if not self._regular:
            self._write(data)
            return
        with self._alone():
            self._mend()
            try:
                self._write(data)
            except BaseException:
                with suppress(OSError):
                    os.ftruncate(self._fd, self._end)
                raise
            self._end += len(data)

    def sync(self) -> None:
        """Make the file durable (fsync). Raise OSError if the system call fails."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if self._regular or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # pipes cannot be synced
                raise

    def fileno(self) -> int:
        return self._fd

    def reopen(self) -> None:
        """Reopen the file in a forked child, without affecting the parent's open file description."""
        parents, self._fd = self._fd, -1
        try:
            there = f"/proc/self/fd/{parents}"  # the same file, even if it has been renamed
            self._open(there if os.path.exists(there) else self.path, join=True)
        finally:
            os.close(parents)

    def close(self, *, inherited: bool = False) -> None:
        """Close the file. Release its lock unless the file is ``inherited`` from a parent process. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            if self._regular and not inherited:
                unlock(fd)
            os.close(fd)

    def _open(self, path: str, *, join: bool = False) -> None:
        fd = open_in_place(path, append=True)
        try:
            self._regular = stat.S_ISREG(os.fstat(fd).st_mode)
            if self._regular:
                _share(fd, self.path, empty=not join)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd

    def _write(self, data: bytes | bytearray) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self._fd, view) :]

    def _mend(self) -> None:
        """Find the end of the records that other writers appended, and truncate a torn append."""
        size = os.fstat(self._fd).st_size
        if size == self._end:
            return
        start = self._end if self._end < size else 0
        self._end, _ = whole_end(self._fd, size, self.path, "", start=start)
        if self._end < size:
            os.ftruncate(self._fd, self._end)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Prevent all other writers from writing during the block."""
        locked = self._lock()
        try:
            yield
        finally:
            if locked:
                fcntl.fcntl(self._fd, _SET_LOCK, _lock_of(fcntl.F_UNLCK))  # type: ignore[arg-type]  # not None

    def _lock(self) -> bool:
        if _SET_LOCK is None:  # on a local disk, a single append is atomic even without a lock
            return False
        for _ in _attempts():
            try:
                fcntl.fcntl(self._fd, _SET_LOCK, _lock_of(fcntl.F_WRLCK))
                return True
            except OSError as error:
                if error.errno in NO_LOCKS:
                    return False
                if error.errno not in (errno.EAGAIN, errno.EACCES):
                    raise
        raise StorageError(
            f"{self.path}: another writer has held this file for {_PATIENCE:g} s; check whether that process is stopped"
        )


def _share(fd: int, path: str, *, empty: bool) -> None:
    """Share the file with other writers. With ``empty``, empty it first if no other writer has it open."""
    for _ in _attempts():
        if empty and _flocked(fd, shared=False):
            os.ftruncate(fd, 0)
            empty = False
        if _flocked(fd, shared=True):
            return
    raise StorageError(
        f"{path}: another writer has this file open exclusively, as open_writer(mode='a') does; close that writer first"
    )


def _flocked(fd: int, *, shared: bool) -> bool:
    """Try to lock the file. Return `True` if this succeeded or if the file system does not support locks."""
    try:
        return try_flock(fd, shared=shared)
    except OSError as error:
        if error.errno not in NO_LOCKS:  # without locks, only a single writer is safe
            raise
        return True


def _attempts() -> Iterator[None]:
    """Yield once for each attempt: immediately, and then every millisecond for a few seconds."""
    yield
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        time.sleep(0.001)
        yield


def _lock_of(kind: int) -> bytes:
    """Return C's ``struct flock`` for the entire file, in Linux's layout."""
    return struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0)


class _IsAFolderError(StorageError, IsADirectoryError):
    """The path is a folder. This is also an IsADirectoryError, as `open` raises."""


class _InAFileError(StorageError, NotADirectoryError):
    """A parent of the path is a file. This is also a NotADirectoryError, as `open` raises."""


@contextmanager
def _mapped(doing: str, path: str) -> Iterator[None]:
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        mapped = local_error(error, doing, path)
        kind = {IsADirectoryError: _IsAFolderError, NotADirectoryError: _InAFileError}.get(type(error), type(mapped))
        told = kind(str(mapped))
        told.errno = error.errno
        raise told from error
