"""A `CommitCoordinator` decides when the shards of a sharded writer are published and committed.

Rolling shards are committed one by one. Shards that belong together (fixed shards, and shards that replace others) are
all written before the first is published, and are committed by one segment.
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

# The number of shards that are opened, flushed or published at once, enough to keep a disk or a store busy.
_AT_ONCE = 16


GoOn = Callable[[Job, str | None, Levels, Exception], Awaitable[list[WriteBatch] | None]]


async def _fails(job: Job, shard: str | None, levels: Levels, error: Exception) -> None:
    return None


class CommitCoordinator:
    """The part of a sharded writer that names and commits shards, shared by all open shards.

    Attributes:
        job: the job that makes the shards.
        fixed: whether the number of shards is fixed.
        turn: a semaphore held during each short step that many shards may take at the same time.
        written: a gate that opens when all fixed shards are written. Only then is the first published.
        sent: a gate that opens when all fixed shards are sent. Only then does the first upload end.
        go_on: returns the records of a failed shard to write again in another job; `None` if the writer fails.
    """

    def __init__(self, job: Job, acknowledgements: Acknowledgements, budget: ByteBudget, open_shards: int) -> None:
        self.job = job
        self.fixed = job.header.num_shards is not None
        # Every step awaits anyway. Yielding before each step, too, would take each shard three more turns of the loop.
        self.turn = anyio.Semaphore(_AT_ONCE, fast_acquire=True)
        self.written = _Gate(open_shards)
        self.sent = _Gate(open_shards)
        self.go_on: GoOn = _fails
        self._acknowledgements = acknowledgements
        self._budget = budget
        self._sequence = 0
        self._unlisted: list[ShardEntry] = []

    def next_name(self, index: int) -> str:
        """Return the name of the next shard that the object writer with this number opens."""
        if self.fixed:
            return self.job.shard_name(index)
        self._sequence += 1
        return self.job.shard_name(self._sequence - 1)

    async def published(self, job: Job, levels: Levels, entry: ShardEntry, ticket: int) -> None:
        """Commit a stored shard, with the records up to a ticket, unless all shards are committed together."""
        if job.header.together:
            self._unlisted.append(entry)
            return
        await job.manifest.commit(entry)
        levels.committed(ticket)
        self.progressed()
        with suppress(StorageError):  # a file that remains belongs to a committed shard, so it is not read
            await job.manifest.progress.forget(entry.path)
        await self._unspool(entry)

    def progressed(self, error: BaseException | None = None) -> None:
        """Wake waiting callers when a ticket reaches its next durability level, or a step fails with ``error``."""
        if error is not None:
            self._acknowledgements.failed(error)
            self._budget.release_all()
        self._acknowledgements.changed()

    async def close(self) -> None:
        """End the job once all shards are in the store."""
        while not self.job.committed:  # a cancelled attempt may have taken effect
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
    """A gate that opens when ``size`` tasks wait at it."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._open = anyio.Event()

    async def wait(self) -> None:
        """Wait until all other tasks wait, too."""
        self._missing -= 1
        if self._missing == 0:
            self._open.set()
        await self._open.wait()
