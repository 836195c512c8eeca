"""`ShardedWriter`: records from many tasks into many shards, and acknowledgements of what became of them.

Fixed (``num_shards``): so many shards, published together when the context exits cleanly. Rolling (``max_shard_*``): a
shard is committed as it fills, and another begins.

What stands behind it is `asyncrec._shards.writing.open_shards`: a queue and an owner task for each shard that is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import anyio

from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.record_size import LARGE_RECORD, as_record, framed_size
from asyncrec._records.writing.intake import Intake
from asyncrec._records.writing.record_encoder import Record, RecordEncoder
from asyncrec._records.writing.write_batch import WriteBatch, batched
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._records.writing.writer import Level
from asyncrec._shards.writing.keys import KeySet, digest_of, partition_of
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.stats import ShardedWriterStats
from asyncrec.errors import ArgumentValueError
from asyncrec.example._schema import Schema

__all__ = ["Partition", "ShardedWriter"]

_TOGETHER = "shards that are fixed, or replace others, are committed together, by leaving the context"

Partition = str | bytes | int


class ShardedWriter:
    """A data set that is being written, opened by `open_sharded_writer`. Any number of tasks may use it.

    Attributes:
        path: the data set, as it was asked for.
        writer_id: the id of this writer, in names and in the manifest.
    """

    def __init__(
        self,
        shards: OpenShards,
        *,
        partition_by: Callable[[bytes], Partition] | None,
        keys: KeySet | None,
        encoder: RecordEncoder | None = None,
    ) -> None:
        self.path = shards.path
        self.writer_id = shards.job.header.writer
        self._shards = shards
        self._queues = shards.queues
        self._budget = shards.budget
        self._intake = Intake(shards.budget, shards.check)
        self._acknowledgements = shards.acknowledgements
        self._partition_by = partition_by
        self._keys = keys
        self._encoder = encoder
        self._tickets = 0
        self._duplicates = 0
        self._next_queue = 0

    @property
    def last_ticket(self) -> int:
        """The ticket of the last write; 0 before the first."""
        return self._tickets

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema | None:
        """What its records are held against."""
        return None if self._encoder is None else self._encoder.schema

    async def write(self, record: Record, *, key: str | bytes | None = None, partition: Partition | None = None) -> int:
        """Take one record; returns its ticket, for `wait`.

        Where the writer has a schema, it is a mapping of names to values, or bytes.

        It is copied unless it is `bytes`. Waits while the writer holds as much as it may. Cancelled, the record was
        not taken.

        Args:
            key: names the record, for deduplication, resuming and look-up.
            partition: records with equal partitions go to the same shard of those open. Without it, or a
                ``partition_by``, records go to the open shards in turn.

        With ``on_duplicate="skip"`` a record whose key was written before is dropped, and counted; the ticket is then
        that of the last write.

        Raises:
            SchemaError: the values are not what the schema says; nothing was taken.
            TypeError: the record is neither bytes, bytearray nor memoryview, nor a mapping for a writer with a schema.
            ClosedResourceError: the context was left.
            OSError: a shard failed; every later call raises it again, chained.
        """
        if self._encoder is not None:
            record, key = await self._encoder.take(record, key)
        elif type(record) is not bytes:
            record = await as_record(record)
        size = len(record) + FRAME_OVERHEAD
        # What may be refused is looked at first: a record that is refused takes no room, key or ticket.
        chosen = None
        if partition is not None or self._partition_by is not None:
            chosen = self._chosen_queue(record, partition)
        digest = None if key is None else digest_of(key)
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

    async def write_many(self, records: Iterable[Record], *, partition: Partition | None = None) -> int:
        """Take many records without keys, in order: the fast way. Returns the last one's ticket.

        Without a partition they go to the open shards in turn. Cancelled, a prefix of them was taken. With
        ``key_feature`` each has its key in it, and is written with it.
        """
        keyed = self._encoder is not None and self._encoder.key_feature is not None
        if keyed or (self._partition_by is not None and partition is None):
            for record in records:
                await self.write(record, partition=partition)
        elif self._encoder is not None:
            await self._encoder.take_many(records, lambda taken: self._write_batches(taken, partition))
        else:
            await self._write_batches(records, partition)
        return self._tickets

    async def _write_batches(self, records: Iterable[Record], partition: Partition | None) -> None:
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

    def has(self, key: str | bytes) -> bool:
        """Whether a record with this key was written: by this writer, or before it opened.

        Raises:
            ValueError: the writer does not know keys, because it was not opened with ``on_duplicate="skip"``.
        """
        if self._keys is None:
            raise ArgumentValueError(f"{self.path}: keys are known to a writer opened with on_duplicate='skip'")
        return digest_of(key) in self._keys

    # -- acknowledging ------------------------------------------------------------------------------------------------

    async def flush(self, *, require: Level = "buffered") -> Level:
        """Hand everything taken so far to the store; returns the level that all of it has reached.

        Many tasks that flush at once share one flush.

        Raises:
            ValueError: ``require`` is a level that flushing cannot reach here.
        """
        if require == "committed" or (require == "spooled" and not self._shards.spools):
            raise ArgumentValueError(f"{self.path}: {self._unreachable(require)}")
        self._shards.check()
        last = self._tickets
        await self._shards.flush()
        return self._acknowledgements.level_of(last)

    async def commit(self) -> Level:
        """Publish and commit everything taken so far: the open shards end here.

        Raises:
            RuntimeError: the shards are fixed, or replace others; they are committed together, by leaving the context.
        """
        if self._shards.together:
            raise RuntimeError(f"{self.path}: {_TOGETHER}")
        self._shards.check()
        last = self._tickets
        self._shards.end_objects()
        await self._acknowledgements.committed(last)
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
            if self._shards.together and not self._acknowledgements.ended:
                raise ArgumentValueError(f"{self.path}: {_TOGETHER}")
            await self._acknowledgements.committed(ticket)
            return
        if not self._shards.spools:
            raise ArgumentValueError(f"{self.path}: {self._unreachable(level)}")
        while self._acknowledgements.level_of(ticket) == "buffered":
            self._shards.check()
            await self._shards.flush()

    def stats(self) -> ShardedWriterStats:
        """Count what happened so far."""
        return self._shards.stats(self._duplicates)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _unreachable(self, level: str) -> str:
        if level == "committed":
            return "flush does not commit; commit() does, and leaving the context"
        if self._shards.job.header.kind == "whole":
            return f"{level!r} is not promised by what replaces a data set, which happens whole or not at all"
        return f"{level!r} needs a local disk, and {self._shards.job.staging.root} is not one"

    def _is_duplicate(self, digest: bytes) -> bool:
        if self._keys is None or digest not in self._keys:
            return False
        self._duplicates += 1
        return True

    def _chosen_queue(self, record: bytes, partition: Partition | None) -> WriteQueue:
        """Return the queue that the partition chooses."""
        if partition is None:
            assert self._partition_by is not None, "one of both is given"
            partition = self._partition_by(record)
        return self._queues[partition_of(partition, len(self._queues))]

    def _queue_in_turn(self) -> WriteQueue:
        queue = self._queues[self._next_queue]
        self._next_queue = (self._next_queue + 1) % len(self._queues)
        return queue
