"""Whether a job is alive, dead or unknown: a lock says, where it would have been seen (`storage._local.mounts`).

In a local folder the lock is on the job's header (`Journal`). Elsewhere it is on a file in a folder of this user's on
the job's machine, under a random token, which stands in the job's mark (`Life`). The system gives a lock up when the
process ends, however it ends. A file that is not there proves nothing: it may have been another container's, or was
cleaned away.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Literal, TypeAlias, TypeVar

from asyncrec._concurrency.tasks import acquire_in_thread, in_thread, surely_in_thread
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import Journal, find_job_headers
from asyncrec._shards.ownership.marks import find_marks
from asyncrec.errors import StorageError, StoragePermissionError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.disk import mapped_errors, read_at, write_at
from asyncrec.storage._local.lock import FileLock
from asyncrec.storage._local.mounts import lock_proves, this_machine
from asyncrec.storage._local.opening import open_own
from asyncrec.storage._local.storage import LocalStorage, local_folder

LifeState: TypeAlias = Literal["alive", "dead", "unknown", "ended"]
"""Of a job: ``"unknown"`` where nothing here can tell; ``"ended"`` where its header has just gone."""

# A writer that opens looks at the headers of others for a moment; only who holds one longer than that lives.
LOOKS = 3
BETWEEN_LOOKS = 0.05

_FORGOTTEN_SECONDS = 30 * 86400
# Of jobs whose mark may come into the store late, though they were refused: a program that is refused each second would
# fill the folder in a month.
_BRIEFLY_SECONDS = 86400
_swept: set[str] = set()
# A boot id and a device.
_MOST_MACHINE = 1 << 10


def this_host() -> str:
    """Return the name of this machine, for people: a container has a new one each time that it starts."""
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
    """The lock of a job: of this one (`begin`), or of another one (`take`). It is held until `end`.

    Attributes:
        dead: of another job, whether the lock proves it dead.
    """

    def __init__(self, token: str, path: str, lock: FileLock, *, dead: bool = False) -> None:
        self.token = token
        self.dead = dead
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
            life = cls(token, path, FileLock(fd, path))
        except StorageError:
            os.unlink(path)
            raise
        try:
            with mapped_errors("writing", path):
                write_at(fd, this_machine(fd).encode(), 0)
        except BaseException:
            life.end()
            raise
        return life

    @classmethod
    def take(cls, token: str) -> Life | None:
        """Take the lock of another job; `None` where it is not on this machine.

        Whether the job is dead thereby, `dead` says.

        Raises:
            StorageError: it lives; its ``errno`` is EWOULDBLOCK.
        """
        if not token.isalnum():
            return None
        path = os.path.join(_folder(), f"{token}.lock")
        try:
            fd = open_own(path, os.O_RDWR)
        except StorageError:
            return None  # not there, or not a file of this user's: it proves nothing
        lock = FileLock(fd, path)
        try:
            with mapped_errors("reading", path):
                dead = lock_proves(fd, read_at(fd, _MOST_MACHINE, 0).decode("ascii", "replace"))
        except BaseException:
            lock.release()
            raise
        return cls(token, path, lock, dead=dead)

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


Held = TypeVar("Held", Journal, Life)


async def claim_journal(local: LocalStorage, path: str) -> tuple[LifeState, Journal | None]:
    """Lock the header of a job on a disk, if the job is not alive, and say what is known of it.

    Raises:
        StorageError: the disk, or the file is not this user's.
    """
    state, journal = await _claim(partial(Journal.claim, local, path))
    return ("ended" if state == "unknown" and journal is None else state), journal


async def claim_life(mark: JobHeader) -> tuple[LifeState, Life | None]:
    """Lock what proves the job of a mark dead, if that is on this machine, and say what is known of the job."""
    return await _claim(partial(Life.take, mark.life))


async def state_of(claim: Awaitable[tuple[LifeState, Journal | Life | None]]) -> LifeState:
    """Say what is known of a job, and let go of its lock at once."""
    state, held = await claim
    if held is not None:
        await surely_in_thread(partial(held.end, keep=True))
    return state


async def _claim(claim: Callable[[], Held | None]) -> tuple[LifeState, Held | None]:
    """Say of a job whether it is alive, dead or unknown: this is the one place that does."""
    try:
        held = await acquire_in_thread(claim, _let_go)
    except StorageError as error:
        if error.errno != errno.EWOULDBLOCK:
            raise
        return "alive", None
    return ("dead" if held is not None and held.dead else "unknown"), held


def _let_go(held: Journal | Life | None) -> None:
    if held is not None:
        held.end(keep=True)


async def census(folder: Storage, name: str) -> list[tuple[JobHeader, LifeState]]:
    """The jobs on a data set that have not ended, and whether they live.

    Jobs of other machines and of other users are ``"unknown"``: a lock proves nothing there.
    """
    local = local_folder(folder)
    headers = await in_thread(find_job_headers, local, name) if local is not None else []
    jobs = [(header, await _known(state_of(claim_journal(local, path)))) for path, header in headers if local]
    jobs += [(mark, await _known(state_of(claim_life(mark)))) for mark in await find_marks(folder, name)]
    return [(header, state) for header, state in jobs if state != "ended"]


async def _known(state: Awaitable[LifeState]) -> LifeState:
    try:
        return await state
    except StorageError:
        return "unknown"
