"""`tending`: a rolling writer looks after its data set while it is open, so that no data set needs a cron job.

It shows that it is alive, takes up writers that died, and makes a checkpoint now and then.

Each commit is an object of its own, and opening a data set takes a request for each one that no checkpoint covers. So
some process has to merge them. The naive way is that a reader does it if it meets many; but a reader may have no right
to write. Another is that each writer does it at its end. Suppose A, B and 998 others are started together and end
together: all of them merge the same thousand segments at the same moment, and one of a thousand checkpoints counts.

So a writer that met a hundred uncovered segments as it opened merges them after a random time of up to a minute. It
first lists once more: if there is a new checkpoint, another writer was faster, and it reads nothing. A writer that met
few segments does not look then: of a thousand that begin together, each would read what all of them commit in their
first minute. Every writer looks after one in a thousand of its shards, on average, again after a random time. If it
fails, nothing is lost: the next writer tries. Which of two checkpoints counts, and what may be deleted, is decided as
for ``asyncrec compact`` (`asyncrec._shards.commit.compaction`).
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

# The second look may take as long as the opening did.
DELAY_SECONDS = 60.0
# Up to here, reading the segments costs an opening little. They are listed, read and counted as in every opening: what
# is long runs in worker threads, and what others have laid into the folder is parsed without being trusted.
MANY_SEGMENTS = 100
# On average: a thousand commits of one minute each are most of a day's.
SHARDS_FOR_A_LOOK = 1000
# With the default of two minutes: an idle writer commits what it has flushed after a quarter of an hour.
BEATS = 20
# Some seconds of requests; what is left goes with the next checkpoint.
MOST_DELETED = 1000


@asynccontextmanager
async def tending(shards: OpenShards, *, recovers: bool) -> AsyncIterator[None]:
    """Make a checkpoint now and then until the context ends, which gives up one in progress; take up silent writers.

    Args:
        recovers: whether to take up what writers had flushed to the store that have been silent for too long.
    """
    job, path = shards.job, shards.path
    if job.header.kind != "rolling":  # it ends with one segment
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
    """Keep a writer that flushes nothing from being taken for dead; in the end, by committing what it has flushed.

    Then nothing of it is in the log, and the store is asked no more. An entry that came while its shards were being
    committed is deleted only if another commit states its number.
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
    """Look after the opening, and once more when a writer that died just before has been silent for long enough."""
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
    """Merge if many segments are in no checkpoint, and no checkpoint is newer than ``behind``. Failures are logged."""
    compaction = await in_thread(import_module, "asyncrec._shards.commit.compaction")  # most writers never need it
    try:
        done = await compaction.compact_unasked(
            job.store,
            job.header.name,
            path=path,
            least=MANY_SEGMENTS,
            most_deleted=MOST_DELETED,
            behind=behind,
        )
    except Exception as error:
        _path_log.info(path, "no checkpoint was made: %s", error, writer=job.header.writer)
        return
    if done is not None and done.written:
        message = "%d commits were merged into the checkpoint %s"
        _path_log.info(path, message, done.covered, done.checkpoint, writer=job.header.writer)
