"""The locked file of a job that has a mark in a store. On the job's machine, it proves whether the job is alive.

The file is in a folder that belongs to this user. Its name is a random token, which the job's mark also contains. The
operating system releases the lock when the process exits, no matter how. A missing file proves nothing: it may be in
another container, or may have been cleaned up. All functions in this module block. Call them in worker threads.
"""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
import time
from contextlib import suppress

from asyncrec.errors import StorageError, StoragePermissionError
from asyncrec.storage._local.disk import mapped_errors, read_at, write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.mounts import lock_proves, this_machine
from asyncrec.storage._local.opening import open_own

_FORGOTTEN_SECONDS = 30 * 86400
# For jobs that failed to open, but whose mark may still reach the store later. If the files of these jobs were kept for
# a month, a program that fails every second would fill the folder.
_BRIEFLY_SECONDS = 86400
_swept: set[str] = set()
# More than the combined length of a boot id and a device.
_MOST_MACHINE = 1 << 10


def begin_token() -> tuple[str, FileLock]:
    """Create the locked file for a job of this process. Return the file's token, for the job's mark, and its lock.

    Raises:
        StorageError: the folder cannot be created or written to, or other users can write to it.
    """
    folder = _folder()
    with mapped_errors("creating", folder):
        os.makedirs(folder, mode=0o700, exist_ok=True)
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            raise StoragePermissionError(
                f"{folder}: other users can write to this folder, so its locks do not prove that a writer is dead"
            )
    _sweep(folder)
    token = secrets.token_hex(8)
    path = os.path.join(folder, f"{token}.lock")
    fd = open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        lock = FileLock(fd, path)
        with mapped_errors("writing", path):
            write_at(fd, this_machine(fd).encode(), 0)
    except BaseException:
        os.unlink(path)
        raise
    return token, lock


def take_token(token: str) -> tuple[FileLock | None, bool]:
    """Lock another job's file if it is on this machine. Return the lock, and whether getting it proves the job dead.

    Raises:
        StorageError: the job is alive (``errno`` is EWOULDBLOCK).
    """
    try:
        if not token.isalnum():
            return None, False
        path = os.path.join(_folder(), f"{token}.lock")
        fd = open_own(path, os.O_RDWR)
    except StorageError:
        return None, False  # a file that is missing, or belongs to another user, proves nothing
    lock = FileLock(fd, path)
    try:
        with mapped_errors("reading", path):
            return lock, lock_proves(fd, read_at(fd, _MOST_MACHINE, 0).decode("ascii", "replace"))
    except BaseException:
        lock.release()
        raise


def end_token(lock: FileLock, *, keep: bool = False, briefly: bool = False) -> None:
    """Release a lock that was returned by `begin_token` or `take_token`. Idempotent.

    With ``keep``, the file remains for a month, or for a day if ``briefly`` is also set, so that other processes can
    prove the job dead.
    """
    if lock.fd >= 0:
        with suppress(OSError):
            if not keep:
                os.unlink(lock.path)
            elif briefly:
                forgotten = time.time() - _FORGOTTEN_SECONDS + _BRIEFLY_SECONDS
                os.utime(lock.path, (forgotten, forgotten))
        lock.release()


def _folder() -> str:
    """Return the path of the folder for the locked files.

    Raises:
        StorageError: this process cannot write to any folder for temporary files.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, "asyncrec")
    with mapped_errors("finding", "a folder for locks"):  # in a container, every temporary folder may be read-only
        return os.path.join(tempfile.gettempdir(), f"asyncrec-{os.geteuid()}")


def _sweep(folder: str) -> None:
    """Remove the files of locks that are more than a month old and not held by any process.

    By that time, their jobs' marks no longer exist, or only a user can decide about the jobs. This is done once per
    process, because there are many locks on a machine with many jobs.
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
