"""`census` tells which jobs on a data set are at work, which have died, and of which nobody here can say.

It looks, and changes nothing: a lock that it gets it lets go at once.
"""

from __future__ import annotations

from collections.abc import Awaitable

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import find_job_headers
from asyncrec._shards.ownership.liveness import LifeState, claim_journal, claim_life, state_of
from asyncrec._shards.ownership.marks import find_marks
from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import local_folder

__all__ = ["LifeState", "census"]


async def census(folder: Storage, name: str) -> list[tuple[JobHeader, LifeState]]:
    """The jobs on a data set that have not ended, and whether they live.

    ``"unknown"`` are those of other machines and of other users: a lock proves nothing there.
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
