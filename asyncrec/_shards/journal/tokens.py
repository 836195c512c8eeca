"""The locked file of a job that has a mark in a store: it proves the job alive or dead on the job's machine.

The file is in a folder of this user's, under a random token, which the job's mark has, too. The system releases the
lock when the process ends, however it ends. A missing file proves nothing: it may have been in another container, or
was cleaned up. Everything here blocks, and is for worker threads.
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
# Of jobs whose mark may come into the store late, though they were refused: a program that is refused each second would
# fill the folder in a month.
_BRIEFLY_SECONDS = 86400
_swept: set[str] = set()
# A boot id and a device.
_MOST_MACHINE = 1 << 10


def begin_token() -> tuple[str, FileLock]:
    """Make the locked file of a job of this process; return its token, for the job's mark.

    Raises:
        StorageError: the folder does not exist, or cannot be written to.
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
    """Take the lock of another job, if its file is on this machine; return it, and whether it proves the job dead.

    Raises:
        StorageError: the job is alive; its ``errno`` is EWOULDBLOCK.
    """
    try:
        if not token.isalnum():
            return None, False
        path = os.path.join(_folder(), f"{token}.lock")
        fd = open_own(path, os.O_RDWR)
    except StorageError:
        return None, False  # not there, or not a file of this user's: it proves nothing
    lock = FileLock(fd, path)
    try:
        with mapped_errors("reading", path):
            return lock, lock_proves(fd, read_at(fd, _MOST_MACHINE, 0).decode("ascii", "replace"))
    except BaseException:
        lock.release()
        raise


def end_token(lock: FileLock, *, keep: bool = False, briefly: bool = False) -> None:
    """Release a lock, of `begin_token` or of another job. Idempotent.

    ``keep`` leaves the file for the next process that proves the job dead: for a month, or with ``briefly`` for a day.
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
    """
    Raises:
        StorageError: the system has no folder that this process can write to.
    """
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime):
        return os.path.join(runtime, "asyncrec")
    with mapped_errors("finding", "a folder for locks"):  # in a container, each may be read-only
        return os.path.join(tempfile.gettempdir(), f"asyncrec-{os.geteuid()}")


def _sweep(folder: str) -> None:
    """Remove locks that were not held for a month: their marks are gone, or of jobs that a person has to judge.

    Runs once in a process: a machine of many jobs has many of them.
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
