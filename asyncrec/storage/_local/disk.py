"""Code that the local backend's modules share: threads, folders, names of unfinished files, and mapped errors."""

from __future__ import annotations

import errno
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar, TypeVarTuple

import anyio

from asyncrec._concurrency.tasks import in_thread, surely_in_thread
from asyncrec.storage._base import Buffer, ObjectInfo
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.mounts import is_in_memory
from asyncrec.storage._local.opening import local_error as local_error
from asyncrec.storage._local.opening import mapped_errors as mapped_errors
from asyncrec.storage._local.opening import open_folder

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
"""The flag with which preadv(2) returns only cached bytes, without waiting for a disk; 0 except on Linux."""

# The maximum number of threads of one storage. A disk hardly benefits from more, and if the disk is stuck, most of the
# process's threads (40 by default in anyio) are still free for the user.
_THREADS = 16
# The maximum number of folders remembered as durable. A forgotten folder only needs another fsync.
_MOST_FOLDERS = 1000
# The errors that filesystems without hard links raise (FAT, some FUSE and SMB). Linux returns EPERM.
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Address of one object.

    Attributes:
        key: the object's key in the storage.
        path: the path of the file.
        shown: the path as shown in errors.
    """

    key: str
    path: str
    shown: str


class Disk:
    """One storage's access to the operating system.

    Attributes:
        system: the functions of `os`; tests substitute an object that injects failures.
    """

    def __init__(self, system: Any = None) -> None:
        self.system: Any = os if system is None else system
        self._limiter = anyio.CapacityLimiter(_THREADS)
        self._making_folders = threading.Lock()
        self._durable: set[str] = set()
        self._buffer = bytearray()
        self._in_memory: dict[int, bool] = {}

    def buffer(self, size: int) -> bytearray:
        """Return a shared buffer of ``size`` bytes, for use only on the event loop and until the next await."""
        if len(self._buffer) != size:
            self._buffer = bytearray(size)
        return self._buffer

    async def in_thread(self, func: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run a function in a worker thread, within this disk's limit (`asyncrec._concurrency.tasks.in_thread`)."""
        return await in_thread(func, *args, limiter=self._limiter)

    async def surely_in_thread(self, func: Callable[[], object]) -> None:
        """Run ``func`` in a thread even if the task is cancelled (`asyncrec._concurrency.tasks.surely_in_thread`)."""
        await surely_in_thread(func, limiter=self._limiter)

    def link(self, partial: str, path: str) -> bool:
        """Give an unfinished file its final name. Return whether the old name still exists. Blocks.

        Raises:
            FileExistsError: the new name exists.
        """
        try:
            self.system.link(partial, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
        else:
            return True
        # Without hard links, a lock on the folder excludes the other processes of this machine.
        folder = os.path.dirname(path)
        lock = FileLock(open_folder(folder, system=self.system), folder, wait=True)
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
        """Create a folder and its missing parents. Each is durable before it is used. Blocks.

        ``mode`` applies to the folder itself, if this call creates it. Parents get the default mode, less the umask.
        """
        if path in self._durable and os.path.isdir(path):
            return
        wanted = path
        # The lock prevents a thread from using a folder that another thread has created but not yet synced.
        with self._making_folders:
            missing = []
            while not os.path.isdir(path):
                missing.append(path)
                path = os.path.dirname(path)
            if not missing:
                # The process that created the folder may have been killed before the folder was durable.
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
                    with suppress(OSError):  # a remaining folder would later be assumed durable
                        self.system.rmdir(each)
                    raise
            if len(self._durable) >= _MOST_FOLDERS:
                self._durable.clear()
            self._durable.add(wanted)

    def lives_in_memory(self, device: int) -> bool:
        """Return whether the filesystem with this ``st_dev`` is in memory, without a disk to wait for. Blocks."""
        known = self._in_memory.get(device)
        if known is None:
            known = self._in_memory[device] = is_in_memory(device)
        return known

    def sync_folder(self, path: str) -> None:
        """Make the entries of a folder durable. Blocks."""
        fd = open_folder(path, system=self.system)
        try:
            self.system.fsync(fd)
        except OSError as error:
            # Some filesystems (FUSE, SMB) do not support fsync of a folder, and do not need it.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
                raise
        finally:
            os.close(fd)


def partial_name(name: str, owner: str | None = None) -> str:
    """Return a hidden name of at most 255 bytes for an unfinished file. It contains the owner's id or a random id."""
    end = f".{secrets.token_hex(4) if owner is None else owner}.partial"
    most = 255 - 1 - len(end)
    encoded = os.fsencode(name)
    if len(encoded) > most:
        name = encoded[:most].decode(errors="ignore")
    return f".{name}{end}"


def is_partial(name: str) -> bool:
    """Return whether ``name`` is the name of an unfinished file."""
    return name.startswith(".") and name.endswith(".partial") and len(name) > len("..partial")


def read_at(fd: int, size: int, position: int, system: Any = None) -> bytes:
    """Read ``size`` bytes of a file, or fewer at its end. Repeat short reads (NFS, FUSE, signals). Blocks."""
    blocks = []
    pread = (os if system is None else system).pread
    while size and (block := pread(fd, size, position)):
        blocks.append(block)
        position += len(block)
        size -= len(block)
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def write_at(fd: int, data: Buffer, position: int, system: Any = None) -> None:
    """Write all of ``data`` into a file at ``position``. Repeat short writes (a full disk, NFS). Blocks."""
    view = memoryview(data).cast("B")
    pwrite = (os if system is None else system).pwrite
    while view:
        written = pwrite(fd, view, position)
        position += written
        view = view[written:]


def tells_what_is_cached(fd: int, system: Any = None) -> bool:
    """Return whether the filesystem supports `NOWAIT`. NFS and FUSE do not, because their check may wait. Blocks."""
    if not NOWAIT:
        return False
    try:
        (os if system is None else system).preadv(fd, [bytearray(1)], 0, NOWAIT)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def object_info(key: str, status: os.stat_result) -> ObjectInfo:
    """Return the description of an object, from the status of its file."""
    return ObjectInfo(
        key=key,
        size=status.st_size,
        etag=f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}",
        crc32c=None,
        modified=datetime.fromtimestamp(status.st_mtime_ns / 1e9, UTC),
    )
