"""`Life`: a locked file proves a job on this machine alive or dead, where its data set is not in a local folder.

The file lies in a folder of this user's on this machine, under a random token, which stands in the job's mark. The
system gives the lock up when the process ends, however it ends. A file that is not there proves nothing: it may have
been another container's, or was cleaned away. `Life` blocks, and is for worker threads; `take_life` goes to one.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
import tempfile
import time
from contextlib import suppress
from functools import partial

from asyncrec._concurrency.tasks import acquire_in_thread, surely_in_thread
from asyncrec._shards.journal.header import JobHeader
from asyncrec.errors import ObjectNotFoundError, StorageError, StoragePermissionError
from asyncrec.storage._local.disk import mapped_errors
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.opening import open_own

__all__ = ["BETWEEN_LOOKS", "LOOKS", "Life", "is_alive", "take_life", "this_host"]

# A writer that opens looks at the headers of others for a moment; only who holds one longer than that lives.
LOOKS = 3
BETWEEN_LOOKS = 0.05

_FORGOTTEN_SECONDS = 30 * 86400
# Of jobs whose mark may come into the store late, though they were refused: a program that is refused each second would
# fill the folder in a month.
_BRIEFLY_SECONDS = 86400
_swept: set[str] = set()


def this_host() -> str:
    """Return the name of this machine, as marks and claims have it."""
    return socket.gethostname()


def _folder() -> str:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, "asyncrec")
    return os.path.join(tempfile.gettempdir(), f"asyncrec-{os.geteuid()}")


def _sweep(folder: str) -> None:
    """Remove locks that nobody has held for a month: their marks are gone, or of jobs that a person has to judge.

    Once in a process: a machine of many jobs has many of them.
    """
    if folder in _swept:
        return
    _swept.add(folder)
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with suppress(OSError):
            if name.endswith(".lock") and time.time() - os.lstat(path).st_mtime > _FORGOTTEN_SECONDS:
                lock = FileLock(open_own(path, os.O_RDWR), path)
                try:
                    os.unlink(path)
                finally:
                    lock.release()


class Life:
    """The lock of a job: of this one (`begin`), or of one that has died (`take`). It is held until `end`."""

    def __init__(self, token: str, path: str, lock: FileLock) -> None:
        self.token = token
        self._path = path
        self._lock = lock

    @classmethod
    def begin(cls) -> Life:
        """Begin the life of a job of this process.

        Raises:
            StorageError: the folder cannot be written to.
        """
        folder = _folder()
        with mapped_errors("making", folder):
            os.makedirs(folder, mode=0o700, exist_ok=True)
            status = os.lstat(folder)
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
                raise StoragePermissionError(f"{folder}: it is not this user's alone, so that it proves nothing")
        _sweep(folder)
        token = secrets.token_hex(8)
        path = os.path.join(folder, f"{token}.lock")
        fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            return cls(token, path, FileLock(fd, path))
        except StorageError:
            os.unlink(path)
            raise

    @classmethod
    def take(cls, host: str, token: str) -> Life | None:
        """Take the lock of a job that is thereby proven dead; `None` where nothing is proven.

        Raises:
            StorageError: it lives; its ``errno`` is EWOULDBLOCK.
        """
        if host != this_host() or not token.isalnum():
            return None
        path = os.path.join(_folder(), f"{token}.lock")
        try:
            fd = open_own(path, os.O_RDWR)
        except ObjectNotFoundError:
            return None
        except StorageError:
            return None  # not a file of this user's: it proves nothing
        return cls(token, path, FileLock(fd, path))

    def end(self, *, keep: bool = False, briefly: bool = False) -> None:
        """Let go of the lock. Idempotent.

        ``keep`` leaves the file to whoever proves the job dead next; with ``briefly`` for a day, and not a month.
        """
        if self._lock.fd >= 0:
            with suppress(OSError):
                if not keep:
                    os.unlink(self._path)
                elif briefly:
                    forgotten = time.time() - _FORGOTTEN_SECONDS + _BRIEFLY_SECONDS
                    os.utime(self._path, (forgotten, forgotten))
            self._lock.release()


async def take_life(mark: JobHeader) -> Life | None:
    """Call `Life.take` for the job of a mark, in a worker thread."""
    return await acquire_in_thread(partial(Life.take, mark.host, mark.life), _let_go)


async def is_alive(mark: JobHeader) -> bool | None:
    """Whether the job of a mark lives; `None` where nobody here can tell."""
    try:
        life = await take_life(mark)
    except StorageError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return True
    if life is None:
        return None
    await surely_in_thread(partial(life.end, keep=True))
    return False


def _let_go(life: Life | None) -> None:
    if life is not None:
        life.end(keep=True)
