"""`ShardedWriter`: records from many tasks into many shards, and acknowledgements of what became of them.

Fixed (``num_shards``): so many shards, published together when the context exits cleanly. Rolling (``max_shard_*``): a
shard is committed as it fills, and another begins.

Each shard that is open has a queue and an owner task (`_records.writing.object_writer`); `_shards.commit` publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

import anyio

from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.record_size import LARGE_RECORD, as_record, framed_size
from asyncrec._records.writing.intake import Intake
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_limits import ObjectLimits
from asyncrec._records.writing.object_writer import ObjectWriter
from asyncrec._records.writing.write_batch import WriteBatch, batched
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._records.writing.writer import Level
from asyncrec._shards.spool.uploader import Uploader
from asyncrec._shards.writing.acknowledgements import Progress
from asyncrec._shards.writing.coordinator import Publication
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.keys import KeySet, key_digest, partition_of
from asyncrec._shards.writing.stats import ShardedWriterStats
from asyncrec.errors import ArgumentValueError, StorageError
from asyncrec.storage._base import Buffer

__all__ = ["Partition", "ShardedWriter"]

_TOGETHER = "shards that are fixed, or replace others, are committed together, by leaving the context"

Partition = str | bytes | int


class ShardedWriter:
    """Made by `open_sharded_writer`. Any number of tasks may use it.

    Attributes:
        path: the data set, as it was asked for.
        writer_id: of this writer, in names and in the manifest.
    """

    def __init__(
        self,
        path: str,
        job: Job,
        *,
        open_shards: int,
        limits: ObjectLimits,
        partition_by: Callable[[bytes], Partition] | None,
        keys: KeySet | None,
        budget: ByteBudget,
    ) -> None:
        note = job.note
        self.path = path
        self.writer_id = note.writer
        self._job = job
        self._partition_by = partition_by
        self._keys = keys
        self._budget = budget
        self._committer = job.committer
        self._tickets = 0
        self._duplicates = 0
        self._next_queue = 0
        self._closed = False
        number = note.num_shards or open_shards
        self._publication = Publication(job, budget, number)
        self._queues: list[WriteQueue] = []
        self._writers: list[ObjectWriter] = []
        for host in self._publication.hosts:
            queue = WriteQueue(host.path, budget, limits=limits, compressed=bool(note.compression.type))
            eager = note.num_shards is not None
            self._writers.append(ObjectWriter(host, queue, budget, durable_flush=self._spools, eager=eager))
            self._queues.append(queue)
            host.queue = queue
        self._publication.progressed = self._progressed
        if job.spool is not None:
            job.spool.on_used = self._spool_changed
            job.spool.on_sent = self._publication.sent_to_spool
        self._progress = Progress(path, self._queues)
        budget.on_starving = self._seal
        self._intake = Intake(budget, self._check)

    @property
    def last_ticket(self) -> int:
        """The ticket of the last write; 0 before the first."""
        return self._tickets

    # -- writing ------------------------------------------------------------------------------------------------------

    async def write(self, record: Buffer, *, key: str | bytes | None = None, partition: Partition | None = None) -> int:
        """Take one record; returns its ticket, for `wait`.

        It is copied unless it is `bytes`. Waits while the writer holds as much as it may. Cancelled, the record was
        not taken.

        Args:
            key: names the record, for deduplication, resuming and look-up.
            partition: records with equal partitions go to the same shard of those open. Without it, or a
                ``partition_by``, records go to the open shards in turn.

        With ``on_duplicate="skip"`` a record whose key was written before is dropped, and counted; the ticket is then
        that of the last write.

        Raises:
            TypeError: the record is neither bytes, bytearray nor memoryview.
            ClosedResourceError: the context was left.
            OSError: a shard failed; every later call raises it again, chained.
        """
        if type(record) is not bytes:
            record = await as_record(record)
        size = len(record) + FRAME_OVERHEAD
        # What may be refused is looked at first: a record that is refused takes no room, key or ticket.
        chosen = None
        if partition is not None or self._partition_by is not None:
            chosen = self._chosen_queue(record, partition)
        digest = None if key is None else key_digest(key)
        if digest is not None and self._is_duplicate(digest):
            return self._tickets
        budget = self._budget
        used = budget.used + size
        if used <= budget.bound:
            budget.used = used
        else:
            await self._intake.take(size)
        if size > LARGE_RECORD + FRAME_OVERHEAD:
            frames = await self._intake.frame_large(record)
        if digest is not None and self._keys is not None and not self._keys.add(digest):
            budget.give(size)  # another task wrote it while this one waited
            self._duplicates += 1
            return self._tickets
        queue = chosen if chosen is not None else self._queue_in_turn()
        self._tickets += 1
        if size > LARGE_RECORD + FRAME_OVERHEAD:
            time = anyio.current_time()
            queue.append_sealed(WriteBatch.of_large(record, frames, ticket=self._tickets, time=time, key=digest))
        else:
            queue.append(record, self._tickets, digest)
        return self._tickets

    async def write_many(self, records: Iterable[Buffer], *, partition: Partition | None = None) -> int:
        """Take many records without keys, in order: the fast way. Returns the last one's ticket.

        Without a partition they go to the open shards in turn. Cancelled, a prefix of them was taken.
        """
        if self._partition_by is not None and partition is None:
            for record in records:
                await self.write(record)
            return self._tickets
        chosen = None if partition is None else self._queues[partition_of(partition, len(self._queues))]
        for item in batched(records):
            if not isinstance(item, tuple):
                await self.write(item, partition=partition)
                continue
            batch, size = item
            if size > self._budget.limit:  # a single record may exceed it, and no more
                for record in batch:
                    await self.write(record, partition=partition)
                continue
            await self._intake.take(size)
            first = self._tickets + 1
            self._tickets += len(batch)
            count = len(self._queues)
            if chosen is not None:
                chosen.append_many(batch, size, first)
            elif count == 1:
                self._queues[0].append_many(batch, size, first)
            else:
                for turn in range(min(count, len(batch))):
                    queue = self._queues[(self._next_queue + turn) % count]
                    part = batch[turn::count]
                    queue.append_many(part, framed_size(list(map(len, part))), first + turn, count)
                self._next_queue = (self._next_queue + len(batch)) % count
        return self._tickets

    def has(self, key: str | bytes) -> bool:
        """Whether a record with this key was written: by this writer, or before it opened.

        Raises:
            ValueError: the writer does not know keys, because it was not opened with ``on_duplicate="skip"``.
        """
        if self._keys is None:
            raise ArgumentValueError(f"{self.path}: keys are known to a writer opened with on_duplicate='skip'")
        return key_digest(key) in self._keys

    # -- acknowledging ------------------------------------------------------------------------------------------------

    async def flush(self, *, require: Level = "buffered") -> Level:
        """Hand everything taken so far to the store; returns the level that all of it has reached.

        Many tasks that flush at once share one flush.

        Raises:
            ValueError: ``require`` is a level that flushing cannot reach here.
        """
        if require == "committed" or (require == "spooled" and not self._spools):
            raise ArgumentValueError(f"{self.path}: {self._unreachable(require)}")
        self._check()
        last = self._tickets
        await self._flush()
        return self._progress.level_of(last)

    async def commit(self) -> Level:
        """Publish and commit everything taken so far: the open shards end here.

        Raises:
            RuntimeError: the shards are fixed, or replace others; they are committed together, by leaving the context.
        """
        if self._publication.together:
            raise RuntimeError(f"{self.path}: {_TOGETHER}")
        self._check()
        last = self._tickets
        for queue in self._queues:
            queue.end_object()
        await self._progress.committed(last)
        return "committed"

    async def wait(self, ticket: int, level: Literal["spooled", "committed"]) -> None:
        """Wait until every write up to ``ticket`` has reached the level.

        For ``"spooled"`` it flushes, together with whoever else waits. For ``"committed"`` it only waits, for a shard
        to fill, for `commit`, or for ``max_shard_seconds``: a crawl whose tasks all wait needs the last.

        Raises:
            ValueError: the level cannot be reached here, or no write has this ticket.
            OSError: the shard failed.
        """
        if level not in ("spooled", "committed"):
            raise ArgumentValueError(f"a level to wait for is 'spooled' or 'committed', not {level!r}")
        if not 0 <= ticket <= self._tickets:
            raise ArgumentValueError(f"no write has the ticket {ticket}; the last has {self._tickets}")
        if level == "committed":
            if self._publication.together and not self._progress.ended:
                raise ArgumentValueError(f"{self.path}: {_TOGETHER}")
            await self._progress.committed(ticket)
            return
        if not self._spools:
            raise ArgumentValueError(f"{self.path}: {self._unreachable(level)}")
        while self._progress.level_of(ticket) == "buffered":
            self._check()
            await self._flush()

    def stats(self) -> ShardedWriterStats:
        """What happened so far."""
        oldest = [time for queue in self._queues if (time := queue.levels.oldest_uncommitted) is not None]
        entries = self._committer.entries
        return ShardedWriterStats(
            records=sum(queue.records for queue in self._queues),
            bytes=sum(queue.bytes for queue in self._queues),
            duplicates=self._duplicates,
            committed_records=sum(entry.records for entry in entries),
            committed_bytes=sum(entry.bytes for entry in entries),
            committed_shards=len(entries),
            buffered_bytes=self._budget.used,
            reserved_bytes=self._budget.reserved,
            memory_limit=self._budget.limit,
            oldest_uncommitted_seconds=anyio.current_time() - min(oldest) if oldest else 0.0,
            seconds_waiting=self._budget.seconds_waited,
            seconds_compressing=sum(each.seconds_compressing for each in self._writers),
            seconds_storing=sum(each.seconds_storing for each in self._writers),
            spool_bytes=self._job.spool.used if self._job.spool is not None else 0,
            upload_retries=sum(uploader.retries for uploader in self._publication.uploaders),
        )

    # -- inside -------------------------------------------------------------------------------------------------------

    @property
    def _spools(self) -> bool:
        return self._job.home.flush_level == "spooled"

    def _unreachable(self, level: str) -> str:
        if level == "committed":
            return "flush does not commit; commit() does, and leaving the context"
        if self._job.note.kind == "whole":
            return f"{level!r} is not promised by what replaces a data set, which happens whole or not at all"
        return f"{level!r} needs a local disk, and {self._job.home.root} is none"

    def _is_duplicate(self, digest: bytes) -> bool:
        if self._keys is None or digest not in self._keys:
            return False
        self._duplicates += 1
        return True

    def _chosen_queue(self, record: bytes, partition: Partition | None) -> WriteQueue:
        """The one that the partition chooses."""
        if partition is None:
            assert self._partition_by is not None, "one of both is given"
            partition = self._partition_by(record)
        return self._queues[partition_of(partition, len(self._queues))]

    def _queue_in_turn(self) -> WriteQueue:
        queue = self._queues[self._next_queue]
        self._next_queue = (self._next_queue + 1) % len(self._queues)
        return queue

    def _seal(self) -> None:
        for queue in self._queues:
            queue.seal()

    async def _flush(self) -> None:
        journal = self._job.journal
        if journal is not None and self._publication.fixed and self._spools and not journal.acknowledged:
            await in_thread(journal.acknowledge)
        requests = [queue.flush() for queue in self._queues]
        for request in requests:
            await request.done.wait()
        self._progress.check()

    def _spool_changed(self) -> None:
        """Where the spool is full, nothing more is taken in, and what is open ends, so that it can be uploaded."""
        spool = self._job.spool
        assert spool is not None, "it is the spool that calls"
        if not self._budget.paused and not spool.full:
            return
        if 4 * spool.used <= 3 * spool.limit:
            self._budget.resume()
            return
        if not self._budget.paused:
            if self._publication.fixed:
                raise StorageError(
                    f"{self.path}: the spool {spool.root} has reached its limit of {spool.limit:,} bytes, and fixed "
                    "shards stay in it until all are written: raise spool_limit"
                )
            self._budget.pause()
        # Each time: what had been taken in before may have begun other shards since, and nothing else would end them.
        for queue in self._queues:
            queue.end_object()

    def _check(self) -> None:
        self._progress.check()
        if self._closed:
            raise anyio.ClosedResourceError(f"{self.path}: the writer is closed; write inside its `async with`")

    def _progressed(self, error: BaseException | None = None) -> None:
        if error is not None:
            self._progress.failed(error)
            self._budget.release_all()
        self._progress.changed()

    # -- opening and closing ------------------------------------------------------------------------------------------

    async def _open(self, scope: TaskScope) -> None:
        first, *others = self._writers
        scope.start_soon(first.run)
        if self._publication.fixed:
            # What a chunk of one takes tells what all will, before any other is begun.
            await first.opened.wait()
            self._progress.raise_failure()
            self._budget.refuse_beyond(len(self._writers))
        for writer in others:
            scope.start_soon(writer.run)
        for uploader in self._publication.uploaders:
            scope.start_soon(uploader.run)
        if self._publication.fixed:
            for writer in self._writers:
                await writer.opened.wait()
                self._progress.raise_failure()

    async def _finish(self) -> None:
        """Commit everything. Raises what failed, after whatever could be committed was."""
        self._closed = True
        for queue in self._queues:
            queue.close()
        self._budget.release_all()
        await self._all_finished(self._writers)
        uploaders = self._publication.uploaders
        for uploader in uploaders:
            uploader.close()
        await self._all_finished(uploaders)
        self._progress.raise_failure()
        await self._publication.close()
        for queue in self._queues:
            queue.levels.committed(self._tickets)
        self._progress.ended = True
        self._progressed()

    async def _all_finished(self, tasks: Sequence[ObjectWriter | Uploader]) -> None:
        """Rolling shards do not wait for one another; of those that belong together none goes on without the rest."""
        for task in tasks:
            while not task.finished.is_set() and not (self._publication.fixed and self._progress.error is not None):
                await self._progress.wait()

    def _abandon(self) -> None:
        self._closed = True
        self._progress.ended = True
        self._budget.release_all()
        self._progressed()
