"""`census` returns the jobs on a data set that have not ended, and whether each is alive. No other code decides this.

A lock shows whether a job is alive, if this machine can see the lock (`storage._local.mounts`). If the job's header is
on a disk, the header is locked. Otherwise, the lock is on a file on the job's machine, whose token is in the job's mark
(`_shards.journal.staging`). In a folder that several machines share, a job counts as dead after two minutes of silence
(`JobFiles.are_silent`). Nothing can prove that a detached job is dead.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import anyio

from asyncrec._concurrency.tasks import acquire_in_thread, in_thread
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.home import NOWHERE, Home, home_of
from asyncrec._shards.journal.staging import Staging
from asyncrec._shards.ownership.marks import find_marks, load_mark
from asyncrec.errors import ConflictError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join

JobState: TypeAlias = Literal["alive", "dead", "unknown", "ended"]
"""The state of a job: ``"unknown"`` if nothing here can tell, ``"ended"`` if its header has just been removed."""

# A writer that is being opened locks other jobs' headers for a moment. Only a job whose lock is held longer is alive.
LOOKS = 3
BETWEEN_LOOKS = 0.05


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that has not ended.

    Attributes:
        header: the job's header.
        home: the home that contains the header; `NOWHERE` if the header is a mark in the store.
    """

    header: JobHeader
    home: Home = NOWHERE

    @property
    def marked(self) -> bool:
        """Whether the header is a mark."""
        return self.home.folder is None

    def claim(self) -> tuple[JobState, Staging | None]:
        """Return the job's state, and its locked files unless it is alive or has just ended. Blocks.

        Raises:
            StorageError: the disk fails, or the file belongs to another user.
        """
        try:
            staging = self.home.claim(self.header)
        except StorageError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            return "alive", None
        if staging is None:
            return "ended", None
        return ("dead" if staging.dead else "unknown"), staging

    def state(self) -> JobState:
        """Return the state of the job, or ``"unknown"`` if it cannot be determined because of an error. Blocks."""
        try:
            state, staging = self.claim()
        except StorageError:
            return "unknown"
        if staging is not None:
            staging.end(keep=True)
        return state


async def claimed(job: FoundJob, *, looks: int = 1) -> tuple[JobState, Staging | None]:
    """Call `FoundJob.claim` in a thread. If the job seems alive, try again, making up to ``looks`` attempts.

    A single attempt can be wrong, because another process may hold the job's lock for a moment to take its own census.
    """
    for look in range(looks):
        if look:
            await anyio.sleep(BETWEEN_LOOKS)
        state, staging = await acquire_in_thread(job.claim, _let_go)
        if state != "alive":
            break
    return state, staging


def _let_go(claimed: tuple[JobState, Staging | None]) -> None:
    if claimed[1] is not None:
        claimed[1].end(keep=True)


def jobs_in(home: Home, name: str | None = None) -> list[FoundJob]:
    """Find the jobs with a header in ``home``, on the data set ``name`` or on any data set. Blocks.

    Raises:
        StorageError: a header cannot be read.
    """
    return [FoundJob(header, home) for header in home.headers(name)]


async def find_jobs(folder: Storage, name: str) -> list[FoundJob]:
    """Find all jobs on a data set that have not ended, from their marks and from the headers in its folder."""
    marked = [FoundJob(header) for header in await find_marks(folder, name)]
    return [*await in_thread(jobs_in, home_of(folder), name), *marked]


async def find_job(folder: Storage, name: str, writer: str) -> FoundJob | None:
    """Find a job by its id; return `None` if no job has this id or the job has ended.

    Raises:
        ConflictError: the header belongs to another user.
    """
    home = home_of(folder)
    for job in await in_thread(jobs_in, home, name):
        if job.header.writer == writer:
            return job
    if await in_thread(home.is_taken, name, writer):
        path = join(folder.root, name)
        raise ConflictError(
            f"{path}: the writer {writer} belongs to another user and may still be running; wait until it ends, or "
            "choose another name"
        )
    mark = await load_mark(folder, name, writer)
    return None if mark is None else FoundJob(mark)


async def states_of(jobs: Iterable[FoundJob]) -> list[tuple[FoundJob, JobState]]:
    """Return each job with its state, except jobs that have just ended."""
    return [(job, state) for job, state in await in_thread(_judged, list(jobs)) if state != "ended"]


async def census(folder: Storage, name: str) -> list[tuple[FoundJob, JobState]]:
    """Return the jobs on a data set that have not ended, each with its state.

    In a store, jobs of other machines or other users are ``"unknown"``. In a shared folder, a job is alive if this
    machine sees that its lock is held, dead after two minutes of silence, and otherwise unknown.
    """
    return await states_of(await find_jobs(folder, name))


async def dead_among(jobs: Iterable[FoundJob], *, looks: int = LOOKS) -> list[FoundJob]:
    """Return the jobs that have died. A job that seems alive is checked up to ``looks`` times.

    A single check can be wrong, because another process may hold the job's lock for a moment to read its header.
    """
    left, dead = list(jobs), []
    for look in range(looks):
        if look:
            await anyio.sleep(BETWEEN_LOOKS)
        judged = await in_thread(_judged, left)
        dead += [job for job, state in judged if state == "dead"]
        left = [job for job, state in judged if state == "alive"]
        if not left:
            break
    return dead


def _judged(jobs: list[FoundJob]) -> list[tuple[FoundJob, JobState]]:
    return [(job, job.state()) for job in jobs]
