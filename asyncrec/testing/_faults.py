"""`FlakyStorage` and `SlowStorage` wrap a working storage, and add faults or delays to it.

A storage has nine operations: ``open_sink``, ``send``, ``flush``, ``publish`` (a clean exit), ``open_source``,
``receive``, ``list``, ``head`` and ``delete``. `FlakyStorage` counts them. To make each operation fail in turn::

    calm = FlakyStorage(storage)
    await job(calm)
    for k in range(len(calm.operations)):
        flaky = FlakyStorage(another_empty_storage, {k: Fault("error", when="after")})
        with pytest.raises(TransientStorageError):
            await job(flaky)

Delays use anyio's clock. Under `virtual_backend`, they take no real time, and a call that hangs reaches its timeout at
once.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeVar

import anyio

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage._base import Buffer, ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._sink_state import SinkState
from asyncrec.storage._url import join

T = TypeVar("T")
Call = Callable[[], Awaitable[T]]


@dataclass(frozen=True)
class Fault:
    """A fault injected into one operation.

    Attributes:
        kind: ``"error"`` raises ``error``. ``"hang"`` waits until cancelled. ``"short"`` performs part of the
            operation: a receive reports the end of the object, and a send or a list stops halfway and raises
            `TransientStorageError`. For other operations, ``"short"`` is the same as ``"error"``.
        when: ``"before"`` fails without calling the operation. ``"after"`` performs the operation, and loses only the
            response. A failed receive loses no bytes, because the next receive returns them.
        error: the type of the error. A backend raises `TransientStorageError` when it stops retrying.
        for_good: whether every later operation fails in the same way, as if the store were down.
    """

    kind: Literal["error", "hang", "short"] = "error"
    when: Literal["before", "after"] = "before"
    error: type[StorageError] = TransientStorageError
    for_good: bool = False


class _Around(Storage):
    """A wrapper around a storage that passes each operation to `perform`."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.root = storage.root
        self.read_ahead = storage.read_ahead
        self.flush_level = storage.flush_level
        self.lists_by_pages = storage.lists_by_pages

    @abstractmethod
    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        """Perform an operation: all of it by awaiting ``call()``, part of it by awaiting ``short()``, or none of it."""

    async def moved(self, size: int) -> None:
        """Wait as long as a transfer of ``size`` bytes takes."""

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        context = self._storage.open_sink(key, exclusive=exclusive)
        async with AsyncExitStack() as stack:
            inner = await self.perform("open_sink", key, partial(stack.enter_async_context, context))
            sink = _SinkAround(self, key, inner)
            with sink.state.entering():
                pass
            yield sink
            if sink.state.leave(None):
                await self.perform("publish", key, stack.aclose)
                sink.published = inner.published

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        context = self._storage.open_source(key, start=start, end=end, info=info)
        async with AsyncExitStack() as stack:
            inner = await self.perform("open_source", key, partial(stack.enter_async_context, context))
            yield _SourceAround(self, key, inner)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        cut = False

        async def whole() -> list[ObjectInfo]:
            return [info async for info in self._storage.list_objects(prefix, start_after=start_after)]

        async def half() -> list[ObjectInfo]:
            nonlocal cut
            cut = True
            found = await whole()
            return found[: len(found) // 2]

        for info in await self.perform("list", prefix, whole, short=half):
            yield info
        if cut:
            raise TransientStorageError(f"{self.root}: listing {prefix!r} was cut short on purpose")

    async def head(self, key: str) -> ObjectInfo:
        return await self.perform("head", key, partial(self._storage.head, key))

    async def delete(self, key: str) -> None:
        await self.perform("delete", key, partial(self._storage.delete, key))


class _SinkAround(ByteSink):
    def __init__(self, storage: _Around, key: str, inner: ByteSink) -> None:
        self._storage, self._key, self._inner = storage, key, inner
        self.chunk_size = inner.chunk_size
        self.state = SinkState(join(storage.root, key))

    def hold_at_most(self, size: int) -> None:
        self._inner.hold_at_most(size)
        self.chunk_size = self._inner.chunk_size

    async def send(self, buffers: Sequence[Buffer]) -> None:
        async def whole() -> None:
            await self._storage.moved(sum(map(len, buffers)))
            await self._inner.send(buffers)

        async def half() -> None:
            joined = b"".join(buffers)
            if len(joined) > 1:
                await self._inner.send([joined[: len(joined) // 2]])
            raise TransientStorageError(f"{self._storage.root}: {self._key}: half a chunk was sent on purpose")

        with self.state.working():
            await self._storage.perform("send", self._key, whole, short=half)
        self.chunk_size = self._inner.chunk_size

    async def flush(self, tail: Sequence[Buffer]) -> int:
        return await self._storage.perform("flush", self._key, partial(self._inner.flush, tail))


class _SourceAround(ByteSource):
    def __init__(self, storage: _Around, key: str, inner: ByteSource) -> None:
        self._storage, self._key, self._inner = storage, key, inner
        self.info = inner.info
        self._kept = b""  # received from the wrapped source, but not yet returned
        self._cut = False

    async def receive(self, max_bytes: int) -> bytes:
        async def whole() -> None:
            if not self._kept:
                self._kept = await self._inner.receive(max_bytes)
                await self._storage.moved(len(self._kept))

        async def short() -> None:
            self._cut = True

        if self._cut:
            return b""
        await self._storage.perform("receive", self._key, whole, short=short)
        if self._cut:
            return b""
        block, self._kept = self._kept[:max_bytes], self._kept[max_bytes:]
        return block


class FlakyStorage(_Around):
    """A storage whose operations fail according to a script or at random.

    Args:
        storage: the wrapped storage. Its own errors propagate.
        script: the faults, by the index of the operation, counted from 0 across all tasks.
        seed: the seed of the random faults. With the same seed, the same sequence of operations fails in the same way.
        rate: the probability that an operation outside the script fails, with a fault drawn from ``faults``.

    Attributes:
        operations: the operations begun so far, such as ``("send", "key")``. A listing's key is its prefix.
        failed: the indices in ``operations`` of the failed operations.
    """

    def __init__(
        self,
        storage: Storage,
        script: Mapping[int, Fault] | None = None,
        *,
        seed: int = 0,
        rate: float = 0.0,
        faults: Sequence[Fault] = (Fault(), Fault(when="after")),
    ) -> None:
        super().__init__(storage)
        self.operations: list[tuple[str, str]] = []
        self.failed: list[int] = []
        self._script = dict(script or {})
        self._random = random.Random(seed)
        self._rate = rate
        self._faults = faults
        self._down: Fault | None = None

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        k = len(self.operations)
        self.operations.append((operation, key))
        fault = self._down or self._script.get(k) or self._drawn()
        if fault is None:
            return await call()
        self.failed.append(k)
        if fault.for_good:
            self._down = fault
        if fault.kind == "short" and short is not None:
            return await short()
        if fault.when == "after":
            await call()
        if fault.kind == "hang":
            await anyio.sleep_forever()
        raise fault.error(f"{self.root}: {operation} {key}: operation {k} failed on purpose")

    def _drawn(self) -> Fault | None:
        # Draw both numbers even if the operation does not fail, so that a fault does not shift later draws.
        chance, which = self._random.random(), self._random.randrange(len(self._faults))
        return self._faults[which] if chance < self._rate else None


class SlowStorage(_Around):
    """A storage behind a slow connection that all tasks share.

    Args:
        storage: the wrapped storage.
        bytes_per_second: the combined speed of all sends and receives.
        latency: the delay before each operation, in seconds.
    """

    def __init__(self, storage: Storage, *, bytes_per_second: float = math.inf, latency: float = 0.0) -> None:
        super().__init__(storage)
        self._bytes_per_second = bytes_per_second
        self._latency = latency
        self._wire = anyio.Lock()

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        await anyio.sleep(self._latency)
        return await call()

    async def moved(self, size: int) -> None:
        async with self._wire:
            await anyio.sleep(size / self._bytes_per_second)
