"""`CycleShards` opens the shards of an interleave's cycle as `ShardCursor` objects, which share one memory budget.

Each shard of the cycle has record batches in memory. The budget is divided among the shards, so a cycle of a thousand
shards needs hardly more memory than a cycle of ten.

A shard on a disk is read when its records are needed. With a remote store, the reader would then wait for one response
after another: 16 shards at 20 ms each would be as slow as a modem. Shards in a store are therefore read by a pool, in
which each shard of the cycle has a task that keeps one piece of the shard in memory. The pieces come from one long
response if the store has a slot for the shard; otherwise, each piece is requested separately. As soon as the last bytes
of a shard have arrived, its successor in the cycle is opened, so that the number of shards being read stays equal to
the cycle length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._records.position import Position, RecordBatch
from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.provenance import SourcedBatch
from asyncrec._sampling.interleave.shard_inputs import ShardInputs, ShardReader


class ShardFeed(Protocol):
    """A source of one shard's record batches, in order. A `ShardReader` reads on demand; a `PooledFeed` reads ahead."""

    @property
    def ready(self) -> bool:
        """Whether `next_batches` would return without waiting."""

    async def next_batches(self) -> Sequence[RecordBatch]:
        """Return the next batches, or an empty sequence at the end. An error is raised after all batches before it."""

    async def aclose(self) -> None:
        """Close the shard, even if it has not been read to its end."""


class ReadPool:
    """The limits of all pooled feeds: ``reads`` concurrent reads, and ``held`` bytes of waiting records per shard.

    Each shard is read by its own task, until ``held`` bytes of its records are in memory. The task waits for room in
    memory before it waits for its turn in the pool, so a shard without room never delays the shard that is needed next.
    A feed returns all waiting batches together, because a store's data arrives in many small blocks, and returning each
    of them separately would require a task switch per block.

    Attributes:
        reading: the number of feeds that have not reached the end of their shard.
        changed: set whenever a feed has new batches or has ended. A task that wants to wait replaces the event first.
        ended: called when a feed has reached its end, so that another shard can be opened.
    """

    def __init__(self, scope: TaskScope, *, reads: int, held: int) -> None:
        self.scope = scope
        self.turns = anyio.Semaphore(reads, fast_acquire=True)
        self.held = held
        self.reading = 0
        self.changed = anyio.Event()
        self.ended: Callable[[], None] = lambda: None


class PooledFeed:
    """A feed with its own task, which starts immediately and runs until the shard or the pool's scope ends."""

    def __init__(self, pool: ReadPool, reader: ShardReader) -> None:
        self._pool = pool
        self._reader = reader
        self._batches: list[RecordBatch] = []
        self._held = 0  # the size of these batches, in bytes
        self._room = anyio.Event()
        self._changed = anyio.Event()
        self._ended = False
        self._error: Exception | None = None
        pool.reading += 1
        pool.scope.start_soon(self._read)

    @property
    def ready(self) -> bool:
        return bool(self._batches) or self._ended

    async def next_batches(self) -> Sequence[RecordBatch]:
        while not self._batches:
            if self._error is not None:
                raise self._error
            if self._ended:
                return ()
            self._changed = anyio.Event()
            await self._changed.wait()
        batches, self._batches, self._held = self._batches, [], 0
        self._room.set()
        return batches

    async def aclose(self) -> None:
        """Do nothing, because the task closes its shard itself."""

    async def _read(self) -> None:
        pool, reader = self._pool, self._reader
        size = 0  # the size of the last read in bytes, an estimate for the next read
        try:
            while True:
                while self._batches and self._held + size > pool.held:
                    self._room = anyio.Event()
                    await self._room.wait()
                async with pool.turns:
                    batches = await reader.next_batches()
                if not batches:
                    break
                self._batches += batches
                size = sum(batch.size for batch in batches)
                self._held += size
                self._notify()
        except Exception as error:
            self._error = error
        finally:
            pool.reading -= 1
            try:
                await reader.aclose()
            finally:
                self._ended = True
                self._notify()
        pool.ended()  # not reached if the task was cancelled

    def _notify(self) -> None:
        self._changed.set()
        self._pool.changed.set()


# A batch that is fetched early needs memory in addition to the rest of the current batch. To limit memory, a batch is
# fetched early only if at most this fraction of the current batch is left. The current batch must also have many
# blocks; otherwise, every round would wait for a read of each shard.
_LEFT = 1 / 4
_MANY_BLOCKS = 8


