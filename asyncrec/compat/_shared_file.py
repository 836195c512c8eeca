"""Any number of writers, of this process or of others, append to the end of a `SharedFile`, each piece whole.

Two ranks of a job, or two ``SummaryWriter()`` in one second, write the same event file. In tensorboardX the second one
empties the file, and both overwrite each other from then on. Here the second joins: all that either appends is whole in
the one file.

- The first writer to open a file empties it, as ``open(path, "wb")`` does; while it is open, no other empties it. Each
  holds a shared flock(2) for as long as it has the file; the first one holds it exclusively for that moment. The flock
  ends with the process, and `close` releases it for the process's children, too.
- A piece is written under a lock of its own (an open file description lock, if the system has them), which is held
  for one write. Under it, a piece that is torn (a writer was killed, the disk was full) is cut off, another writer's or
  this one's.

No call waits for another writer for longer than a few seconds. All calls block, in the caller's thread.
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

# Seconds to wait for another writer's write, which takes milliseconds; one that takes longer is stopped, or not ours.
_PATIENCE = 5.0
_SET_LOCK: int | None = getattr(fcntl, "F_OFD_SETLK", None)


class SharedFile:
    """A local file, open for appending; its folder is made if it is missing.

    Raises:
        StorageError: on opening, an exclusive writer has it (``open_writer(mode="a")``); or the system failed: then
            also the builtin error (`IsADirectoryError`).
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._end = 0  # the file is known to be whole up to here
        self._fd = -1
        with _mapped("writing", path):
            with suppress(FileExistsError):  # what opening says of it is what `open` says
                os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            self._open(path)

    def append(self, data: bytes | bytearray) -> None:
        """Append ``data``, whole records, to the file. If that fails, no part of it stays.

        Raises:
            OSError: the system's error.
            StorageError: another writer has been writing for seconds.
            CorruptRecordError: what others wrote is damaged, so that no record after it would be read.
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
        """Make the file durable. Raise the system's error."""
        try:
            os.fsync(self._fd)
        except OSError as error:
            if self._regular or error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a pipe has no disk
                raise

    def fileno(self) -> int:
        return self._fd

    def reopen(self) -> None:
        """Open the file anew in a child made by fork, and leave the parent's alone."""
        parents, self._fd = self._fd, -1
        try:
            there = f"/proc/self/fd/{parents}"  # the file itself, though it was renamed meanwhile
            self._open(there if os.path.exists(there) else self.path, join=True)
        finally:
            os.close(parents)

    def close(self, *, inherited: bool = False) -> None:
        """Release the file to others; an ``inherited`` one remains its parent's. Idempotent."""
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
        """Find the end of what others wrote meanwhile, and cut off a torn piece."""
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
                fcntl.fcntl(self._fd, _SET_LOCK, _lock_of(fcntl.F_UNLCK))  # type: ignore[arg-type]  # it is there

    def _lock(self) -> bool:
        if _SET_LOCK is None:  # a single append is whole on a local disk all the same
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
    """Share the file with other writers; with ``empty``, empty it first if no other writer has it."""
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
    """Return whether the file is locked now, or on a filesystem without locks."""
    try:
        return try_flock(fd, shared=shared)
    except OSError as error:
        if error.errno not in NO_LOCKS:  # there one writer is alone, as it ever was
            raise
        return True


def _attempts() -> Iterator[None]:
    """Try again every millisecond, for a few seconds."""
    yield
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until:
        time.sleep(0.001)
        yield


def _lock_of(kind: int) -> bytes:
    """Make C's ``struct flock`` for the whole file, with the layout of Linux, which has such locks."""
    return struct.pack("hhqqi", kind, os.SEEK_SET, 0, 0, 0)


class _IsAFolderError(StorageError, IsADirectoryError):
    """The path is a folder, as Python's own `open` raises it."""


class _InAFileError(StorageError, NotADirectoryError):
    """A parent of the path is a file, as Python's own `open` raises it."""


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
