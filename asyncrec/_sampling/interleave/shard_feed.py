"""A feed returns the record batches of one shard: a `ShardReader` reads on demand, a `PooledFeed` ahead of demand.

A pool of n has at most n reads in flight, over all its shards. Each shard has an owner task, the only task that reads
it, until its share of bytes is in memory. The task waits for room in that share before it requests a turn from the
pool, so full shards never delay the shard that the order needs next. All waiting batches are handed over together,
because the bytes of a store arrive in many small blocks, and each block would otherwise cost a task switch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._records.position import RecordBatch
from asyncrec._sampling.interleave.shard_inputs import ShardReader


class ShardFeed(Protocol):
    """A source of the record batches of one shard, in order."""

    @property
    def ready(self) -> bool:
        """Whether `next_batches` would not wait."""

    async def next_batches(self) -> Sequence[RecordBatch]:
        """Return the next batches; none only at the end. An error is raised after the batches before it."""

    async def aclose(self) -> None:
        """Close the shard. May be called before the end."""


class ReadPool:
    """The limits that pooled feeds share: ``reads`` at once, and ``held`` bytes of waiting records for each shard.

    Attributes:
        reading: how many feeds have not reached the end of their shard.
        changed: set whenever a feed has new batches or has ended; a task replaces the event before waiting for it.
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
    """A feed with its own task, which starts at once and ends at the end of the shard or with the pool's scope."""

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
        """Do nothing, because the task closes its shard when its scope ends."""

    async def _read(self) -> None:
        pool, reader = self._pool, self._reader
        size = 0  # the bytes of the last read, as an estimate for the next
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
