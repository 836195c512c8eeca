"""`OpenShards` connects the parts of a `ShardedWriter`, from its queues to the job that commits the shards.

The parts are created in the order of their dependencies: first the queues, which need only the memory budget; then the
coordinator, which needs the job and the acknowledgements; then the events of each queue, which need the coordinator;
and finally the tasks, each of which needs a queue and its events.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Literal

import anyio
from anyio.lowlevel import cancel_shielded_checkpoint

from asyncrec._concurrency.deadline import Deadline, clock_of_loop
from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._records.writing.inbox import FlushRequest
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_output import ObjectOutput
from asyncrec._records.writing.object_writer import ObjectWriter
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._shards.commit.shard import Shard
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.spool.backlog import Upload
from asyncrec._shards.spool.uploader import Uploader
from asyncrec._shards.writing.acknowledgements import Acknowledgements
from asyncrec._shards.writing.coordinator import CommitCoordinator
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.source_turns import SourceTurns
from asyncrec._shards.writing.totals import ShardedWriterStats


class ShardEvents:
    """The `ObjectEvents` for an object writer whose objects are shards."""

    def __init__(
        self, coordinator: CommitCoordinator, index: int, queue: WriteQueue, uploader: Uploader | None
    ) -> None:
        """``index`` is the number of the object writer. ``uploader`` is passed if its shards are written to a spool."""
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

    async def published_object(
        self, output: ObjectOutput, first: float, last: float, ticket: int
    ) -> Literal["buffered", "spooled"]:
        entry = self._job.publisher.entry_of(self._shard, first, last)
        if output.sources.positions:
            self._job.manifest.progress.note(entry.path, output.sources.positions, self._shard.forget_positions)
        if self._uploader is not None and self._upload is not None:
            self._uploader.complete(self._upload, entry, ticket)
        else:
            await self._coordinator.published(self._job, self._queue.levels, entry, ticket)
        self._key = None
        return "buffered" if self._job.header.together and not self._job.spools else "spooled"

    def progressed(self) -> None:
        self._coordinator.progressed(self._queue.error)

    async def go_on(self, error: Exception) -> list[WriteBatch] | None:
        key, self._key = self._key, None
        return await self._coordinator.go_on(self._job, key, self._queue.levels, error)


class ShardUploadEvents:
    """The `UploadEvents` for the uploader of one object writer, which takes its records from ``queue``."""

    def __init__(self, coordinator: CommitCoordinator, queue: WriteQueue) -> None:
        self._coordinator = coordinator
        self._queue = queue

    async def before_upload_ends(self, upload: Upload) -> None:
        if self._coordinator.fixed:
            await self._coordinator.sent.wait()
        self._coordinator.job.fates.move(upload.key, "ask")

    async def uploaded(self, upload: Upload) -> None:
        assert upload.entry is not None, "only complete shards are published"
        job = self._coordinator.job
        if job.fates[upload.key] == "doubtful":
            job.fates.move(upload.key, "answer")
            # Set the time only once, so that the next attempt sends exactly the same segment.
            upload.entry = replace(upload.entry, committed=job.manifest.clock.now())
        await self._coordinator.published(job, self._queue.levels, upload.entry, upload.ticket)

    def ended(self, error: BaseException | None) -> None:
        self._coordinator.progressed(error)


class OpenShards:
    """The shards that a writer has open.

    Each open shard has a queue, and a task that writes the records from the queue. With a spool, a second task uploads
    the shard.

    Attributes:
        path: the path of the data set, as the caller passed it.
        job: the job that makes the shards.
        queues: one write queue for each open shard.
        budget: the memory budget of all shards.
        acknowledgements: the levels that writes have reached.
        coordinator: the coordinator that commits the shards.
        sources: the sources whose records the writer accepts.
    """

    def __init__(
        self, path: str, job: Job, queues: Sequence[WriteQueue], budget: ByteBudget, *, continues: bool
    ) -> None:
        """With ``continues``, the writer accepts records with a source and a position; otherwise, it rejects them."""
        self.path = path
        self.job = job
        self.queues = queues
        self.budget = budget
        self.acknowledgements = Acknowledgements(path, queues)
        self.coordinator = CommitCoordinator(job, self.acknowledgements, budget, len(queues))
        self.sources = SourceTurns(path, queues, self.coordinator, self.acknowledgements, continues=continues)
        self._writers: list[ObjectWriter] = []
        self._uploaders: list[Uploader] = []
        self._closed = False
        self._clock = clock_of_loop()
        for index, queue in enumerate(queues):
            uploader = None
            if job.spool is not None:
                upload_events = ShardUploadEvents(self.coordinator, queue)
                uploader = Uploader(job.spool, job.store, budget, upload_events, job.fates)
                self._uploaders.append(uploader)
            events = ShardEvents(self.coordinator, index, queue, uploader)
            self._writers.append(
                ObjectWriter(events, queue, budget, durable_flush=self.spools, eager=self.coordinator.fixed)
            )
        self._unasked: list[FlushRequest | None] = []
        self._earlier: list[ShardEntry] = []  # shards committed in earlier logs of this writer
        self._deadlines: list[Deadline] = []
        self.begin(job)

    def begin(self, job: Job, *, earlier: Sequence[ShardEntry] = ()) -> None:
        """Switch to a new job. The previous job, if any, has ended after committing the ``earlier`` shards."""
        self._earlier += earlier
        self.job = self.coordinator.job = job
        self._deadlines.append(job.manifest.deadline)
        if job.flush_log is not None:
            job.flush_log.room.on_full = self._flush_unasked

    def end_by(self, time: float) -> None:
        """Bring the deadline of all remaining work forward to ``time``, measured by the event loop's clock."""
        for deadline in self._deadlines:
            deadline.bring(time)

    @property
    def spools(self) -> bool:
        """Whether flushed records survive a crash of the process, because they are on a disk or in the store."""
        return self.job.spools

    @property
    def spool_is_full(self) -> bool:
        """Whether records have to wait because the spool is full."""
        return self.job.spool is not None and self.budget.paused

    @property
    def store_fails(self) -> bool:
        """Whether an upload from the spool is waiting to be retried."""
        now = self._clock()
        return any(now < uploader.next_try for uploader in self._uploaders)

    def check(self) -> None:
        """Raise the error of a failed shard, or ClosedResourceError if the writer's context has exited."""
        self.acknowledgements.check()
        if self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the writer is closed; write inside its `async with`")

    async def flush(self) -> None:
        """Flush every shard, with all records taken so far."""
        requests = []
        for queue in self.queues:
            frames = queue.pending_since is not None
            requests.append(queue.flush())
            if frames:
                await cancel_shielded_checkpoint()  # let other tasks run before the next shard's last batch is framed
        for request in requests:
            await request.done.wait()
        self.acknowledgements.check()

    def _flush_unasked(self) -> None:
        """Start flushing each shard that is not being flushed yet. If that fails, the next call raises the error."""
        before = self._unasked or [None] * len(self.queues)
        self._unasked = [
            queue.flush() if request is None or request.done.is_set() else request
            for queue, request in zip(self.queues, before, strict=True)
        ]

    async def promise(self) -> None:
        """Record on the disk that records were acknowledged, before the call that acknowledges them returns.

        Only fixed shards need this, because records that a rolling writer has on a disk are recovered in any case.
        """
        staging = self.job.staging
        if self.coordinator.fixed and self.spools and not staging.acknowledged:
            await in_thread(staging.acknowledge)

    async def commit(self, last: int) -> None:
        """Finish the open shards, one per iteration of the event loop, and wait until ticket ``last`` is committed."""
        for queue in self.queues:
            queue.end_object()
            await cancel_shielded_checkpoint()  # let other tasks run between writing the last chunks
        await self.acknowledgements.committed(last)

    def stats(self, duplicates: int) -> ShardedWriterStats:
        """Return the counts so far. This may be called from any thread."""
        budget, manifest = self.budget, self.job.manifest
        uncommitted = [time for queue in self.queues if (time := queue.levels.oldest_uncommitted) is not None]
        buffered = [time for queue in self.queues if (time := queue.levels.oldest_unspooled) is not None]
        now = self._clock()
        return ShardedWriterStats(
            records=sum(queue.records for queue in self.queues),
            bytes=sum(queue.bytes for queue in self.queues),
            duplicates=duplicates,
            committed_records=manifest.records + sum(entry.records for entry in self._earlier),
            committed_bytes=manifest.bytes + sum(entry.bytes for entry in self._earlier),
            committed_shards=len(manifest.entries) + len(self._earlier),
            buffered_bytes=budget.used,
            reserved_bytes=budget.reserved,
            memory_limit=budget.limit,
            oldest_uncommitted_seconds=now - min(uncommitted, default=now),
            oldest_buffered_seconds=now - min(buffered, default=now),
            callers_waiting=budget.callers_waiting,
            seconds_waiting=budget.seconds_waited,
            seconds_compressing=sum(each.seconds_compressing for each in self._writers),
            seconds_storing=sum(each.seconds_storing for each in self._writers),
            spool_bytes=self.job.spool.backlog.used if self.job.spool is not None else 0,
            upload_retries=sum(uploader.retries for uploader in self._uploaders),
        )

    # -- opening and closing ------------------------------------------------------------------------------------------

    async def start(self, scope: TaskScope) -> None:
        """Start the tasks. Fixed shards are open when this returns."""
        fixed = self.coordinator.fixed
        first, *others = self._writers
        scope.start_soon(first.run)
        if fixed:
            # All shards have the same chunk size, so check it with the first shard, before any other is opened.
            await first.opened.wait()
            self.acknowledgements.raise_failure()
            self.budget.refuse_beyond(len(self._writers))
        for writer in others:
            scope.start_soon(writer.run)
        for uploader in self._uploaders:
            scope.start_soon(uploader.run)
        if fixed:
            for writer in self._writers:
                await writer.opened.wait()
                self.acknowledgements.raise_failure()

    async def finish(self) -> None:
        """Commit every shard that can be committed, and then raise the first error."""
        self._closed = True
        for queue in self.queues:
            queue.close()
            await cancel_shielded_checkpoint()  # framing the pending records takes a while
        self.budget.release_all()
        await self._all_finished(self._writers)
        for uploader in self._uploaders:
            uploader.close()
        await self._all_finished(self._uploaders)
        self.acknowledgements.raise_failure()
        await self.coordinator.close()
        for queue in self.queues:
            queue.levels.committed(sys.maxsize)
        self.acknowledgements.ended = True
        self.coordinator.progressed()

    def abandon(self) -> None:
        """Accept no more records. Callers that are still waiting get an error."""
        self._closed = True
        self.acknowledgements.ended = True
        self.budget.release_all()
        self.coordinator.progressed()

    async def _all_finished(self, tasks: Sequence[ObjectWriter | Uploader]) -> None:
        """Wait for the tasks. With fixed shards, stop at the first error, because then no shard is committed."""
        for task in tasks:
            while not task.finished.is_set() and not (
                self.coordinator.fixed and self.acknowledgements.error is not None
            ):
                await self.acknowledgements.wait()
