"""`FileLock`: a lock on a file, held by one process, which dies with it. Blocking; for worker threads.

flock(2): the system gives it up when the process ends, however it ends. A child made by fork would keep it alive beyond
its parent, so that children close their copy at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from contextlib import suppress

from asyncrec.errors import StorageError

__all__ = ["FileLock"]

_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """Taken over an open descriptor, which it owns from then on."""

    def __init__(self, fd: int, path: str) -> None:
        """Take the lock.

        Raises:
            StorageError: somebody has it; its text says which process. The descriptor is closed then.
        """
        self.fd = fd
        self.path = path
        # Held by an object that nobody has got (asyncio's own cancellation loses what a thread returns), it would be
        # held for as long as the process lives.
        self._finalizer = weakref.finalize(self, _close_quietly, fd)
        self._finalizer.atexit = False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            in_use = _in_use(fd, path)
            self.release()
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            raise in_use from None
        _held.add(self)

    def release(self) -> None:
        """Idempotent."""
        if self.fd >= 0:
            self.fd = -1
            self._finalizer()
            _held.discard(self)


def _in_use(fd: int, path: str) -> StorageError:
    """The error that names who has the lock, by the process number that stands first in the file."""
    try:
        owner = os.pread(fd, 20, 0).partition(b"\n")[0].decode("ascii", "replace")
    except OSError:
        owner = ""
    who = f"process {owner}" if owner.isdigit() else "another process"
    error = StorageError(f"{path}: {who} is using it, and lives; when it has ended, what it left can be recovered")
    error.errno = errno.EWOULDBLOCK
    return error


def _close_quietly(fd: int) -> None:
    with suppress(OSError):  # the lock goes with the descriptor, whatever closing says
        os.close(fd)


def _give_up_copies() -> None:
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_give_up_copies)
