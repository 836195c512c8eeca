"""`tending` lets a rolling writer maintain its data set while it is open, so that no data set needs a cron job.

The writer shows that it is alive, recovers dead writers, and makes a checkpoint now and then.

Each commit is an object of its own, and opening a data set takes a request for each commit that no checkpoint covers.
So some process has to merge them. The naive way is that a reader merges them if it finds many, but a reader may have no
permission to write. Another way is that each writer merges them when it ends. But if a thousand writers start and end
together, all of them merge the same thousand segments at the same moment, and only one of their checkpoints counts.

So a writer that found a hundred uncovered segments when it opened merges them after a random delay of up to a minute.
First it lists the segments again. If there is a new checkpoint, another writer was faster, so it reads nothing. A
writer that found few segments does not list them then, because if a thousand writers began together, each would read
all commits of their first minute. Later, every writer checks after a thousand shards on average, again with a random
delay. A failure does no harm, because the next writer tries. The same rules as in ``asyncrec compact`` decide which of
two checkpoints counts and which objects may be deleted (`asyncrec._shards.commit.compaction`).
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

# The maximum random delay before a check. The check may take as long as the opening did.
DELAY_SECONDS = 60.0
# Reading fewer segments than this adds little to an opening. They are listed, read and counted as in every opening:
# long work runs in worker threads, and segments from other processes are parsed without trust.
MANY_SEGMENTS = 100
# The average number of shards between checks. At one commit a minute, this takes most of a day.
SHARDS_FOR_A_LOOK = 1000
# An idle writer commits its flushed records after this many signs of life, by default after a quarter of an hour.
BEATS = 20
# The requests to delete this many objects take a few seconds. The next checkpoint deletes the rest.
MOST_DELETED = 1000


@asynccontextmanager
async def tending(shards: OpenShards, *, recovers: bool) -> AsyncIterator[None]:
    """Maintain the data set until the context ends: make checkpoints, send signs of life, and recover silent writers.

    A checkpoint in progress is abandoned when the context ends.

    Args:
        recovers: whether to commit the flushed records of writers that have been silent for too long.
    """
    job, path = shards.job, shards.path
    if job.header.kind != "rolling":  # its log has only one segment
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
    """Keep a writer that flushes nothing from being considered dead. In the end, commit its flushed records.

    After that, no record in the log is needed, and no more requests are sent. An entry that was created while its
    shards were being committed is deleted only if another commit states its number.
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
    """Recover silent writers now, and again when a writer that has just died would have been silent for long enough."""
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
    """Compact if many segments are in no checkpoint, and no checkpoint is newer than ``behind``. Log failures."""
    compaction = await in_thread(import_module, "asyncrec._shards.commit.compaction")  # most writers never need it
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
