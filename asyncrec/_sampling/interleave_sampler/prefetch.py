"""`Prefetcher` makes batches ahead of the consumer, in a task, and knows how to resume after each of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._sampling.interleave.single_pass import NO_STATE
from asyncrec._sampling.interleave_sampler.batch_builder import BatchBuilder, BuilderState
from asyncrec._sampling.state_values import StateValues

Snapshot = Callable[[], dict[str, Any]]

# What is made before any of it can be taken. A change of tasks costs a hundredth of it.
_SECONDS_TOGETHER = 0.002

# Batches made since a snapshot: a state that is damaged is not to read for ever.
_MOST_SKIPPED = 1 << 24


class Prefetcher:
    """Makes batches ahead. Used by one task.

    The task that makes batches begins with the first `wait`, and ends with ``scope``.

    If batches are made fast, several are made at a time: one change of tasks for all of them. Otherwise each can be
    taken as soon as it is there.

    Args:
        size: batches that wait at most. 0: each is made when it is waited for, and there is no task.
        scope: where the task runs; `None` only with ``size=0``.
        has_state: whether the order does not depend on timing.

    Attributes:
        batches: those that wait, each with the last snapshot before it and the number of batches made since, itself
            included. The consumer calls `take` for each.
        seconds_idle: how long `wait` took.
    """

    def __init__(self, builder: BatchBuilder, *, size: int, scope: TaskScope | None, has_state: bool) -> None:
        self._builder = builder
        self._size = size
        self._scope = scope
        self._has_state = has_state
        self._loaded: Mapping[str, Any] | None = None
        self._start: tuple[BuilderState, int] | None = None  # what was loaded, read
        self._last: tuple[Snapshot, int] | None = None  # of the batch returned last
        self._changed = anyio.Event()
        self._room = anyio.Event()
        self._ended = False
        self._error: Exception | None = None
        self.batches: deque[tuple[list[Any], tuple[Snapshot, int] | None]] = deque()
        self.begun = False
        self.seconds_idle = 0.0

    def take(self) -> list[Any]:
        """Take a batch that waits."""
        batch, self._last = self.batches.popleft()
        self._room.set()
        return batch

    async def wait(self) -> None:
        """Wait until there is a batch.

        Raises:
            StopAsyncIteration: there are no more.
        """
        began = anyio.current_time()
        try:
            if not self._size:
                if not self.begun:
                    await self._load()
                    self.begun = True
                self.batches.extend((batch, None) for batch in await self._builder.next_batches(1))
                self._ended = not self.batches
            elif not self.begun:
                self.begun = True
                if self._loaded is None and self._has_state:
                    self._last = self._builder.snapshot(), 0
                assert self._scope is not None, "it runs somewhere"
                self._scope.start_soon(self._make)
            while not self.batches:
                if self._error is not None:
                    raise self._error
                if self._ended:
                    raise StopAsyncIteration
                self._changed = anyio.Event()
                await self._changed.wait()
        finally:
            self.seconds_idle += anyio.current_time() - began

    def load(self, state: Mapping[str, Any], values: StateValues) -> None:
        """Begin at ``state``, which `state_dict` returned, and whose ``values`` these are.

        Raises:
            ValueError: it is of another sampler, or damaged.
            RuntimeError: the order depends on timing.
        """
        if not self._has_state:
            raise RuntimeError(NO_STATE)
        self._start = self._builder.parsed(values), values.whole("skip", most=_MOST_SKIPPED)
        self._loaded = state

    def state_dict(self) -> dict[str, Any]:
        """Return the state after the last batch that was taken.

        Raises:
            RuntimeError: the stream has no state, since its order depends on timing.
        """
        if not self._has_state:
            raise RuntimeError(NO_STATE)
        if self._last is not None:
            snapshot, skip = self._last
            return {**snapshot(), "skip": skip}
        if self._loaded is not None and (self._size or not self.begun):
            return dict(self._loaded)
        return {**self._builder.snapshot()(), "skip": 0}

    async def aclose(self) -> None:
        """Close what it read itself, if there is no task."""
        if not self._size or not self.begun:
            await self._builder.aclose()

    async def _load(self) -> None:
        if self._start is None:
            return
        start, left = self._start
        await self._builder.load(start)
        while left:
            left -= len(await self._builder.next_batches(left, examples=False)) or left

    async def _make(self) -> None:
        """Make batches. A snapshot is taken after as many records as cost the same time: so it costs little."""
        builder = self._builder
        try:
            await self._load()
            snapshot = builder.snapshot() if self._has_state else None
            made = since = 0
            together = 1
            while True:
                while (room := self._size - len(self.batches)) <= 0:
                    self._room = anyio.Event()
                    await self._room.wait()
                if snapshot is not None and since >= builder.snapshot_cost:
                    snapshot = builder.snapshot()
                    made = since = 0
                began = time.perf_counter()
                batches = await builder.next_batches(min(room, together))
                together = 2 * together if time.perf_counter() - began < _SECONDS_TOGETHER / 2 else -(-together // 2)
                together = min(together, self._size)
                if not batches:
                    break
                for batch in batches:
                    made += 1
                    since += len(batch)
                    self.batches.append((batch, None if snapshot is None else (snapshot, made)))
                self._changed.set()
        except Exception as error:
            self._error = error
        finally:
            try:
                await builder.aclose()
            finally:
                self._ended = True
                self._changed.set()
