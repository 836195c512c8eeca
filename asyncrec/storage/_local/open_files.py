"""`OpenFiles` keeps a few files open, so that a read does not have to open and close its file.

It is for random reads of files that do not change. Each read checks that the path still refers to the same file. The
check does not access the disk, because the system caches the names of open files.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress

from asyncrec._concurrency.forks import on_fork
from asyncrec.storage._base import ObjectInfo
from asyncrec.storage._local.disk import NOWAIT, Disk, Place, mapped_errors, object_info, read_at, tells_what_is_cached
from asyncrec.storage._local.opening import open_object
from asyncrec.storage._local.source import check_regular

Range = tuple[int, int]
"""The size and the position of a range of bytes in a file."""

_NOWAIT = NOWAIT
_WILLNEED: int = getattr(os, "POSIX_FADV_WILLNEED", 0)  # missing on macOS
# The maximum number of open files of one data set: enough for the shards of most data sets, and at most a sixteenth of
# the process's limit, because other code also opens files.
_MOST_OPEN = 64
_PART_OF_LIMIT = 16
# The interval in seconds at which the use of a cached copy is recorded. The least recently used copy is evicted first.
_USED_SECONDS = 60.0


class OpenFile:
    """A regular file open for reading, and closed when this object is garbage-collected. It is thread-safe.

    Args:
        opening: the function that opens the file if it is a cached copy rather than the object itself. A copy never
            changes, and its modification time is the time of its last use.

    Attributes:
        info: the description of the object when the file was opened.
        shown: the path as shown in errors.
        waitless: whether cached bytes can be read without waiting for a disk. Otherwise, `cached` reads nothing.

    Raises:
        ObjectNotFoundError, StoragePermissionError, StorageError: the file cannot be opened, or is not a regular file.
    """

    def __init__(self, disk: Disk, place: Place, opening: Callable[[], int] | None = None) -> None:
        self._fd = -1
        self._is_copy = opening is not None
        self._used = time.monotonic()
        self._system = disk.system
        self._path = place.path
        self.shown = place.shown
        with mapped_errors("opening", place.shown):
            self._fd = open_object(place.path, system=self._system) if opening is None else opening()
            status = self._system.fstat(self._fd)
        check_regular(status, place.shown)
        self.info: ObjectInfo = object_info(place.key, status)
        self._identity = _identity(status)
        self._in_memory = disk.lives_in_memory(status.st_dev)
        self.waitless = self._in_memory or tells_what_is_cached(self._fd, self._system)
        self._flags = 0 if self._in_memory else _NOWAIT

    def is_current(self) -> bool:
        """Return whether the path still refers to the unchanged file. If ``waitless``, this never waits for a disk."""
        try:
            found = _identity(self._system.stat(self._path))
        except OSError:
            return False
        return found == self._identity or (self._is_copy and found[:2] == self._identity[:2])

    def note_use(self) -> None:
        """Record that a cached copy is in use, so that other processes can see it. Blocks."""
        if self._is_copy and time.monotonic() - self._used > _USED_SECONDS:
            self._used = time.monotonic()
            with suppress(OSError):  # the file belongs to another user
                os.utime(self._fd)

    def cached(self, ranges: Iterable[Range], view: memoryview) -> list[tuple[int, int, int]]:
        """Copy the ranges that are in memory into ``view``, in which the ranges are laid out back to back.

        For each range that is not in memory, or that extends beyond the end of the file, return its size, its position,
        and its offset in the view.
        """
        missing = []
        at = 0
        preadv = self._system.preadv if self.waitless else _gives_nothing
        for size, position in ranges:
            try:
                there = preadv(self._fd, [view[at : at + size]], position, self._flags)
            except OSError:  # BlockingIOError, or an error that the read in a thread will raise
                there = 0
            if there != size:
                missing.append((size, position, at))
            at += size
        return missing

    def read(self, size: int, position: int) -> bytes:
        """Return ``size`` bytes, or fewer at the end of the file. Blocks.

        Raises:
            OSError: the file cannot be read.
        """
        return read_at(self._fd, size, position, self._system)

    def expect(self, ranges: Iterable[Range]) -> None:
        """Advise the system to prefetch all of these ranges at once. Blocks."""
        if not self._in_memory and _WILLNEED:
            with suppress(OSError):  # without prefetching, the ranges are read one by one
                for size, position in ranges:
                    self._system.posix_fadvise(self._fd, position, size, _WILLNEED)

    def close(self) -> None:
        """Close the file. Later reads raise OSError. Call this only if no other thread reads the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class OpenFiles:
    """A thread-safe cache of open files, by key. The least recently used file is closed to make room.

    A forked child closes the inherited files and opens its own. After `close`, no file is kept open.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: OrderedDict[Hashable, OpenFile] = OrderedDict()
        self._most = _most_open()
        self._closed = False
        self._lock = threading.Lock()
        on_fork(self)

    def __len__(self) -> int:
        return len(self._files)

    def held(self, key: Hashable, *, waits: bool) -> OpenFile | None:
        """Return the file if it is open and its path still refers to it.

        Without ``waits``, for use on the event loop, return only a ``waitless`` file, and leave a replaced file open. A
        thread closes it later, because closing the last descriptor of a removed file frees its blocks, which can be
        slow.
        """
        if not self._lock.acquire(blocking=waits):
            return None
        try:
            file = self._files.get(key)
            if file is None or not (waits or file.waitless):
                return None
            self._files.move_to_end(key)
        finally:
            self._lock.release()
        if file.is_current():
            if waits:
                file.note_use()
            return file
        if waits:
            with self._lock:
                if self._files.get(key) is file:
                    del self._files[key]
        return None

    def open(
        self, key: Hashable, place: Place, accept: Callable[[OpenFile], bool], opening: Callable[[], int] | None = None
    ) -> OpenFile | None:
        """Open a file and keep it open under the key, or return `None` if ``accept`` rejects it. Blocks.

        Raises:
            StorageError: as `OpenFile`.
        """
        file = OpenFile(self._disk, place, opening)
        if not accept(file):
            return None
        with self._lock:
            dropped = [self._files.pop(key, None)]  # closed outside the lock, so that the lock is held only briefly
            if not self._closed:
                self._files[key] = file
            while len(self._files) > self._most:
                dropped.append(self._files.popitem(last=False)[1])
        return file

    def close(self) -> None:
        """Close each file as soon as no thread reads it, and keep no more files. Blocks."""
        with self._lock:
            self._closed = True
            dropped, self._files = self._files, OrderedDict()
        dropped.clear()

    def forked(self) -> None:
        """Close the files in a forked child, which has no other threads."""
        self._lock = threading.Lock()  # another thread may have held the old lock during the fork
        for file in self._files.values():
            file.close()
        self._files.clear()


def _identity(status: os.stat_result) -> tuple[int, int, int]:
    """Return the fields that form an etag."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _gives_nothing(fd: int, buffers: list[memoryview], position: int, flags: int) -> int:
    return 0


def _most_open() -> int:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN if limit == resource.RLIM_INFINITY else max(1, min(_MOST_OPEN, limit // _PART_OF_LIMIT))
