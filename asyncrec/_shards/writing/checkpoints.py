"""`tending` lets a rolling writer maintain its data set while it is open, so that no data set needs a cron job.

The writer shows that it is alive, recovers dead writers, and occasionally makes a checkpoint.

Each commit is a separate object, and opening a data set takes one request for each commit that no checkpoint covers.
Some process therefore has to merge them. Readers could merge them, but a reader may have no permission to write. Each
writer could merge them when it ends. But if a thousand writers begin and end together, all of them would merge the same
thousand segments at the same moment, and only one of their checkpoints would count.

Instead, a writer that found at least a hundred uncovered segments when it opened merges them after a random delay of up
to a minute. It lists the segments again first. If there is a new checkpoint, another writer was faster, so it reads
nothing. A writer that found fewer segments does not list them at that time: if a thousand writers began together, each
of them would read all commits of the first minute. Later, every writer checks after a thousand shards on average, again
with a random delay. A failure does no harm, because the next writer will try. Which of two checkpoints counts, and
which objects may be deleted, is decided by the same rules as in ``asyncrec compact``
(`asyncrec._shards.commit.compaction`).
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from importlib import import_module

import anyio

from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.commit.flush_log import FlushLog
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec.errors import StorageError

_path_log = PathLog("asyncrec.shards")

# The maximum random delay before a check, which may take as long as opening the data set did.
DELAY_SECONDS = 60.0
# Reading fewer segments than this adds little to the time for opening a data set. They are listed, read and counted in
# the same way as in every opening: long work runs in worker threads, and segments from other processes are not trusted.
MANY_SEGMENTS = 100
# The average number of shards between checks. At one commit a minute, this takes most of a day.
SHARDS_FOR_A_LOOK = 1000
# An idle writer commits its flushed records after this many signs of life, by default after a quarter of an hour.
BEATS = 20
# Deleting this many objects takes a few seconds. The next checkpoint deletes the rest.
MOST_DELETED = 1000


@asynccontextmanager
async def tending(shards: OpenShards, *, recovers: bool) -> AsyncIterator[None]:
    """Maintain the data set until the context exits: make checkpoints, send signs of life, and recover silent writers.

    A checkpoint in progress is abandoned when the context exits.

    Args:
        recovers: whether to commit the flushed records of writers that have been silent for too long.
    """
    job, path = shards.job, shards.path
    if job.header.kind != "rolling":  # the log of any other job has only one segment
        yield
        return
    async with TaskScope() as scope:
        scope.start_soon(_make_checkpoints, job, path)
        if job.flush_log is not None:
            scope.start_soon(job.flush_log.send)
            scope.start_soon(job.flush_log.sweeper.run)
            scope.start_soon(_stay_alive, job, job.flush_log, shards)
        if recovers and job.flush_log is not None:
            scope.start_soon(_take_up_silent, job, path)
        try:
            yield
        finally:
            scope.cancel()


async def _stay_alive(job: Job, log: FlushLog, shards: OpenShards) -> None:
    """Show that a writer is alive even if it flushes nothing. After some time, commit its flushed records.

    After that commit, no record in the flush log is needed, so no more requests are sent. An entry that was created
    while its shards were being committed is deleted only when another commit has stated its number.
    """
    quiet = job.header.silent_after / 3
    while log.error is None:
        await anyio.sleep(quiet / 2)
        if anyio.current_time() - log.changed < quiet:
            continue
        if log.ledger.is_unsaid:
            with suppress(StorageError):
                await job.manifest.say()
        elif not log.ledger.is_needed:
            continue
        elif log.beats < BEATS:
            log.beat()
        else:
            await shards.commit(0)


async def _take_up_silent(job: Job, path: str) -> None:
    """Recover silent writers now, and again when a writer that has just died will have been silent long enough."""
    module = await in_thread(import_module, "asyncrec._shards.recovery.on_opening")
    silent = job.header.silent_after
    for seconds in (0.0, silent):
        await anyio.sleep(seconds + min(silent, DELAY_SECONDS) * secrets.randbelow(1000) / 1000)
        await module.take_up_silent(job.store, job.header, path=path)


async def _make_checkpoints(job: Job, path: str) -> None:
    seen = 0
    segments, newest = job.uncovered
    met_many = segments >= MANY_SEGMENTS
    while True:
        await anyio.sleep(DELAY_SECONDS * secrets.randbelow(1000) / 1000)
        shards = len(job.manifest.entries)
        if met_many or secrets.randbelow(SHARDS_FOR_A_LOOK) < shards - seen:
            await _make_checkpoint(job, path, behind=newest if met_many else None)
            met_many = False
        seen = shards


async def _make_checkpoint(job: Job, path: str, *, behind: int | None) -> None:
    """Compact the manifest if many segments are not in a checkpoint. Log failures.

    With ``behind``, do nothing if the newest checkpoint has a different number.
    """
    compaction = await in_thread(import_module, "asyncrec._shards.commit.compaction")  # imported late: rarely needed
    try:
        done = await compaction.compact_unasked(
            job.store, job.header.name, path=path, least=MANY_SEGMENTS, most_deleted=MOST_DELETED, behind=behind
        )
    except Exception as error:
        _path_log.info(path, "no checkpoint was made: %s", error, writer=job.header.writer)
        return
    if done is not None and done.written:
        message = "%d commits were merged into the checkpoint %s"
        _path_log.info(path, message, done.covered, done.checkpoint, writer=job.header.writer)
