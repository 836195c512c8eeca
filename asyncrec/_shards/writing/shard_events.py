"""`ShardEvents` and `ShardUploadEvents` handle the events of one object writer's shards for a sharded writer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import anyio

from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._shards.commit.shard import Shard
from asyncrec._shards.spool.backlog import Upload
from asyncrec._shards.spool.uploader import Uploader
from asyncrec._shards.writing.coordinator import CommitCoordinator


class ShardEvents:
    """The `ObjectEvents` of an object writer whose objects are shards."""

    def __init__(
        self, coordinator: CommitCoordinator, index: int, queue: WriteQueue, uploader: Uploader | None
    ) -> None:
        """``index`` is the object writer's number; the ``uploader`` is for shards that are written to a spool."""
        self._coordinator = coordinator
        self._index = index
        self._queue = queue
        self._uploader = uploader
        self._shard: Shard
        self._job = coordinator.job  # the job of the open shard
        self._key: str | None = None
        self._upload: Upload | None = None

    @property
    def turn(self) -> anyio.Semaphore:
        return self._coordinator.turn

    @asynccontextmanager
    async def open_object(self) -> AsyncIterator[ObjectOutput]:
        coordinator, uploader = self._coordinator, self._uploader
        job = self._job = coordinator.job
        key = self._key = coordinator.next_name(self._index)
        upload = self._upload = uploader.begin(key) if uploader is not None else None
        try:
            async with AsyncExitStack() as stack:
                async with self.turn:
                    self._shard = await stack.enter_async_context(job.publisher.open_shard(key))
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
        entry = self._job.publisher.entry_of(self._shard, first, last)
        if output.sources.positions:
            self._job.manifest.progress.note(entry.path, output.sources.positions, self._shard.forget_positions)
        if self._uploader is not None and self._upload is not None:
            self._uploader.complete(self._upload, entry, ticket)
        else:
            await self._coordinator.published(self._job, self._queue.levels, entry, ticket)
        self._key = None
        return False

    def progressed(self) -> None:
        self._coordinator.progressed(self._queue.error)

    async def go_on(self, error: Exception) -> list[WriteBatch] | None:
        key, self._key = self._key, None
        return await self._coordinator.go_on(self._job, key, self._queue.levels, error)


class ShardUploadEvents:
    """The `UploadEvents` for the uploader of one object writer, whose records came through ``queue``."""

    def __init__(self, coordinator: CommitCoordinator, queue: WriteQueue) -> None:
        self._coordinator = coordinator
        self._queue = queue

    async def before_upload_ends(self, upload: Upload) -> None:
        if self._coordinator.fixed:
            await self._coordinator.sent.wait()
        self._coordinator.job.fates.move(upload.key, "ask")

    async def uploaded(self, upload: Upload) -> None:
        assert upload.entry is not None, "only what is whole is published"
        job = self._coordinator.job
        if job.fates[upload.key] == "doubtful":
            job.fates.move(upload.key, "answer")
            # Kept for the next attempt, which then sends the same segment again.
            upload.entry = replace(upload.entry, committed=job.manifest.clock.now())
        await self._coordinator.published(job, self._queue.levels, upload.entry, upload.ticket)

    def ended(self, error: BaseException | None) -> None:
        self._coordinator.progressed(error)
