"""`tending`: a rolling writer maintains its data set while it is open, so that no data set needs a cron job.

The writer shows that it is alive, recovers dead writers, and makes a checkpoint now and then.

Each commit is an object of its own, and opening a data set costs a request for each commit that no checkpoint covers.
So some process has to merge them. The naive way is to let a reader do it if it finds many, but a reader may have no
permission to write. Another is to let each writer do it at its end. Suppose A, B and 998 others are started together
and end together: all of them merge the same thousand segments at the same moment, and one of a thousand checkpoints
counts.

So a writer that found a hundred uncovered segments when it opened merges them after a random time of up to a minute. It
first lists once more: if there is a new checkpoint, another writer was faster, and it reads nothing. A writer that
found few segments does not list at that time: if a thousand began together, each would read the commits of all in their
first minute. Every writer checks after one in a thousand of its shards on average, again after a random time. If it
fails, nothing is lost, because the next writer tries. The rules for which of two checkpoints counts, and what may be
deleted, are those of ``asyncrec compact`` (`asyncrec._shards.commit.compaction`).
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

# The check may take as long as the opening did.
DELAY_SECONDS = 60.0
# Below this number, reading the segments costs an opening little. They are listed, read and counted as in every
# opening: long work runs in worker threads, and segments that other processes have put into the folder are parsed
# without trust.
MANY_SEGMENTS = 100
# The average number of shards between checks. A thousand commits, one a minute, take most of a day.
SHARDS_FOR_A_LOOK = 1000
# With the default of two minutes, an idle writer commits its flushed records after a quarter of an hour.
BEATS = 20
# Deleting this many takes a few seconds of requests. The next checkpoint deletes the rest.
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
    """Keep a writer that flushes nothing from being considered dead; in the end, commit its flushed records.

    After that, the log has no needed records, and no more requests are sent. An entry that was created while its shards
    were being committed is deleted only if another commit states its number.
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
    """Check after the opening, and again when a writer that died just before it has been silent for long enough."""
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
