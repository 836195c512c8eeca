"""A `CommitCoordinator` decides when the shards of a sharded writer are published and committed.

Rolling shards are committed one by one. Shards that belong together (fixed shards, and shards that replace others) are
all written before the first of them is published, and are committed together by one segment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.levels import Levels
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.writing.acknowledgements import Acknowledgements
from asyncrec._shards.writing.job import Job
from asyncrec.errors import ConflictError, StorageError

# The number of shards to open, flush or publish at the same time: enough to keep a disk or a store busy.
_AT_ONCE = 16


GoOn = Callable[[Job, str | None, Levels, Exception], Awaitable[list[WriteBatch] | None]]


async def _fails(job: Job, shard: str | None, levels: Levels, error: Exception) -> None:
    return None


class CommitCoordinator:
    """The part of a sharded writer that names and commits shards. All open shards share one coordinator.

    Attributes:
        job: the job that makes the shards.
        fixed: whether the number of shards is fixed.
        turn: a semaphore that limits how many shards can be opened, flushed or published at the same time.
        written: a gate that opens when all fixed shards have been written. No shard is published before that.
        sent: a gate that opens when all fixed shards have been sent. No upload is completed before that.
        go_on: a function that returns the records of a failed shard, to be written again in a new job, or `None` if the
            writer fails.
    """

    def __init__(self, job: Job, acknowledgements: Acknowledgements, budget: ByteBudget, open_shards: int) -> None:
        self.job = job
        self.fixed = job.header.num_shards is not None
        # Every step awaits anyway. Without fast_acquire, each shard would take three more iterations of the event loop.
        self.turn = anyio.Semaphore(_AT_ONCE, fast_acquire=True)
        self.written = _Gate(open_shards)
        self.sent = _Gate(open_shards)
        self.go_on: GoOn = _fails
        self._acknowledgements = acknowledgements
        self._budget = budget
        self._sequence = 0
        self._unlisted: list[ShardEntry] = []

    def next_name(self, index: int) -> str:
        """Return the name of the next shard that is opened by the object writer with this number."""
        if self.fixed:
            return self.job.shard_name(index)
        self._sequence += 1
        return self.job.shard_name(self._sequence - 1)

    async def published(self, job: Job, levels: Levels, entry: ShardEntry, ticket: int) -> None:
        """Commit a published shard, whose last ticket is ``ticket``, unless all shards are committed together later."""
        if job.header.together:
            self._unlisted.append(entry)
            return
        await job.manifest.commit(entry)
        levels.committed(ticket)
        self.progressed()
        with suppress(StorageError):  # a leftover file is never read, because its shard is committed
            await job.manifest.progress.forget(entry.path)
        await self._unspool(entry)

    def progressed(self, error: BaseException | None = None) -> None:
        """Wake waiting callers after a ticket has reached its next level, or after a step has failed with ``error``."""
        if error is not None:
            self._acknowledgements.failed(error)
            self._budget.release_all()
        self._acknowledgements.changed()

    async def close(self) -> None:
        """Commit and end the job. All shards must already be in the store."""
        while not self.job.committed:  # an earlier attempt may have succeeded although it was cancelled
            try:
                await self.job.commit(self._unlisted)
            except ConflictError as error:
                if await self.go_on(self.job, None, Levels(), error) is None:
                    raise
        for entry in self._unlisted:
            await self._unspool(entry)
        self._unlisted = []

    async def _unspool(self, entry: ShardEntry) -> None:
        """Remove a committed shard from the spool, if there is one."""
        if (spool := self.job.spool) is not None:
            await in_thread(spool.remove, entry)
            spool.backlog.freed(entry.bytes)


class _Gate:
    """A gate that opens when ``size`` tasks are waiting at it."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._open = anyio.Event()

    async def wait(self) -> None:
        """Wait until all of the tasks have arrived at the gate."""
        self._missing -= 1
        if self._missing == 0:
            self._open.set()
        await self._open.wait()
