"""A feed gives the record batches of one shard: a `ShardReader` reads them when it is asked, a `PooledFeed` ahead of
that.

A pool of n lets n reads be under way at once, over all its shards. Each shard has an owner task, which alone reads it,
into a bounded queue; it waits for room there before it asks the pool for a turn, so that shards that are full never
keep the shard that the order wants next from being read.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._records.position import RecordBatch
from asyncrec._sampling.interleave.shard_inputs import ShardReader


class ShardFeed(Protocol):
    """Gives the record batches of one shard, one after the other."""

    @property
    def ready(self) -> bool:
        """Whether `next_batch` would not wait."""

    async def next_batch(self) -> RecordBatch | None:
        """`None` at the end. An error is raised after the batches that came before it."""

    async def aclose(self) -> None:
        """Close what is open. It may be called before the end."""


class ReadPool:
    """The bounds that pooled feeds share: ``reads`` at once; ``prefetch`` record batches waiting for each shard.

    Attributes:
        changed: set whenever some shard has something new; whoever waits replaces it first.
    """

    def __init__(self, scope: TaskScope, *, reads: int, prefetch: int) -> None:
        self.scope = scope
        self.turns = anyio.Semaphore(reads)
        self.prefetch = prefetch
        self.changed = anyio.Event()


class PooledFeed:
    """A feed with a task of its own, which begins at once and ends at the shard's end or with the pool's scope."""

    def __init__(self, pool: ReadPool, reader: ShardReader) -> None:
        self._pool = pool
        self._reader = reader
        self._batches: deque[RecordBatch] = deque()
        self._room = anyio.Event()
        self._changed = anyio.Event()
        self._ended = False
        self._error: Exception | None = None
        pool.scope.start_soon(self._read)

    @property
    def ready(self) -> bool:
        return bool(self._batches) or self._ended

    async def next_batch(self) -> RecordBatch | None:
        while not self._batches:
            if self._error is not None:
                raise self._error
            if self._ended:
                return None
            self._changed = anyio.Event()
            await self._changed.wait()
        batch = self._batches.popleft()
        self._room.set()
        return batch

    async def aclose(self) -> None:
        """Nothing to do: the task closes its shard when its scope ends."""

    async def _read(self) -> None:
        try:
            while True:
                while len(self._batches) >= self._pool.prefetch:
                    self._room = anyio.Event()
                    await self._room.wait()
                async with self._pool.turns:
                    batch = await self._reader.next_batch()
                if batch is None:
                    break
                self._batches.append(batch)
                self._notify()
        except Exception as error:
            self._error = error
        finally:
            try:
                await self._reader.aclose()
            finally:
                self._ended = True
                self._notify()

    def _notify(self) -> None:
        self._changed.set()
        self._pool.changed.set()
