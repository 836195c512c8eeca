"""`FileLock`: a lock on a file, held by one process, which dies with it. Blocking; for worker threads.

flock(2): the system gives it up when the process ends, however it ends. A child made by fork would keep it alive beyond
its parent, so that children close their copy at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref

from asyncrec.errors import StorageError

__all__ = ["FileLock"]

_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """Taken over an open descriptor, which it owns from then on."""

    def __init__(self, fd: int, path: str) -> None:
        """Take the lock.

        Raises:
            StorageError: somebody has it; its text is `in_use`. The descriptor is closed then.
        """
        self.fd = fd
        self.path = path
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise in_use(path) from None
        _held.add(self)

    def release(self) -> None:
        """Idempotent."""
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)
            _held.discard(self)


def in_use(path: str) -> StorageError:
    """The error that names who has the lock, by the process number that stands first in the file."""
    try:
        with open(path, "rb") as file:
            owner = file.read(20).partition(b"\n")[0].decode("ascii", "replace")
    except OSError:
        owner = ""
    who = f"process {owner}" if owner.isdigit() else "another process"
    error = StorageError(f"{path}: {who} is using it, and lives; when it has ended, what it left can be recovered")
    error.errno = errno.EWOULDBLOCK
    return error


def _give_up_copies() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_give_up_copies)
