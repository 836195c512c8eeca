"""Recover after a crash: commit the records that unfinished jobs left behind, or abandon the jobs.

The jobs of a data set, of all data sets in a folder, or of a spool are found by the headers on this disk and by the
marks in a store. Each of them is ended by `end_job` (`_shards.ownership.end_job`), which commits everything that the
job had acknowledged: the records in its journals, the complete shards in its spool, the shards that it had published if
it is a rolling writer, and its fixed set if this is acknowledged or complete. A job that is alive is left unchanged.
The state of a job on another machine is unknown, so the job is reported with its age until a person declares it dead or
abandons it. If its header is in a folder that several machines share, the job counts as dead once none of its files has
changed for two minutes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from os import PathLike
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.journal.home import LocalHome, home_of
from asyncrec._shards.journal.remedies import recover_command
from asyncrec._shards.manifest.snapshot import address_of, check_name, dataset_at
from asyncrec._shards.ownership.census import FoundJob, find_jobs, jobs_in
from asyncrec._shards.ownership.flushed import clear_flushed, silent_among
from asyncrec._shards.ownership.listing import is_anything_at, why_nothing_at
from asyncrec._shards.ownership.marks import find_marks
from asyncrec._shards.recovery.on_opening import refuse_other_spool
from asyncrec._shards.recovery.report import Recovery
from asyncrec._shards.recovery.run import RecoveryRun
from asyncrec._shards.spool.folder import is_spool, lock_spool, refuse_spool
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._prefixed import folder_at
from asyncrec.storage._registry import is_local, located
from asyncrec.storage._url import join, redact

# The maximum number of addresses that an error message lists.
_MOST_LISTED = 5
_NO_SPOOL = "no writer has used this folder as its spool; nothing was recovered: pass the folder that spool= named"
# The key of a job's mark. The groups are the folder and the name of the data set.
_BEGIN = re.compile(r"((?:.*/)?)_manifest/([^/_.][^/]*)/[^/]+-000000\.jsonl")


async def recover(
    path: str | PathLike[str],
    *,
    to: str | PathLike[str] | None = None,
    abandon: Collection[str] = (),
    dead: Collection[str] = (),
    storage: Storage | None = None,
    storage_options: dict[str, Any] | None = None,
) -> Recovery:
    """Commit the records that dead writers left behind, and abandon dead jobs whose shards must all appear together.

    It may be called at any time, even while other processes write, and more than once. If it is cancelled or fails, the
    next call recovers the rest. If a job cannot be finished, the others are recovered nevertheless. The first error is
    raised at the end, with a note for each other error and for the results.

    Args:
        path: a spool; a data set, as for `open_sharded_writer`; or a folder. A folder stands for every data set in it
            or below it to which a job has begun to write.
        to: for a spool: the data set that its records go to, as for `open_sharded_writer`. It must be the data set for
            which they were written. The contents of the folder do not decide this, because the folder may come from
            another person.
        abandon: ids of jobs to abandon, even if they had promised records. Their uncommitted records are deleted. A job
            that is proven to be alive is not abandoned.
        dead: ids of jobs whose machines are gone with their disks, or that a person knows to be dead. For a rolling
            writer, the records that it published or flushed are committed, as are those in a folder on this machine,
            and then the job is ended. If the writer is still running after all, it continues under a new id if it
            flushes to its store; otherwise its exit raises an error. An all-or-nothing job is abandoned, unless it is a
            fixed set whose shards can be read here and are complete or flushed: that set is committed. A job that is
            proven to be alive is left unchanged.
        storage: an open `Storage`. The path of the data set (``to`` if ``path`` is a spool) is then a key in it.
        storage_options: options for the backend, if this call opens the storage. A spool holds no credentials.

    Raises:
        ValueError: a spool at or below the path holds records, but ``to`` was not passed (the message names the data
            sets for which they were written); or ``to`` was passed, but ``path`` is not a local folder; or an id is in
            both ``dead`` and ``abandon``. Nothing was changed.
        StorageError: a writer uses the spool (the message names its process); or the spool holds records for a data
            set other than ``to``, so none was sent; or ``path`` names a data set in a spool, which cannot have one.
        ConflictError: a job that promised records was abandoned by another process, or a job in ``abandon`` or ``dead``
            is alive.
        ObjectNotFoundError: the path holds nothing, not even leftovers of a writer; or ``to`` was passed, but the
            folder has never been a spool; or no job has an id in ``abandon`` or ``dead``. Nothing was changed.
        ManifestError: the manifest of the data set cannot be read.
    """
    run = RecoveryRun(abandon, dead)
    if await in_thread(is_spool, path):
        async with lock_spool(path) as spool:
            home = LocalHome(spool)
            jobs = await in_thread(jobs_in, home)
            if to is None and jobs:
                raise _without_address(spool, jobs)
            run.refuse_unknown(str(path), jobs)
            if to is not None:
                async with dataset_at(to, storage=storage, storage_options=storage_options) as (folder, name):
                    address = address_of(to, folder, name, storage=storage)
                    await refuse_other_spool(spool, address, name)
                    for job in jobs:
                        if (job.header.url, job.header.name) == (address, name):
                            await run.end(job, folder)
            await in_thread(home.remove_unnamed)
        return run.outcome()
    if to is not None:
        if not is_local(path):
            raise ArgumentValueError(
                f"{redact(os.fspath(path))}: to= can only be used with a spool, which is a local folder"
            )
        raise ObjectNotFoundError(f"{redact(os.fspath(path))}: {_NO_SPOOL}")
    async with located(path, storage=storage, storage_options=storage_options) as (store, key):
        datasets = await _datasets_at(store, key, redact(os.fspath(path)))
        if abandon or dead:
            jobs = [job for folder, name in datasets for job in await find_jobs(folder, name)]
            run.refuse_unknown(join(store.root, key), jobs)
        for folder, name in datasets:
            await _recover_dataset(run, folder, name)
        outcome = run.outcome()
        if outcome == Recovery() and not await is_anything_at(store, key):
            raise ObjectNotFoundError(f"{redact(os.fspath(path))}: {await why_nothing_at(store, key)}")
        return outcome


async def _datasets_at(store: Storage, key: str, path: str) -> list[tuple[Storage, str]]:
    """Return the data set that may be at ``key``, and the data sets below ``key`` to which jobs have begun to write.

    Raises:
        ArgumentValueError: there is a spool below ``key`` that is not empty.
        StorageError: the folder that ``key`` is in is a spool.
    """
    parent, _, name = key.rpartition("/")
    found: set[tuple[str, str]] = set()
    if name:
        check_name(name, path)
        beside = f"{parent}/" if parent else ""
        found.add((beside, name))
        await in_thread(refuse_spool, home_of(folder_at(store, beside)).folder)
    prefix = f"{key.rstrip('/')}/" if key else ""
    async for info in store.list_objects(prefix):
        if match := _BEGIN.fullmatch(info.key):
            found.add((match[1], match[2]))
    home = home_of(folder_at(store, prefix)).folder
    if home is not None and await in_thread(os.path.isdir, home.folder):
        # On a disk, a job's mark is its header, which is one of the unfinished files.
        for below in sorted({unfinished.key.rpartition("/")[0] async for unfinished in home.list_unfinished()}):
            names = await in_thread(_begun_in, LocalStorage(os.path.join(home.folder, below)))
            found.update((f"{prefix}{below}/" if below else prefix, name) for name in names)
    return [(folder_at(store, folder), name) for folder, name in sorted(found)]


def _begun_in(folder: LocalStorage) -> set[str]:
    """Return the names of the data sets that are written by the jobs whose headers are in a folder. Blocks.

    Raises:
        ArgumentValueError: the folder is a spool that contains records to recover.
    """
    jobs = jobs_in(LocalHome(folder))
    if is_spool(folder.folder) and jobs:
        states = [job.state() for job in jobs]
        if "dead" in states or "alive" not in states:
            raise _without_address(folder, jobs)
        return set()
    return {job.header.name for job in jobs}


async def _recover_dataset(run: RecoveryRun, folder: Storage, name: str) -> None:
    home = home_of(folder)
    for job in await in_thread(jobs_in, home, name):
        await run.end(job, folder)
    await in_thread(home.remove_strays, name)
    marks = await find_marks(folder, name)
    run.silent |= await silent_among(folder, marks)
    for mark in marks:
        await run.end(FoundJob(mark), folder)
    await clear_flushed(folder, name)


def _without_address(spool: LocalStorage, jobs: list[FoundJob]) -> ArgumentValueError:
    addresses = sorted({job.header.url for job in jobs})
    listed = ", ".join(addresses[:_MOST_LISTED]) + (" and others" if len(addresses) > _MOST_LISTED else "")
    return ArgumentValueError(
        f"{spool.root} is a spool with records that were written for {listed}; nothing was uploaded. If they belong "
        f"there, run {recover_command(spool.root, to=addresses[0])}"
    )
