"""`Prefetcher` makes batches in a task ahead of the consumer, and can resume after any batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from asyncrec._concurrency.tasks import TaskScope
from asyncrec._sampling.interleave.single_pass import NO_STATE
from asyncrec._sampling.interleave_sampler.batch_builder import BatchBuilder, BuilderState
from asyncrec._sampling.state_values import StateValues

Snapshot = Callable[[], dict[str, Any]]

# The time in seconds spent making batches before the consumer can take any of them. It equals a hundred task switches.
_SECONDS_TOGETHER = 0.002

# A state consists of a snapshot and the number of batches made after it, which is at most this number. Without a limit,
# loading a damaged state could read forever.
_MOST_SKIPPED = 1 << 24


class _Snapshots:
    """Takes snapshots of a builder, from which the state after each batch can be computed.

    Between two snapshots, the builder makes at least as many records as it can make in the time that one snapshot
    takes. This limits the share of time that is spent on snapshots.

    Attributes:
        possible: whether the builder has a state.
        wanted: whether snapshots are taken if they are possible.
    """

    def __init__(self, builder: BatchBuilder, *, possible: bool, wanted: bool) -> None:
        self.possible = possible
        self.wanted = wanted
        self._builder = builder
        self._snapshot: Snapshot | None = None
        self._made = self._since = 0

    def renew(self) -> None:
        """Take a snapshot before the first batch, and later if enough records were made since the last snapshot."""
        if not (self.possible and self.wanted):
            return
        if self._snapshot is None or self._since >= self._builder.snapshot_cost:
            self._snapshot = self._builder.snapshot()
            self._made = self._since = 0

    def after(self, batch: Sequence[Any]) -> tuple[Snapshot, int] | None:
        """Return the last snapshot, and the number of batches made since then, including ``batch``."""
        self._made += 1
        self._since += len(batch)
        return None if self._snapshot is None else (self._snapshot, self._made)


class Prefetcher:
    """A queue of batches that one task makes in advance for one consumer task.

    The task that makes batches starts on the first call of `wait`, and ends with ``scope``. If batches are fast to
    make, it makes several of them between two task switches. Otherwise, each batch is available as soon as it is made.

    Args:
        size: the maximum number of waiting batches. With 0, `wait` makes each batch itself, without a task.
        scope: the scope in which the task runs; `None` only with ``size=0``.
        has_state: whether the order is independent of timing. If not, there is no state.

    Attributes:
        batches: the waiting batches, each with the last snapshot before it and the number of batches made since that
            snapshot, including the batch itself. The consumer calls `take` for each batch.
        begun: whether `wait` has been called.
        seconds_idle: the time spent in `wait`.
    """

    def __init__(self, builder: BatchBuilder, *, size: int, scope: TaskScope | None, has_state: bool) -> None:
        self._builder = builder
        self._size = size
        self._scope = scope
        self._loaded: Mapping[str, Any] | None = None
        self._start: tuple[BuilderState, int] | None = None  # the loaded state, parsed
        self._last: tuple[Snapshot, int] | None = None  # as in `batches`, for the last batch returned
        self._snapshots = _Snapshots(builder, possible=has_state, wanted=size > 0)
        self._changed = anyio.Event()
        self._room = anyio.Event()
        self._ended = False
        self._error: Exception | None = None
        self.batches: deque[tuple[list[Any], tuple[Snapshot, int] | None]] = deque()
        self.begun = False
        self.seconds_idle = 0.0

    def take(self) -> list[Any]:
        """Remove and return the first waiting batch."""
        batch, self._last = self.batches.popleft()
        self._room.set()
        return batch

    async def wait(self) -> None:
        """Wait until a batch is available.

        Raises:
            StopAsyncIteration: there are no more batches.
        """
        began = anyio.current_time()
        try:
            if not self._size:
                if not self.begun:
                    await self._load()
                    self.begun = True
                self._snapshots.renew()
                batches = await self._builder.next_batches(1)
                self.batches.extend((batch, self._snapshots.after(batch)) for batch in batches)
                self._ended = not self.batches
            elif not self.begun:
                self.begun = True
                if self._loaded is None and self._snapshots.possible:
                    self._last = self._builder.snapshot(), 0
                assert self._scope is not None, "prefetching requires a scope"
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
        """Begin at ``state``, which `state_dict` returned. ``values`` are its values.

        Raises:
            ValueError: the state belongs to another sampler, or is damaged.
            RuntimeError: the order depends on timing.
        """
        if not self._snapshots.possible:
            raise RuntimeError(NO_STATE)
        self._start = self._builder.parsed(values), values.whole("skip", most=_MOST_SKIPPED)
        self._loaded = state

    def keep_snapshots(self) -> None:
        """Take snapshots even with ``size=0``, because ``state_dict(unused=1)`` needs them."""
        self._snapshots.wanted = True

    def state_dict(self, unused: int = 0) -> dict[str, Any]:
        """Return the state after the last batch that `take` returned or, with ``unused=1``, before that batch.

        Raises:
            RuntimeError: there is no state, because the order depends on timing.
        """
        if not self._snapshots.possible:
            raise RuntimeError(NO_STATE)
        if self._last is not None and (self._size or unused):
            snapshot, skip = self._last
            return {**snapshot(), "skip": skip - unused}
        if self._loaded is not None and (self._size or not self.begun):
            return dict(self._loaded)
        return {**self._builder.snapshot()(), "skip": 0}

    async def aclose(self) -> None:
        """Close the builder, unless a task is making the batches: that task closes the builder when it ends."""
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
        """Make batches until the end."""
        builder, snapshots = self._builder, self._snapshots
        try:
            await self._load()
            together = 1
            while True:
                while (room := self._size - len(self.batches)) <= 0:
                    self._room = anyio.Event()
                    await self._room.wait()
                snapshots.renew()
                began = time.perf_counter()
                batches = await builder.next_batches(min(room, together))
                together = 2 * together if time.perf_counter() - began < _SECONDS_TOGETHER / 2 else -(-together // 2)
                together = min(together, self._size)
                if not batches:
                    break
                self.batches.extend((batch, snapshots.after(batch)) for batch in batches)
                self._changed.set()
        except Exception as error:
            self._error = error
        finally:
            try:
                await builder.aclose()
            finally:
                self._ended = True
                self._changed.set()
