"""The parts of the local backend share these: threads, folders, names of unfinished files, what errors mean."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, TypeVarTuple

import anyio

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError, StoragePermissionError
from asyncrec.storage._base import Buffer, ObjectInfo
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.mounts import is_in_memory

__all__ = [
    "NOWAIT",
    "Disk",
    "Place",
    "is_not_own",
    "is_partial",
    "local_error",
    "mapped_errors",
    "object_info",
    "open_own",
    "partial_name",
    "read_at",
    "tells_what_is_cached",
    "write_at",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""The flag by which preadv(2) gives what is in the page cache and does not wait for the rest; Linux only, else 0."""

# Threads of one storage at work at once: more than a disk serves well, few enough that a stuck disk leaves the
# process's other threads (anyio's default is 40) to the user.
_THREADS = 16
# Remembered as durable; forgotten, each costs one fsync once more.
_MOST_FOLDERS = 1000
# What filesystems without hard links say (FAT, some of FUSE and SMB); Linux says EPERM for them.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True, kw_only=True)
class Place:
    """The address of one object.

    Attributes:
        key: in its storage.
        path: of the file.
        shown: its path as errors name it.
    """

    key: str
    path: str
    shown: str


class Disk:
    """The operating system, as one storage uses it.

    Attributes:
        system: the functions of `os`; tests put an object here that fails.
    """

    def __init__(self, system: Any = None) -> None:
        self.system: Any = os if system is None else system
        self._limiter = anyio.CapacityLimiter(_THREADS)
        self._making_folders = threading.Lock()
        self._durable: set[str] = set()
        self._buffer = bytearray()
        self._in_memory: dict[int, bool] = {}

    def buffer(self, size: int) -> bytearray:
        """Lend a scratch buffer of that size, one for all: for the loop's thread alone, and until the next await."""
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        return self._buffer

    async def in_thread(self, func: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a function in a worker thread, within this disk's limit (`asyncrec._concurrency.tasks.in_thread`)."""
        return await in_thread(func, *args, limiter=self._limiter)

    async def surely_in_thread(self, func: Callable[[], object]) -> None:
        """Run it in a thread even where the task is cancelled (`asyncrec._concurrency.tasks.surely_in_thread`)."""
        await surely_in_thread(func, limiter=self._limiter)

    def link(self, partial: str, path: str) -> bool:
        """Give an unfinished file a name that nobody else has, and tell whether the first still leads to it. Blocks.

        Raises:
            FileExistsError: something has the name.
        """
        try:
            self.system.link(partial, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return True
        # Without hard links: exclusive among the processes of this machine, by a lock on the folder.
        folder = os.path.dirname(path)
        lock = FileLock(self.system.open(folder, os.O_RDONLY | os.O_CLOEXEC), folder, wait=True)
        try:
            try:
                self.system.lstat(path)
            except FileNotFoundError:
                self.system.replace(partial, path)
                return False
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        finally:
            lock.release()

    def make_folder(self, path: str, mode: int = 0o777) -> None:
        """Make the folder with its parents, each durable in its own parent before it is used. Blocks.

        ``mode`` is its own, where it is made here; its parents have what the umask leaves.
        """
        if path in self._durable and os.path.isdir(path):
            return
        wanted = path
        # The lock: nobody takes a folder for durable that another thread has made and not yet synced.
        with self._making_folders:
            missing = []
            while not os.path.isdir(path):
                missing.append(path)
                path = os.path.dirname(path)
            if not missing:
                # Whoever made it may have been killed before it was durable.
                with suppress(PermissionError):
                    self.sync_folder(os.path.dirname(path))
            for each in reversed(missing):
                try:
                    self.system.mkdir(each, mode if each == wanted else 0o777)
                except FileExistsError as error:
                    if not os.path.isdir(each):
                        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), each) from error
                try:
                    self.sync_folder(os.path.dirname(each))
                except OSError:
                    with suppress(OSError):  # what stays would pass for durable the next time
                        self.system.rmdir(each)
                    raise
            if len(self._durable) >= _MOST_FOLDERS:
                self._durable.clear()
            self._durable.add(wanted)

    def lives_in_memory(self, device: int) -> bool:
        """Tell whether the filesystem with this ``st_dev`` has no disk to wait for. Blocks."""
        known = self._in_memory.get(device)
        if known is None:
            known = self._in_memory[device] = is_in_memory(device)
        return known

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable. Blocks."""
        fd = self.system.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self.system.fsync(fd)
        except OSError as error:
            # Some filesystems (FUSE, SMB) have no such operation; their names need none.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
        finally:
            os.close(fd)


def partial_name(name: str, owner: str | None = None) -> str:
    """Make a name for an unfinished file, hidden and at most 255 bytes long: its owner's, or else unlike any other."""
    end = f".{secrets.token_hex(4) if owner is None else owner}.partial"
    most = 255 - 1 - len(end)
    encoded = os.fsencode(name)
    if len(encoded) > most:
        name = encoded[:most].decode(errors="ignore")
    return f".{name}{end}"


def is_partial(name: str) -> bool:
    """Tell whether a file of that name is unfinished."""
    return name.startswith(".") and name.endswith(".partial") and len(name) > len("..partial")


