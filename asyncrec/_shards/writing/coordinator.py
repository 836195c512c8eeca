"""What a sharded writer's lanes do with their shards: names, uploads, commits, and what is taken back.

Rolling shards are committed one by one. Shards that belong together (fixed ones, and all that replace others) are all
written before the first is published, and committed by one segment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anyio

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.object_writer import Lane
from asyncrec._shards.commit.shard import Shard
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.spool.uploader import Upload, Uploader
from asyncrec._shards.writing.job import Job

__all__ = ["CommitCoordinator", "ShardEvents"]

# Shards that are opened, flushed or published at once: enough to keep a disk or a store busy.
_AT_ONCE = 16


class CommitCoordinator:
    """Of one writer.

    Attributes:
        together: everything is committed at once, by the exit.
        progressed: set by the writer; called when a ticket reached a level, or with what failed.
    """

    def __init__(self, job: Job, budget: ByteBudget, lanes: int) -> None:
        self.job = job
        self.header = job.header
        self.publisher = job.publisher
        self.fixed = self.header.num_shards is not None
        self.together = self.header.together
        self.progressed: Callable[[BaseException | None], None] = lambda error: None
        self._sequence = 0
        self._unlisted: list[ShardEntry] = []
        # What many shards do at once, they do some at a time: each step is short, and all of them together are not.
        self.turn = anyio.Semaphore(_AT_ONCE)
        self.hosts = [ShardEvents(self, number, budget) for number in range(lanes)]
        # Of fixed shards, all are written before the first is published, and all sent before the first upload is.
        self.written = _Gate(lanes)
        self.sent = _Gate(lanes)

    @property
    def uploaders(self) -> list[Uploader]:
        """One for each lane, where there is a spool."""
        return [host.uploader for host in self.hosts if host.uploader is not None]

    def next_name(self, lane: int) -> str:
        """The name of a lane's next shard."""
        if self.fixed:
            return self.job.shard_name(lane)
        self._sequence += 1
        return self.job.shard_name(self._sequence - 1)

    def sent_to_spool(self, key: str, size: int) -> None:
        """So many bytes more of a shard lie on the disk."""
        for host in self.hosts:
            host.written(key, size)

    async def published(self, lane: Lane, entry: ShardEntry, ticket: int) -> None:
        """A shard is in the store: commit it, unless that is done together."""
        if self.together:
            self._unlisted.append(entry)
            return
        await self.job.manifest.commit(entry)
        lane.committed(ticket)
        self.progressed(None)

    async def close(self) -> None:
        """Everything is in the store: end the job."""
        await self.job.commit(self._unlisted)
        if self.job.spool is not None:
            for entry in self._unlisted:
                await self._unspool(entry)
        self._unlisted = []

    async def take_back(self) -> None:
        """After a failure: delete what was published and is in no manifest."""
        await self.job.take_back(self._unlisted)

    async def unspooled(self, entry: ShardEntry) -> None:
        """It is committed, and no more needed in the spool."""
        if not self.together:
            await self._unspool(entry)

    async def _unspool(self, entry: ShardEntry) -> None:
        spool = self.job.spool
        assert spool is not None, "only what was spooled is uploaded"
        await in_thread(spool.remove, entry)
        spool.freed(entry.bytes)


class ShardEvents:
    """What a lane (LaneHost) and its uploader (UploadEvents) ask of their writer. ``lane`` is set by that."""

    lane: Lane

    def __init__(self, coordinator: CommitCoordinator, number: int, budget: ByteBudget) -> None:
        self._coordinator = coordinator
        self._number = number
        self._shard: Shard
        self._upload: Upload | None = None
        job = coordinator.job
        self.uploader: Uploader | None = None
        if job.spool is not None:
            self.uploader = Uploader(job.spool, job.store, budget, self)

    @property
    def path(self) -> str:
        return self._coordinator.header.url

    # -- for the lane -------------------------------------------------------------------------------------------------

    @property
    def turn(self) -> anyio.Semaphore:
        return self._coordinator.turn

    @asynccontextmanager
    async def open_object(self) -> AsyncIterator[ObjectOutput]:
        coordinator, uploader = self._coordinator, self.uploader
        key = coordinator.next_name(self._number)
        upload = self._upload = uploader.begin(key) if uploader is not None else None
        try:
            async with AsyncExitStack() as stack:
                async with self.turn:
                    self._shard = await stack.enter_async_context(coordinator.publisher.open_shard(key))
                yield self._shard.output
                async with self.turn:
                    await stack.aclose()
        except BaseException:
            if uploader is not None and upload is not None:
                uploader.drop(upload)
            raise

    async def before_publish(self) -> None:
        if self._coordinator.fixed:
            await self._coordinator.written.wait()

    async def published_object(self, output: ObjectOutput, first: float, last: float, ticket: int) -> bool:
        coordinator = self._coordinator
        entry = coordinator.publisher.entry_of(self._shard, first, last)
        if self.uploader is not None and self._upload is not None:
            self.uploader.complete(self._upload, entry, ticket)
        else:
            await coordinator.published(self.lane, entry, ticket)
        return False

    def progressed(self) -> None:
        uploader = self.uploader
        self._coordinator.progressed(self.lane.error or (uploader.error if uploader is not None else None))

    def written(self, key: str, size: int) -> None:
        if self._upload is not None and self._upload.key == key:
            self._upload.written += size
            self._upload.change()

    # -- for the uploader ---------------------------------------------------------------------------------------------

    async def before_upload_ends(self) -> None:
        if self._coordinator.fixed:
            await self._coordinator.sent.wait()
        self._coordinator.publisher.publishing = True

    async def uploaded(self, upload: Upload) -> None:
        coordinator = self._coordinator
        assert upload.entry is not None, "only what is whole is published"
        if not upload.stamped:
            # Kept for the next attempt: the same segment again is no other.
            upload.entry = replace(upload.entry, committed=coordinator.job.manifest.clock.now())
            upload.stamped = True
        await coordinator.published(self.lane, upload.entry, upload.ticket)
        await coordinator.unspooled(upload.entry)


class _Gate:
    """Opens when so many wait at it."""

    def __init__(self, size: int) -> None:
        self._missing = size
        self._open = anyio.Event()

    async def wait(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._open.set()
        await self._open.wait()
