"""`FileLock` is a lock that one process holds. Acquiring it blocks, so acquire it in a worker thread.

Only this module calls flock(2). The system releases a lock when its process ends, for any reason. A forked child would
keep the lock after its parent has ended, so the child immediately closes its copy of the descriptor.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from contextlib import suppress

from asyncrec._concurrency.forks import on_fork
from asyncrec.errors import StorageError
from asyncrec.storage._local.opening import local_error

NO_LOCKS = frozenset((errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL))
"""The errors of filesystems that do not support locks."""

_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)


class FileLock:
    """A lock on a file, which owns the file's descriptor.

    Attributes:
        fd: the descriptor; -1 once the lock has been released, and in a forked child.
        path: the path of the file, as shown in errors.
    """

    def __init__(self, fd: int, path: str, *, wait: bool = False, needed: bool = True) -> None:
        """Acquire the lock.

        Args:
            fd: the descriptor of the open file; closed if the lock cannot be acquired.
            path: the path of the file, for errors.
            wait: whether to wait until another process releases the lock.
            needed: if false, keep the descriptor even if the lock cannot be acquired, as on a filesystem without locks.

        Raises:
            StorageError: another process holds the lock (``errno`` is EWOULDBLOCK, and the message identifies the
                process), or no process can acquire it (ENOLCK if the filesystem does not support locks).
        """
        self.fd = fd
        self.path = path
        # Without the finalizer, the lock would be held for the life of the process if this object were lost (asyncio's
        # own cancellation discards a thread's result).
        self._finalizer = weakref.finalize(self, _close_quietly, fd)
        self._finalizer.atexit = False
        on_fork(self)
        try:
            if wait:
                fcntl.flock(fd, fcntl.LOCK_EX)
            elif not try_flock(fd) and needed:
                raise _in_use(fd, path)
        except StorageError:
            self.release()
            raise
        except OSError as error:
            if needed:
                self.release()
                if error.errno in NO_LOCKS:
                    error = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
                raise local_error(error, "locking", path) from error

    @classmethod
    def attempt(cls, fd: int, path: str) -> FileLock | None:
        """Acquire the lock. If another process holds it, close the descriptor and return `None`.

        Raises:
            StorageError: no process can acquire the lock.
        """
        try:
            return cls(fd, path)
        except StorageError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            return None

    def release(self) -> None:
        """Release the lock and close the descriptor. Further calls have no effect."""
        if self.fd >= 0:
            self.fd = -1
            self._finalizer()

    def forked(self) -> None:
        """Close a forked child's copy of the descriptor, so that only the parent holds the lock."""
        self.release()


def try_flock(fd: int, *, shared: bool = False) -> bool:
    """Try to lock an open file without waiting. Return whether the lock was acquired.

    Raises:
        OSError: the system call failed, for example because the filesystem does not support locks.
    """
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _TAKEN:
            raise
        return False
    return True


def unlock(fd: int) -> None:
    """Release a lock explicitly, because closing the descriptor is not enough if a forked child has a copy."""
    with suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_UN)


def _in_use(fd: int, path: str) -> StorageError:
    """Return an error that identifies the process that holds the lock. Its id is on the first line of the file."""
    try:
        owner = os.pread(fd, 20, 0).partition(b"\n")[0].decode("ascii", "replace")
    except OSError:
        owner = ""
    who = f"process {owner}" if owner.isdigit() else "another process"
    error = StorageError(
        f"{path}: {who} is still using this folder; wait until it ends, or stop it, and then recover the records "
        "that it left"
    )
    error.errno = errno.EWOULDBLOCK
    return error


def _close_quietly(fd: int) -> None:
    with suppress(OSError):  # closing releases the lock, even if it reports an error
        os.close(fd)
