"""`census` tells which jobs on a data set are at work, which have died, and of which nobody here can say.

It looks, and changes nothing: a lock that it gets it lets go at once.
"""

from __future__ import annotations

import errno
from typing import Literal, TypeAlias

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import Journal, find_job_headers
from asyncrec._shards.ownership.liveness import take_life
from asyncrec._shards.ownership.marks import find_marks
from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage, local_folder

__all__ = ["LifeState", "census"]

LifeState: TypeAlias = Literal["alive", "dead", "unknown"]


async def census(folder: Storage, name: str) -> list[tuple[JobHeader, LifeState]]:
    """The jobs on a data set that have not ended, and whether they live.

    ``"unknown"`` are those of other machines and of other users: a lock proves nothing there.
    """
    local = local_folder(folder)
    jobs = await in_thread(_on_disk, local, name) if local is not None else []
    for header in await find_marks(folder, name):
        jobs.append((header, await _of_mark(header)))
    return jobs


def _on_disk(local: LocalStorage, name: str) -> list[tuple[JobHeader, LifeState]]:
    jobs: list[tuple[JobHeader, LifeState]] = []
    for path, header in find_job_headers(local, name):
        try:
            journal = Journal.claim(local, path)
        except StorageError as error:
            jobs.append((header, "alive" if error.errno == errno.EWOULDBLOCK else "unknown"))
            continue
        if journal is not None:  # else it has just ended
            journal.end(keep=True)
            jobs.append((header, "dead"))
    return jobs


async def _of_mark(header: JobHeader) -> LifeState:
    try:
        life = await take_life(header)
    except StorageError as error:
        return "alive" if error.errno == errno.EWOULDBLOCK else "unknown"
    if life is None:
        return "unknown"
    await in_thread(lambda: life.end(keep=True))
    return "dead"