class ShardCursor:
    """The reading position in one shard. An error or the end of the feed is reported after the records before it.

    Attributes:
        start: the position at which reading began.
        current, index, size: the batch being read (`None` at first), the index of its next record, and its length.
        next: the following batch, if it was fetched early.
    """

    __slots__ = ("_ended", "_error", "_feed", "_shard", "current", "index", "next", "size", "start")

    def __init__(self, shard: int, feed: ShardFeed, start: Position) -> None:
        self._shard = shard
        self._feed = feed
        self.start = start
        self._ended = False
        self._error: Exception | None = None
        self.current: SourcedBatch | None = None
        self.next: SourcedBatch | None = None
        self.index = 0
        self.size = 0

    @property
    def ready(self) -> bool:
        """Whether a record is in memory or `fill` would not wait."""
        return self.index < self.size or self.next is not None or self._ended or self._feed.ready

    @property
    def available(self) -> int:
        """The number of records that can be taken without fetching another batch."""
        return self.size - self.index + (0 if self.next is None else len(self.next.records))

    async def fill(self) -> bool:
        """Move to the next batch, or return `False` at the end. All records of the current batch must have been taken.

        Raises:
            Exception: the feed's error, once all records before it have been taken. Every later call raises it again.
        """
        if self.next is None:
            await self._take()
        if self._error is not None:
            raise self._error
        if self.next is None:
            return False
        self.current, self.next = self.next, None
        self.index, self.size = 0, len(self.current.records)
        return True

    def wants(self, records: int, block_length: int) -> bool:
        """Return whether to call `fetch` now: few records, fewer than ``records``, are left, and the call would not
        wait."""
        left = self.size - self.index
        return (
            left < records
            and self.next is None
            and not self._ended
            and left <= self.size * _LEFT
            and self.size >= block_length * _MANY_BLOCKS
            and self._feed.ready
        )

    async def fetch(self) -> None:
        """Fetch the next batch early. If the feed fails, `fill` raises the error later."""
        await self._take()

    def advance(self, count: int) -> None:
        """Advance past the ``count`` records that were taken."""
        self.index += count
        if self.index >= self.size and self.next is not None:
            self.current, self.next, self.index = self.next, None, self.index - self.size
            self.size = len(self.current.records)

    async def aclose(self) -> None:
        await self._feed.aclose()

    async def _take(self) -> None:
        if self._ended:
            return
        try:
            batches = await self._feed.next_batches()
        except Exception as error:
            self._error, self._ended = error, True
            return
        if batches:
            self.next = SourcedBatch.of(self._shard, batches)
        else:
            self._ended = True


# The total limit for the record batches of all shards. With 16 shards, a shard on a disk is read in blocks of 256 KiB,
# the fastest size, or about 3 MiB of decompressed records at a time, and a shard on a store in pieces of 1 MiB.
MEMORY_LIMIT = 64 << 20
# The default number of concurrent reads on a store: twice the usual 16 shards, so that a second wave of reads need not
# wait for the first.
READS_AT_ONCE = 32
# The number of batches that a shard in the cycle may keep in memory at once. When reading from a disk, it keeps the
# current batch, or the last quarter of that batch and a batch that was fetched early. When a pool is used, it also has
# one batch that is waiting, one that the source is still producing and, near the end of the shard, two batches of its
# successor.
_BATCHES, _BATCHES_OF_A_POOL = 5 / 4, 4
# The minimum size of a batch. If batches were smaller, the fixed cost of a read would exceed the cost of transferring
# its bytes. With this minimum, a cycle of 1,000 shards needs 78 MiB without a pool, and 63 MiB with a pool.
_LEAST_BATCH, _LEAST_OF_A_POOL = 64 << 10, 16 << 10
_MOST_BATCH = 4 << 20
# The size of one read of a local file.
_CHUNK = 256 << 10
# The largest cycle whose shards on a disk stay open between reads: an eighth of the 1,024 files that a process may
# usually have open. A shard in a store does not keep a connection open for long.
_MOST_OPEN = 128


class InterleavePlan(NamedTuple):
    """The parameters of a pass; see `asyncrec.interleave`."""

    cycle_length: int
    block_length: int
    parallelism: int | None
    deterministic: bool
    memory_limit: int
    shuffle_buffer: int

    def of(self, inputs: ShardInputs) -> InterleavePlan:
        """Return the plan for these inputs. If ``parallelism`` is `None`, choose a value that suits their storage."""
        if self.parallelism is not None:
            return self
        return self._replace(parallelism=READS_AT_ONCE if inputs.reads_cost_waiting else 0)


class CycleShards:
    """The shards of a cycle, opened as cursors. Each cursor gets a share of the memory.

    Args:
        sequence: the numbers of the shards, in the order in which they are opened. A *place* is an index into it.
        scope: the scope in which the tasks of a pool run; `None` only without a pool.

    Attributes:
        slots: the number of shards in the cycle.
        pool: the pool of reading tasks, or `None` if each shard is read when its records are needed.
    """

    def __init__(
        self, inputs: ShardInputs, sequence: Sequence[int], plan: InterleavePlan, *, scope: TaskScope | None
    ) -> None:
        self._inputs = inputs
        self._sequence = sequence
        self.slots = max(1, min(plan.cycle_length, len(sequence)))
        self.pool: ReadPool | None = None
        batches, least = _BATCHES, _LEAST_BATCH
        if plan.parallelism:
            batches, least = _BATCHES_OF_A_POOL, _LEAST_OF_A_POOL
        self._batch_bytes = min(_MOST_BATCH, max(least, int(plan.memory_limit / (self.slots * batches))))
        if plan.parallelism:
            assert scope is not None, "a read pool requires a scope"
            self.pool = ReadPool(scope, reads=plan.parallelism, held=self._batch_bytes)
        far = inputs.reads_cost_waiting
        self._chunk = self._batch_bytes if far else min(self._batch_bytes, _CHUNK)
        self._park = self.slots > _MOST_OPEN and not far

    def to_open(self, order: InterleaveOrder) -> Iterator[int]:
        """Yield the places that a pool should read: those in the cycle, and as many successors as there is room for.

        The caller must open the shard at a place before it requests the next place. Without a pool, yield nothing.
        """
        if self.pool is not None:
            yield from order.open_inputs()
            for place in order.coming_inputs(self.slots):
                if self.pool.reading >= self.slots:
                    return
                yield place

    def open_cursor(self, place: int, start: Position) -> ShardCursor:
        """Start reading the shard at ``place`` from position ``start``, and return its cursor."""
        shard = self._sequence[place]
        feed: ShardFeed
        feed = reader = self._inputs.reader(
            shard, start, chunk_size=self._chunk, inflate_bytes=self._batch_bytes, park=self._park
        )
        if self.pool is not None:
            feed = PooledFeed(self.pool, reader)
        return ShardCursor(shard, feed, start)
