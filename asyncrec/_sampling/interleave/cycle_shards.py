"""`CycleShards` opens the shards of an interleave's cycle, within the bounds that all of them share.

Every shard of the cycle holds record batches, and those bounds divide one budget between them, so that a cycle of a
thousand shards costs no more than one of ten. Beyond `_MOST_OPEN` shards none keeps its file open between reads.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._records.position import Position
from asyncrec._sampling.interleave.order import InterleaveOrder
from asyncrec._sampling.interleave.shard_cursor import ShardCursor
from asyncrec._sampling.interleave.shard_feed import PooledFeed, ReadPool, ShardFeed
from asyncrec._sampling.interleave.shard_inputs import ShardInputs

# For the record batches of all shards together: 16 shards then get the 256 KiB blocks that read best, and their
# compressed ones a member of 4 MiB at a time.
MEMORY_LIMIT = 64 << 20
# Batches waiting for each shard of a pool: one is taken while the next comes.
PREFETCH = 2
# A shard's share of the budget, at least: below, a read costs more than its bytes. This bounds a cycle of 1,000 shards
# to 64 MiB inline.
LEAST_BATCH = 64 << 10
_MOST_BATCH = 4 << 20
# One read of a local file, and of a store where each read is a request.
_CHUNK = 256 << 10
_REMOTE_CHUNK = 1 << 20
# An eighth of the 1,024 open files that a process usually may have.
_MOST_OPEN = 128


class InterleavePlan(NamedTuple):
    """The parameters of a pass; see `asyncrec.interleave`."""

    cycle_length: int
    block_length: int
    parallelism: int
    deterministic: bool
    prefetch: int
    memory_limit: int
    shuffle_buffer: int


class CycleShards:
    """What opens the shards of a cycle: cursors over them, each with its share of the memory.

    Args:
        sequence: the numbers of the shards, in the order they are opened. A *place* is an index in this sequence.
        scope: where the tasks of a pool run; `None` only without one.

    Attributes:
        slots: how many shards the cycle has.
        pool: of the tasks that read; `None` where each shard is read as its records are asked for.
    """

    def __init__(
        self, inputs: ShardInputs, sequence: Sequence[int], plan: InterleavePlan, *, scope: TaskScope | None
    ) -> None:
        self._inputs = inputs
        self._sequence = sequence
        self.slots = max(1, min(plan.cycle_length, len(sequence)))
        self.pool: ReadPool | None = None
        ahead = 0
        batches = 1
        if plan.parallelism:
            assert scope is not None, "a pool runs somewhere"
            self.pool = ReadPool(scope, reads=plan.parallelism, prefetch=plan.prefetch)
            ahead = min(plan.parallelism, len(sequence) - self.slots)
            batches += plan.prefetch
        self._at_once = self.slots + ahead
        # And a quarter of a batch that is left beside the one that came early.
        share = 4 * plan.memory_limit // (self._at_once * (4 * batches + 1))
        self._batch_bytes = min(_MOST_BATCH, max(LEAST_BATCH, share))
        self._chunk = min(self._batch_bytes, _REMOTE_CHUNK if inputs.reads_cost_waiting else _CHUNK)
        self._park = self._at_once > _MOST_OPEN

    def to_open(self, order: InterleaveOrder) -> list[int]:
        """The places that a pool reads: all of the cycle, and some that come after it. None without a pool."""
        if self.pool is None:
            return []
        opened = order.open_inputs()
        return [*opened, *order.coming_inputs(self._at_once - len(opened))]

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
