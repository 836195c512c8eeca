"""Commit the records that dead rolling writers left on the disk of a new writer, before the new writer begins.

Thus, if a program is killed and started again, no records that were on its disk are lost, even if `asyncrec.recover` is
never called. An all-or-nothing job is never completed automatically; a log message names the job and says how to commit
or abandon it. However, if the new writer needs the name of such a job, `settle_claims` abandons it unless it promised
to keep records.

A writer that skips records by their keys has to know the keys of all records that may still become part of the data
set. Therefore, the shards that dead writers without a disk had published are committed first too, and a log message
names each spool that still contains records.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from importlib import import_module
from typing import TYPE_CHECKING

from asyncrec._concurrency.tasks import in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.home import LocalHome
from asyncrec._shards.journal.job_files import JobFiles
from asyncrec._shards.journal.remedies import command_for, recover_command, told_dead
from asyncrec._shards.ownership.census import LOOKS, FoundJob, dead_among, jobs_in
from asyncrec._shards.ownership.flushed import silent_among
from asyncrec._shards.ownership.marks import find_marks
from asyncrec._shards.spool.folder import refuse_spool
from asyncrec.errors import AsyncRecError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._url import join

if TYPE_CHECKING:
    from asyncrec._shards.recovery.run import RecoveryRun

_path_log = PathLog("asyncrec.shards")

# If a thousand writers have died, each new writer recovers only this many of them.
_MOST_TAKEN_UP = 4


async def recover_on_opening(
    folder: Storage, own: JobHeader, *, home: LocalStorage | None, known_keys: bool, path: str, wanted: bool = True
) -> None:
    """Commit the records that dead rolling writers left in ``home``, a spool or the data set's own ``folder``.

    If ``home`` is a spool, which belongs to one writer at a time, a dead fixed set that promised nothing is abandoned.

    Args:
        own: the header of the writer that is about to begin.
        known_keys: whether to also commit the shards that dead rolling writers without a disk had published from this
            machine. If one of them had a spool, a log message says what to do instead. Writers on other machines are
            left alone, unless they flush to the store and have been silent for too long.
        path: the path of the data set, for log messages.
        wanted: whether to recover anything. If false, nothing is changed, and log messages name the jobs found.

    Raises:
        ConflictError, StorageError, ManifestError: some records could not be committed; they are kept.
        StorageError: the data set's folder is a spool.
    """
    if home is not None:
        if not own.spool:
            await in_thread(refuse_spool, home)
        jobs = await in_thread(jobs_in, LocalHome(home), None if own.spool else own.name)
        # If a job in this spool has a header for another data set, it left no records here (`refuse_other_spool`).
        here = [job for job in jobs if not own.spool or (job.header.url, job.header.name) == (own.url, own.name)]
        await _recover(await _dead(here, own, looks=LOOKS), folder, own, where=home.root, path=path, wanted=wanted)
    if known_keys:
        marks = [mark for mark in await find_marks(folder, own.name) if mark.kind == "rolling"]
        dead = await _dead(map(FoundJob, marks), own, looks=1)
        proven = {job.header.writer for job in dead}
        silent = await silent_among(folder, [mark for mark in marks if mark.writer not in proven])
        dead += [FoundJob(mark) for mark in marks if mark.writer in silent]
        where = join(folder.root, own.name)
        await _recover(dead, folder, own, where=where, path=path, wanted=wanted, silent=silent)


async def _dead(jobs: Iterable[FoundJob], own: JobHeader, *, looks: int) -> list[FoundJob]:
    return await dead_among([job for job in jobs if job.header.writer != own.writer], looks=looks)


async def _recover(
    dead: list[FoundJob],
    folder: Storage,
    own: JobHeader,
    *,
    where: str,
    path: str,
    wanted: bool,
    silent: Collection[str] = (),
) -> None:
    if not dead:
        return
    module = await in_thread(import_module, "asyncrec._shards.recovery.run")  # most writers never need this module
    run: RecoveryRun = module.RecoveryRun(finishes="rolling")
    run.silent.update(silent)
    for job in dead:
        header = job.header
        if job.marked and (header.spool or not wanted):
            told = _told_unknown_keys(header, "SPOOL" if header.spool else where)
            _path_log.warning(path, "%s", told, writer=header.writer)
        elif not job.marked and (not wanted or (header.kind != "rolling" and not own.spool)):
            if own.spool:  # otherwise, `open_job` reports the job
                _path_log.warning(path, "%s", told_dead(header, where), writer=header.writer)
        else:
            before = run.records
            if await run.end(job, folder) and not job.marked and header.kind == "rolling":
                found = run.records - before
                what = (
                    f"{found} records that it left in {where} were recovered" if found else "it left no complete record"
                )
                message = (
                    "the writer %s died; %s; records that it accepted in its last flush_seconds may be lost: "
                    "write them again"
                )
                _path_log.warning(path, message, header.writer, what, writer=header.writer, records=found)
    for header in run.left:
        _path_log.warning(path, "%s", told_dead(header, where), writer=header.writer)
    _tell_outcome(run, path)


def _tell_outcome(run: RecoveryRun, path: str) -> None:
    try:
        recovered = run.outcome()
    except (AsyncRecError, OSError, ValueError) as error:
        error.add_note(
            f"{path}: no writer was opened, because a dead writer's records could not be recovered; to open one "
            "anyway, pass recover=False"
        )
        raise
    for writer in recovered.lost:
        message = "the writer %s died without a spool: records that it had not flushed or published are lost"
        _path_log.warning(path, message, writer, writer=writer)
    if recovered.shards:
        count = recovered.records
        _path_log.warning(path, "recovered %d records of dead writers", count, records=count)


def _told_unknown_keys(mark: JobHeader, where: str) -> str:
    held = "are in a spool on this machine" if mark.spool else "are not committed"
    return (
        f"the writer {mark.writer} died and left records that {held}. The new writer does not know their keys, "
        f"so it may store the same records again. Run {command_for(mark, where)} before you open a writer with "
        "on_duplicate='skip', or remove duplicates later (asyncrec dedupe --by-key)"
    )


async def take_up_silent(folder: Storage, own: JobHeader, *, path: str) -> None:
    """Commit the records that a few writers flushed to the store, if they died here or have been silent for too long.

    Only a few writers, chosen at random, are recovered, because each costs requests, and the caller has its own work.

    Errors are only logged, because the calling writer is already open and does not depend on this recovery.
    """
    try:
        marks = [mark for mark in await find_marks(folder, own.name, most=_MOST_TAKEN_UP) if mark.silent_after]
        dead = await _dead(map(FoundJob, marks), own, looks=1)
        proven = {own.writer, *(job.header.writer for job in dead)}
        silent = await silent_among(folder, [mark for mark in marks if mark.writer not in proven])
        dead += [FoundJob(mark) for mark in marks if mark.writer in silent]
        where = join(folder.root, own.name)
        await _recover(dead, folder, own, where=where, path=path, wanted=True, silent=silent)
    except Exception as error:
        _path_log.warning(path, "records flushed by silent writers could not be recovered: %s", error)


async def refuse_other_spool(spool: LocalStorage, url: str, name: str) -> None:
    """Raise an error if a spool contains records for a data set other than the one at ``url`` with this name.

    Where a spool's records go is decided by the caller, and not by what is in the folder. The header of a writer that
    has written nothing is left for `asyncrec.recover`, and does not prevent a writer from using the spool.

    Raises:
        StorageError: the spool contains such records.
    """
    for job in await in_thread(jobs_in, LocalHome(spool)):
        header = job.header
        if (header.url, header.name) != (url, name) and await in_thread(JobFiles(spool, header).any_left):
            raise StorageError(
                f"{spool.root}: the spool holds records that {header.writer} wrote for {header.url}, not for {url}; "
                f"if they belong there, recover them first ({recover_command(spool.root, to=header.url)}); "
                f"otherwise pass another spool folder for {url}"
            )
