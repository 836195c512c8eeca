"""`ShardedWriter` writes records from many tasks to many shards, and reports how safe the records are.

Fixed shards (``num_shards``) are published together when the context exits cleanly. Each rolling shard
(``max_shard_*``) is committed when it is full.

Each open shard has a queue and a task, which are implemented in `asyncrec._shards.writing.open_shards`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from itertools import cycle, islice
from typing import TYPE_CHECKING, Literal

import anyio

from asyncrec._concurrency.forks import OfOneProcess
from asyncrec._framing.frames import FRAME_OVERHEAD
from asyncrec._records.record_size import LARGE_RECORD, as_record, check_size, fitting
from asyncrec._records.writing.intake import Intake
from asyncrec._records.writing.record_encoder import Record, RecordEncoder
from asyncrec._records.writing.write_batch import BATCH_BYTES, Key, WriteBatch, batched
from asyncrec._records.writing.write_queue import WriteQueue
from asyncrec._records.writing.writer import Level
from asyncrec._shards.manifest.progress import MOST_POSITION
from asyncrec._shards.writing.acknowledgements import unreachable
from asyncrec._shards.writing.keys import KeySet, digest_of, partition_of
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.sources import Sources, no_source
from asyncrec._shards.writing.totals import ShardedWriterStats
from asyncrec.errors import ArgumentValueError

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema

_TOGETHER = "fixed shards, and shards that replace others, are committed together when the context exits"

Partition = str | bytes | int

# With several shards, records are collected in lists of this many batches, because each list has a cost per shard.
# Below a memory limit of _AMPLE batches, a list has one batch, because a list waits until all of it fits in memory.
_SPREAD = 2
_AMPLE = 32  # batches

# Keys of up to this many bytes or characters are hashed a batch at a time. A thousand keys take 0.3 ms, or less in C.
_HASHED_LATER = 256


class ShardedWriter(OfOneProcess):
    """The writer of a data set, opened by `open_sharded_writer`. Any number of tasks may use it.

    Attributes:
        path: the data set, as the caller passed it.
        writer_id: the id of this writer, used in names and in the manifest.
        flush_seconds: the age in seconds at which a record is flushed; `None` if records are flushed only on request.
        max_record_bytes: the length above which a record is rejected.
    """

    def __init__(
        self,
        shards: OpenShards,
        max_record_bytes: int,
        *,
        partition_by: Callable[[bytes], Partition] | None,
        keys: KeySet | None,
        encoder: RecordEncoder | None = None,
    ) -> None:
        super().__init__()
        self.path = shards.path
        self.max_record_bytes = max_record_bytes
        self._longest = min(max_record_bytes, LARGE_RECORD)  # longer records are handled one by one
        self._shards, self._queues, self._budget = shards, shards.queues, shards.budget
        self.writer_id, self.flush_seconds = shards.job.header.writer, shards.queues[0].flush_seconds
        self._intake, self._acknowledgements = Intake(shards.budget, shards.check), shards.acknowledgements
        self._partition_by, self._keys, self._encoder = partition_by, keys, encoder
        self._tickets = self._duplicates = 0
        self._queues_in_turn = cycle(shards.queues)
        self._sources = Sources(shards, self._next_tickets, max_record_bytes, keys, encoder)
        self._source_of = shards.sources.get if encoder is None else no_source  # records must be encoded first

    @property
    def last_ticket(self) -> int:
        """The ticket of the last write; 0 before the first."""
        return self._tickets

    # -- writing ------------------------------------------------------------------------------------------------------

    @property
    def schema(self) -> Schema | None:
        """The schema that records are checked against."""
        return None if self._encoder is None else self._encoder.schema

    @property
    def progress(self) -> dict[str, int]:
        """The last position, accepted or already stored, of each source that this writer has."""
        return self._shards.sources.progress

    async def write(
        self,
        record: Record,
        *,
        key: str | bytes | None = None,
        partition: Partition | None = None,
        source: str | None = None,
        position: int | None = None,
    ) -> int:
        """Write one record, and return its ticket, which `wait` accepts.

        With a schema, the record may also be a mapping of names to values. It is copied unless it is `bytes`.
        The call waits while ``memory_limit`` is reached. If it is cancelled, the record is not written.

        Args:
            key: a name for the record, used for deduplication, resuming and look-up.
            partition: records with equal partitions go to the same open shard. Without a partition or
                ``partition_by``, records go to the open shards in turn.
            source: the queue that the record came from, such as ``"topic/3"``; it chooses the open shard.
            position: the position in the source, from 0 to 2**63-1. A record at or below the last accepted or stored
                position is dropped and counted; the call then returns the ticket of the source's last record.

        With ``on_duplicate="skip"``, a record whose key was written before is dropped and counted; the call then
        returns the ticket of the last write.

        Raises:
            SchemaError: the values do not fit the schema; nothing was written.
            TypeError: the record is not bytes, a bytearray, a memoryview or, for a writer with a schema, a mapping.
            ValueError: the record is longer than ``max_record_bytes``; nothing was written.
            ClosedResourceError: the context has exited.
            OSError: a shard failed; every later call raises it again, chained.
        """
        if source is not None or position is not None:
            found = self._source_of(source) if type(source) is str and key is None and partition is None else None
            if found is None or found.delays or type(position) is not int or type(record) is not bytes:
                return await self._sources.write([record], source, position, key=key, partition=partition)
            used, limit = self._budget.used + len(record) + FRAME_OVERHEAD, self._longest
            if used > self._budget.bound or len(record) > limit or not found.position < position <= MOST_POSITION:
                return await self._sources.write([record], source, position)
            self._budget.used = used
            self._tickets = found.ticket = ticket = self._tickets + 1
            found.queue.append(record, ticket, None, found, position)
            return ticket
        if self._encoder is not None:
            record, key = await self._encoder.take(record, key)
        elif type(record) is not bytes:
            record = await as_record(record)
        size = len(record) + FRAME_OVERHEAD
        # Run all checks first, because a rejected record must not use up memory, a key or a ticket.
        large = len(record) > self._longest
        if large:
            check_size(len(record), self.max_record_bytes, self.path)
        chosen = None
        if partition is not None or self._partition_by is not None:
            chosen = self._chosen_queue(record, partition)
        named: Key | None = key
        digest = None
        if key is not None and (
            self._keys is not None or large or not (type(key) is str or type(key) is bytes) or len(key) > _HASHED_LATER
        ):
            digest = digest_of(key)
            if self._keys is not None and digest in self._keys:
                self._shards.check()
                self._duplicates += 1
                return self._tickets
            named = bytearray(digest)
        budget = self._budget
        used = budget.used + size
        if used <= budget.bound:
            budget.used = used
        else:
            await self._intake.take(size)
        if large:
            frames = await self._intake.frame_large(record)
        if digest is not None and self._keys is not None and not self._keys.add(digest):
            budget.give(size)  # another task wrote the key while this one waited
            self._duplicates += 1
            return self._tickets
        queue = next(self._queues_in_turn) if chosen is None else chosen
        self._tickets = ticket = self._tickets + 1
        if large:
            time = anyio.current_time()
            queue.append_sealed(WriteBatch.of_large(record, frames, ticket=ticket, time=time, digest=digest))
        else:
            queue.append(record, ticket, named)
        return ticket

    async def write_many(
        self,
        records: Iterable[Record],
        *,
        partition: Partition | None = None,
        source: str | None = None,
        position: int | None = None,
    ) -> int:
        """Write many records without keys, in order, and return the ticket of the last. This is faster than `write`.

        Without a partition, the records go to the open shards in turn. If the call is cancelled, some of the first
        records may have been written. With ``key_feature``, each record is written with the key that it contains. With
        ``source`` and ``position``, pass all records of that position, which become durable together or not at all.
        """
        if source is not None or position is not None:
            return await self._sources.write(records, source, position, partition=partition)
        keyed = self._encoder is not None and self._encoder.key_feature is not None
        if keyed or (self._partition_by is not None and partition is None):
            for record in records:
                await self.write(record, partition=partition)
        elif self._encoder is not None:
            await self._encoder.take_many(records, lambda taken: self._write_batches(taken, partition))
        else:
            await self._write_batches(records, partition)
        return self._tickets

    async def advance(self, source: str, position: int) -> int:
        """Accept a position that has no record, for a later commit. Return the ticket of the source's last record."""
        return await self._sources.write((), source, position)

    async def take(self, source: str) -> int | None:
        """Take a source, as its first write would, and return its last position, or `None` if it has none.

        It raises `ConflictError` as `write` does. If this writer already has the source, only the position is returned.
        A source that this writer has lost to another writer is taken only by this call, not by a write.
        """
        return await self._sources.take(source)

    async def release(self, *sources: str) -> None:
        """Commit everything written so far, and release these sources, so that another writer may continue them.

        If another writer has taken one of them, and no call has reported that yet, this call raises `ConflictError`,
        but all are released. A lost source must be released, too: until then, each call that acknowledges records
        raises that error. After a cancellation, sources that were not released are still in ``progress``.
        """
        await self._shards.sources.release(sources, self._shards.commit)

    async def _write_batches(self, records: Iterable[Record], partition: Partition | None) -> None:
        chosen = None if partition is None else self._queues[partition_of(partition, len(self._queues))]
        count = len(self._queues)
        spread = chosen is None and count > 1 and self._budget.limit >= _AMPLE * BATCH_BYTES
        for item in batched(records, times=_SPREAD if spread else 1, longest=self._longest):
            if not isinstance(item, tuple):
                await self.write(item, partition=partition)
                continue
            batch, size = item
            if size > self._budget.limit:  # only a single record may exceed it
                for record in batch:
                    await self.write(record, partition=partition)
                continue
            await self._intake.take(size)
            first = self._tickets + 1
            self._tickets += len(batch)
            if chosen is not None:
                chosen.append_many(batch, size, first)
            elif count == 1:
                self._queues[0].append_many(batch, size, first)
            else:
                for turn, queue in enumerate(islice(self._queues_in_turn, min(count, len(batch)))):
                    part = batch[turn::count]
                    queue.append_many(part, fitting(part, 0, size, size)[1], first + turn, count)
                if len(batch) > count:  # the next record goes to the queue after the one that got the last record
                    deque(islice(self._queues_in_turn, len(batch) % count), 0)

    def has(self, key: str | bytes) -> bool:
        """Return whether a record with this key was written, by this writer or before it opened.

        Raises:
            ValueError: the writer does not keep keys, because it was not opened with ``on_duplicate="skip"``.
        """
        if self._keys is None:
            raise ArgumentValueError(f"{self.path}: has() requires a writer that was opened with on_duplicate='skip'")
        return digest_of(key) in self._keys

    # -- acknowledging ------------------------------------------------------------------------------------------------

    async def flush(self, *, require: Level = "buffered") -> Level:
        """Pass everything written so far to the store, and return the level that all of it has reached.

        Tasks that flush at the same time share one flush. If a store does not respond, the level is ``"buffered"``.

        Raises:
            ValueError: ``require`` is a level that flushing cannot reach here.
            TransientStorageError: a store does not respond, so ``require="spooled"`` was not reached; flush again.
        """
        if require != "buffered" and not (require == "spooled" and self._shards.spools):
            raise ArgumentValueError(f"{self.path}: {unreachable(self._shards.job, require)}")
        self._shards.check()
        last = self._tickets
        await self._shards.flush()
        level = self._acknowledgements.level_of(last, require=require)
        if level == "spooled":
            await self._shards.promise()
        self._shards.sources.refuse_lost()
        return level

    async def commit(self) -> Level:
        """Publish and commit everything written so far, which ends the open shards.

        Raises:
            RuntimeError: the shards are fixed or replace others; such shards are committed together when the context
                exits.
        """
        if self._shards.job.header.together:
            raise RuntimeError(f"{self.path}: {_TOGETHER}")
        self._shards.check()
        await self._shards.commit(self._tickets)
        await self._shards.sources.commit()
        self._shards.sources.refuse_lost()
        return "committed"

    async def wait(self, ticket: int, level: Literal["spooled", "committed"]) -> None:
        """Wait until every write up to ``ticket`` has reached the level.

        For ``"spooled"``, the call flushes, and shares the flush with all other waiting tasks. For ``"committed"``, it
        only waits, until a shard is full, ``max_shard_seconds`` have passed, or a task calls `commit`. If all tasks of
        a crawl may wait at once, set ``max_shard_seconds``.

        Raises:
            ValueError: the level cannot be reached here, or no write has this ticket.
            OSError: the shard failed.
        """
        if level not in ("spooled", "committed"):
            raise ArgumentValueError(f"the level to wait for must be 'spooled' or 'committed', not {level!r}")
        if not 0 <= ticket <= self._tickets:
            raise ArgumentValueError(f"no write has the ticket {ticket}; the last has {self._tickets}")
        if level == "committed":
            if self._shards.job.header.together and not self._acknowledgements.ended:
                raise ArgumentValueError(f"{self.path}: {_TOGETHER}")
            await self._acknowledgements.committed(ticket)
        elif not self._shards.spools:
            raise ArgumentValueError(f"{self.path}: {unreachable(self._shards.job, level)}")
        else:
            while self._acknowledgements.level_of(ticket) == "buffered":
                self._shards.check()
                await self._shards.flush()
            await self._shards.promise()  # another task may have flushed the records and then been cancelled
        self._shards.sources.refuse_lost()

    def stats(self) -> ShardedWriterStats:
        """Return the counts so far. This may be called from any thread."""
        return self._shards.stats(self._duplicates + self._sources.skipped)

    # -- internal helpers ----------------------------------------------------------------------------------------------

    def _next_tickets(self, count: int) -> int:
        """Issue ``count`` tickets, and return the first one."""
        first, self._tickets = self._tickets + 1, self._tickets + count
        return first

    def _chosen_queue(self, record: bytes, partition: Partition | None) -> WriteQueue:
        if partition is None:
            assert self._partition_by is not None, "partition or partition_by is passed"
            partition = self._partition_by(record)
        return self._queues[partition_of(partition, len(self._queues))]
