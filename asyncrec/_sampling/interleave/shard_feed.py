"""A feed returns the record batches of one shard: a `ShardReader` reads them on demand, a `PooledFeed` ahead of that.

A pool of n has at most n reads in flight at once, over all its shards. Each shard has an owner task, the only one that
reads it, until its share of bytes waits. The task waits for room there before it asks the pool for a turn, so full
shards never keep the shard that the order wants next from being read. What waits is handed over together: a store's
bytes come in many small blocks, and each would be a change of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._records.position import RecordBatch
from asyncrec._sampling.interleave.shard_inputs import ShardReader


class ShardFeed(Protocol):
    """Returns the record batches of one shard, one after the other."""

    @property
    def ready(self) -> bool:
        """Whether `next_batches` would not wait."""

    async def next_batches(self) -> Sequence[RecordBatch]:
        """Return the next batches, at least one; none at the end. An error comes after the batches before it."""

    async def aclose(self) -> None:
        """Close what is open. May be called before the end."""


class ReadPool:
    """The bounds that pooled feeds share: ``reads`` at once; ``held`` bytes of records waiting for each shard.

    Attributes:
        reading: how many feeds have not come to the end of their shard.
        changed: set whenever some shard has something new; a waiting task replaces it first.
        ended: called when a feed has come to its end, and another shard may be opened.
    """

    def __init__(self, scope: TaskScope, *, reads: int, held: int) -> None:
        self.scope = scope
        self.turns = anyio.Semaphore(reads, fast_acquire=True)
        self.held = held
        self.reading = 0
        self.changed = anyio.Event()
        self.ended: Callable[[], None] = lambda: None


class PooledFeed:
    """A feed with a task of its own, which begins at once and ends at the shard's end or with the pool's scope."""

    def __init__(self, pool: ReadPool, reader: ShardReader) -> None:
        self._pool = pool
        self._reader = reader
        self._batches: list[RecordBatch] = []
        self._held = 0  # bytes of them
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
        """Do nothing: the task closes its shard when its scope ends."""

    async def _read(self) -> None:
        pool, reader = self._pool, self._reader
        size = 0  # of what came last, and so about that of what comes next
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
        pool.ended()  # not if it was cancelled

    def _notify(self) -> None:
        self._changed.set()
        self._pool.changed.set()