def open_own(
    path: str, flags: int, mode: int = 0o600, *, linked: bool = False, anyones: bool = False, system: Any = None
) -> int:
    """Open a regular file of this user's (or root's), whatever others have put into the folder. Blocks.

    For the files that this library keeps beside objects (locks, headers, journals) in a folder that others may write
    to, or that came from an archive. Nothing else is opened for good: not what a symbolic link names, not a pipe or a
    device, on which opening would wait, not another user's file. Only the last name of the path is held to that; the
    folder is the caller's choice.

    Args:
        flags: as for `os.open`. With ``O_TRUNC`` the file is cut only after it was found to be one's own.
        mode: of a file that is made; the umask takes from it as ever.
        linked: another name may lead to the file, as while it is published under its own.
        anyones: it may be another user's: a lock, in a folder that users share, whose content nobody believes.

    Raises:
        ObjectNotFoundError: there is no such file, or it was removed meanwhile.
        StoragePermissionError: it is another user's.
        StorageError: it is a link, has another name, is no regular file, or what the system says.
    """
    system = os if system is None else system
    with mapped_errors("opening", path):
        try:
            fd: int = system.open(path, flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, mode)
        except OSError as error:
            if error.errno == errno.ELOOP and os.path.islink(path):
                raise _not_own(StorageError, path, "it is a symbolic link", errno.ELOOP) from error
            if error.errno == errno.ENXIO:  # a pipe that nobody reads, or a socket
                raise _not_own(StorageError, path, "it is no regular file", errno.ENXIO) from error
            raise
        try:
            status = system.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise _not_own(StorageError, path, "it is no regular file", errno.EINVAL)
            if not status.st_nlink:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not anyones and status.st_uid not in (os.geteuid(), 0):
                who = f"it belongs to the user {status.st_uid}, and this process to {os.geteuid()}"
                raise _not_own(StoragePermissionError, path, who, errno.EPERM)
            if status.st_nlink > 1 and not linked:
                raise _not_own(StorageError, path, "another name leads to the same file", errno.EMLINK)
            if flags & os.O_TRUNC:
                system.ftruncate(fd, 0)
        except BaseException:
            os.close(fd)
            raise
    return fd


def is_not_own(error: StorageError) -> bool:
    """Whether `open_own` found a file that is not to be believed, or none; the system's other errors say nothing.

    A disk that fails, or too many open files, make nobody's header another user's.
    """
    return isinstance(error, (ObjectNotFoundError, StoragePermissionError)) or error.errno in _NOT_OWN


def read_at(fd: int, size: int, position: int, system: Any = None) -> bytes:
    """Read so many bytes of a file, fewer only where it ends: one call may give less (NFS, FUSE, a signal). Blocks."""
    blocks = []
    pread = (os if system is None else system).pread
    while size and (block := pread(fd, size, position)):
        blocks.append(block)
        position += len(block)
        size -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def write_at(fd: int, data: Buffer, position: int, system: Any = None) -> None:
    """Write all of ``data`` into a file at ``position``: one call may take less (a full disk, NFS). Blocks."""
    view = memoryview(data).cast("B")
    pwrite = (os if system is None else system).pwrite
    while view:
        written = pwrite(fd, view, position)
        position += written
        view = view[written:]


def tells_what_is_cached(fd: int, system: Any = None) -> bool:
    """Tell whether the file system takes `NOWAIT`: NFS and FUSE, where looking may be waiting, do not. Blocks."""
    if not NOWAIT:
        return False
    try:
        (os if system is None else system).preadv(fd, [bytearray(1)], 0, NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


_NOT_OWN = (errno.ELOOP, errno.ENXIO, errno.EINVAL, errno.EMLINK)


def _not_own(kind: type[StorageError], path: str, what: str, code: int) -> StorageError:
    error = kind(f"opening {path}: {what}; a file of this name is trusted only when this user made it: remove it")
    error.errno = code
    return error


def object_info(key: str, status: os.stat_result) -> ObjectInfo:
    """Describe the object that a file holds, by its status."""
    return ObjectInfo(
        key=key,
        size=status.st_size,
        etag=f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}",
        crc32c=None,
        modified=datetime.fromtimestamp(status.st_mtime_ns / 1e9, UTC),
    )


# To these, a file that stands where a folder should be means only that there is nothing below it.
_LOOKING = ("finding", "opening", "deleting", "listing")

_ADVICE = {
    errno.ENOSPC: "free some space, or write elsewhere",
    errno.EDQUOT: "the user's quota is used up: free some space, or write elsewhere",
    errno.EIO: "the disk failed; see the system's log, and do not trust it with more",
    errno.EMFILE: "raise the limit (ulimit -n), or open fewer shards and readers at once",
    errno.ENFILE: "the system's limit is reached: close what is not needed",
    errno.ENAMETOOLONG: "a name has at most 255 bytes, 18 of which an unfinished file needs",
    errno.ELOOP: "symbolic links lead round in a circle",
    errno.EISDIR: "a folder has that name: choose another key",
    errno.ENOTDIR: "a file has the name of one of its folders: choose another key",
    errno.EFBIG: "the filesystem takes no larger file: write smaller shards",
    errno.EROFS: "the filesystem is mounted read-only",
}


def local_error(error: OSError, doing: str, path: str) -> StorageError:
    """Make the error of our tree for what the system said while ``doing`` (a gerund) ``path``; to be raised from it."""
    code = error.errno or 0
    kind: type[StorageError] = StorageError
    if isinstance(error, FileNotFoundError) or (code == errno.ENOTDIR and doing in _LOOKING):
        kind = ObjectNotFoundError
    elif isinstance(error, FileExistsError):
        kind = ObjectExistsError
    elif isinstance(error, PermissionError) or code == errno.EROFS:
        kind = StoragePermissionError
    advice = f"; {_ADVICE[code]}" if code in _ADVICE and kind is not ObjectNotFoundError else ""
    mapped = kind(f"{doing} {path}: {error.strerror or error}{advice}")
    mapped.errno = error.errno
    return mapped


@contextmanager
def mapped_errors(doing: str, path: str) -> Iterator[None]:
    """Raise errors of the system in the block as `local_error`; those of our tree pass through."""
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        raise local_error(error, doing, path) from error
