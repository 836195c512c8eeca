"""`CycleShards` opens the shards of an interleave's cycle, within the bounds that all of them share.

Every shard of the cycle holds record batches, and those bounds divide one budget between them, so that a cycle of a
thousand shards costs no more than one of ten.

A shard on a disk is read when its records are needed. In a store each of these reads would wait for an answer, one
shard after the other: 16 shards at 20 ms each are as slow as a modem. So in a store a pool reads: each shard of the
cycle has a task that keeps one piece of it in memory, by one long answer if the store has a slot for it, otherwise by a
request for each piece. As soon as the last bytes of a shard have come, the shard that will take its place is opened. So
as many are being read as the cycle is long, while those before them are used up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._records.position import Position
from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.shard_cursor import ShardCursor
from asyncrec._sampling.interleave.shard_feed import PooledFeed, ReadPool, ShardFeed
from asyncrec._sampling.interleave.shard_inputs import ShardInputs

# For the record batches of all shards together: 16 shards then get the 256 KiB blocks that read best, and their
# compressed ones a member of 4 MiB at a time; in a store pieces of 1 MiB.
MEMORY_LIMIT = 64 << 20
# Reads in flight at once in a store, by default: a second wave of the usual 16 shards waits for none of the first.
READS_AT_ONCE = 32
# Batches a shard of the cycle may hold at once. On a disk the one being used, and a quarter of it beside one that came
# early. With a pool also one that waits and one in the source; and while that shard is used up, two of the next one.
_BATCHES, _BATCHES_OF_A_POOL = 5 / 4, 4
# A batch has at least this size: below it, a read costs more than its bytes. This bounds a cycle of 1,000 shards to 64
# MiB, and with a pool, which may be asked for 10,000, one of 1,000 too.
_LEAST_BATCH, _LEAST_OF_A_POOL = 64 << 10, 16 << 10
_MOST_BATCH = 4 << 20
# One read of a local file.
_CHUNK = 256 << 10
# An eighth of the 1,024 open files that a process usually may have. Sources in a store hold no connection for long.
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
        """Return the plan for these inputs. If ``parallelism`` is `None`, it depends on their store."""
        if self.parallelism is not None:
            return self
        return self._replace(parallelism=READS_AT_ONCE if inputs.reads_cost_waiting else 0)


class CycleShards:
    """Opens the shards of a cycle: cursors over them, each with its share of the memory.

    Args:
        sequence: the numbers of the shards, in the order they are opened. A *place* is an index in this sequence.
        scope: where the tasks of a pool run; `None` only without a pool.

    Attributes:
        slots: how many shards the cycle has.
        pool: the pool of the tasks that read; `None` if each shard is read when its records are needed.
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
            assert scope is not None, "a pool runs somewhere"
            self.pool = ReadPool(scope, reads=plan.parallelism, held=self._batch_bytes)
        far = inputs.reads_cost_waiting
        self._chunk = self._batch_bytes if far else min(self._batch_bytes, _CHUNK)
        self._park = self.slots > _MOST_OPEN and not far

    def to_open(self, order: InterleaveOrder) -> Iterator[int]:
        """Yield the places that a pool reads: all of the cycle, and those behind it that come as others end. Open each
        before the next is asked for."""
        if self.pool is not None:
            yield from order.open_inputs()
            for place in order.coming_inputs(self.slots):
                if self.pool.reading >= self.slots:
                    return
                yield place

    def open_cursor(self, place: int, start: Position) -> ShardCursor:
        """Begin to read the shard at a place, from a position on."""
        shard = self._sequence[place]
        feed: ShardFeed
        feed = reader = self._inputs.reader(
            shard, start, chunk_size=self._chunk, inflate_bytes=self._batch_bytes, park=self._park
        )
        if self.pool is not None:
            feed = PooledFeed(self.pool, reader)
        return ShardCursor(shard, feed, start)
