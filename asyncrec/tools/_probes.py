"""Probes of a store: `race` (exclusive creation), `HeldLoop` (blocked event loop), and `check_locks` (file locks)."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec.errors import ObjectExistsError, StorageError
from asyncrec.storage._base import Buffer, Storage
from asyncrec.storage._local.disk import mapped_errors
from asyncrec.storage._local.lock import FileLock, try_flock
from asyncrec.storage._local.mounts import is_one_machines, mount_of
from asyncrec.storage._local.opening import open_own
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.tools._doctor_report import Check


async def race(storage: Storage, key: str, bodies: Sequence[Buffer]) -> list[int]:
    """Let several writers create the same key exclusively. Each sends all of its bytes before any of them publishes.

    Return the numbers of the writers that succeeded. If the store supports exclusive creation, this is exactly one.

    Raises:
        StorageError: a writer failed for a reason other than that the object exists.
    """
    won: list[int] = []
    failed: list[StorageError] = []
    missing = set(range(len(bodies)))
    all_ready = anyio.Event()

    def ready(n: int) -> None:
        missing.discard(n)
        if not missing:
            all_ready.set()

    async def write(n: int) -> None:
        try:
            async with storage.open_sink(key, exclusive=True) as sink:
                view = memoryview(bodies[n])
                while view:
                    size = sink.chunk_size
                    await sink.send([view[:size]])
                    view = view[size:]
                ready(n)
                await all_ready.wait()
        except ObjectExistsError:
            return
        except StorageError as error:
            failed.append(error)
        else:
            won.append(n)
        finally:
            ready(n)

    async with TaskScope() as scope:
        for n in range(len(bodies)):
            scope.start_soon(write, n)
    if failed:
        raise failed[0]
    return won


_TICK = 0.005


class HeldLoop:
    """Measures how long the checks block the event loop. Run `watch` as a task during the checks.

    Attributes:
        longest: the longest time, in seconds, that the event loop was blocked, and the check that blocked it.
    """

    def __init__(self) -> None:
        self.longest = 0.0, ""
        self._trying = ""
        self._ticked = 0.0  # the time at which `watch` last ran or the current check began

    def trying(self, what: str) -> None:
        """Begin a check with this name."""
        self.tick()
        self._trying = what

    def tick(self) -> None:
        now = time.perf_counter()
        if self._trying:
            self.longest = max(self.longest, (max(0.0, now - self._ticked - _TICK), self._trying))
        self._ticked = now

    async def watch(self) -> None:
        while True:
            self.tick()
            await anyio.sleep(_TICK)


def check_locks(folder: LocalStorage) -> Check:
    """Lock a file in a folder, and check that the lock cannot be acquired through a second descriptor. Blocks."""
    path = os.path.join(folder.folder, f".{secrets.token_hex(8)}.partial")
    try:
        with mapped_errors("locking", path):
            lock = FileLock(open_own(path, os.O_RDWR | os.O_CREAT | os.O_EXCL), path)
            try:
                kind = mount_of(lock.fd)[0]
                second = open_own(path, os.O_RDWR)
                try:
                    refused = not try_flock(second)
                finally:
                    os.close(second)
            finally:
                lock.release()
    except OSError as error:
        return Check(name="locks", ok=False, detail=f"a writer cannot be opened here: {error}")
    finally:
        with suppress(OSError):
            os.unlink(path)
    where = f"a filesystem of the type {kind!r}" if kind else "a filesystem of unknown type"
    if not refused:
        detail = f"{where}, where locks do not work: a writer that is running looks dead"
    elif is_one_machines(kind):
        detail = (
            f"{where}, which only one machine mounts at a time: a lock proves that a writer is dead, also after a "
            "reboot"
        )
    else:
        detail = (
            f"{where}, which several machines may mount: a lock proves that a writer on this machine is dead. A "
            "writer on another machine, or on this one before its last boot, counts as dead when it has been "
            "silent for two minutes"
        )
    return Check(name="locks", ok=refused, detail=detail)
