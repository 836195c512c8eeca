"""An asyncio storage works through the bridge as it would on its own loop, whether the caller uses asyncio or trio."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from asyncrec.errors import ObjectNotFoundError, TransientStorageError
from asyncrec.storage import BridgedStorage, on_asyncio
from asyncrec.storage._base import ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import StorageConformance

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "asyncrec-bridge"]


@asynccontextmanager
async def opened(storage: Storage) -> AsyncIterator[Storage]:
    yield storage


def bridged(storage: Storage) -> BridgedStorage:
    return BridgedStorage(partial(opened, storage))


class TestBridgedMemory(StorageConformance):
    def open_storage(self) -> AbstractAsyncContextManager[Storage]:
        self.inner = MemoryStorage()
        return bridged(self.inner)

    # These run on the caller's side, because a memory storage works on any loop.

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        await self.inner.put(key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        try:
            return await self.inner.get(key)
        except ObjectNotFoundError:
            return None

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [info.key async for info in self.inner.list_objects()]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return []  # a memory storage has no unfinished objects


class Probe(MemoryStorage):
    """A storage that records the task of each step, with keys that make it hang, fail or ignore cancellation."""

    read_ahead = 123
    flush_level = "spooled"
    lists_by_pages = False

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[tuple[str, asyncio.Task[object] | None]] = []
        self.reached = threading.Event()
        self.stubborn = False

    def note(self, what: str) -> None:
        self.steps.append((what, asyncio.current_task()))

    async def hang(self) -> None:
        self.reached.set()
        try:
            await anyio.sleep_forever()
        except asyncio.CancelledError:
            self.note("cancelled")
            if not self.stubborn:
                raise

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        self.note("enter")
        if key == "hang-enter":
            await self.hang()
        try:
            # A task group must be entered and exited in the same task.
            async with anyio.create_task_group() as group:
                async with super().open_sink(key, exclusive=exclusive) as sink:
                    if key == "fail-inside":
                        group.start_soon(self.fail)
                    noting = _Noting(self, sink)
                    yield noting
                    if key == "hang-exit":
                        await self.hang()
                noting.published = sink.published
        finally:
            self.note("leave")

    async def fail(self) -> None:
        raise TransientStorageError("failed by itself")

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, start=start, end=end, info=info) as source:
            yield _Hanging(self, source)

    async def head(self, key: str) -> ObjectInfo:
        if key == "hang":
            await self.hang()
        return await super().head(key)


class _Noting(ByteSink):
    def __init__(self, probe: Probe, inner: ByteSink) -> None:
        self.probe, self.inner, self.chunk_size = probe, inner, inner.chunk_size

    async def send(self, buffers: object) -> None:
        self.probe.note("send")
        self.chunk_size *= 2
        await self.inner.send(buffers)  # type: ignore[arg-type]  # passed on unchanged

    async def flush(self, tail: object) -> int:
        self.probe.note("flush")
        return 7


class _Hanging(ByteSource):
    def __init__(self, probe: Probe, inner: ByteSource) -> None:
        self.probe, self.inner, self.info = probe, inner, inner.info

    async def receive(self, max_bytes: int) -> bytes:
        await self.probe.hang()
        with anyio.CancelScope(shield=self.probe.stubborn):
            return await self.inner.receive(max_bytes)


@asynccontextmanager
async def cancelled_when(reached: threading.Event) -> AsyncIterator[anyio.CancelScope]:
    """Yield a scope that is cancelled as soon as the other side has reached the point where it hangs."""

    async def watch() -> None:
        await anyio.to_thread.run_sync(reached.wait)
        scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        with anyio.CancelScope() as scope:
            yield scope


async def test_bridge_passes_on_storage_properties() -> None:
    async with bridged(Probe()) as storage:
        assert (storage.root, storage.read_ahead, storage.flush_level) == ("memory://", 123, "spooled")
        assert not storage.lists_by_pages
        assert "MemoryStorage" in repr(storage)


async def test_bridged_context_stays_in_one_task() -> None:
    probe = Probe()
    async with bridged(probe) as storage:
        async with storage.open_sink("key") as sink:
            chunk = sink.chunk_size
            await sink.send([b"x" * chunk])
            assert sink.chunk_size == 2 * chunk, "it is read again"
            assert await sink.flush([]) == 7
    assert [what for what, _ in probe.steps] == ["enter", "send", "flush", "leave"]
    assert len({task for _, task in probe.steps}) == 1


async def test_error_crosses_bridge_unchanged() -> None:
    async with bridged(Probe()) as storage:
        with pytest.raises(ObjectNotFoundError, match="missing"):
            await storage.head("missing")
        with pytest.raises(ObjectNotFoundError, match="missing"):
            async with storage.open_source("missing"):
                raise AssertionError("opened")


async def test_failed_opening_leaves_no_thread() -> None:
    @asynccontextmanager
    async def broken() -> AsyncIterator[Storage]:
        raise TransientStorageError("cannot be opened")
        yield MemoryStorage()

    with pytest.raises(TransientStorageError, match="cannot be opened"):
        async with BridgedStorage(broken):
            raise AssertionError("opened")


async def test_cancelled_call_is_cancelled_across_bridge() -> None:
    probe = Probe()
    async with bridged(probe) as storage:
        async with cancelled_when(probe.reached) as scope:
            await storage.head("hang")
        assert scope.cancelled_caught
        assert [what for what, _ in probe.steps] == ["cancelled"]


async def test_call_succeeding_despite_cancellation_keeps_its_result() -> None:
    """The call returns its result, and the next await raises the cancellation."""
    probe = Probe()
    probe.stubborn = True
    async with bridged(probe) as storage:
        await storage.put("key", b"bytes")
        async with storage.open_source("key") as source:
            got = b""
            async with cancelled_when(probe.reached) as scope:
                got = await source.receive(3)
                await anyio.lowlevel.checkpoint()
                raise AssertionError("the cancellation was lost")
            assert scope.cancelled_caught
            assert got == b"byt"


@pytest.mark.parametrize("key", ["hang-enter", "hang-exit"])
async def test_cancellation_in_entry_or_exit_leaves_bridged_context(key: str) -> None:
    probe = Probe()
    async with bridged(probe) as storage:
        async with cancelled_when(probe.reached) as scope:
            async with storage.open_sink(key) as sink:
                await sink.send([b"x"])
        assert scope.cancelled_caught
        with pytest.raises(ObjectNotFoundError):
            await storage.head(key)
    assert "cancelled" in [what for what, _ in probe.steps]
    assert key == "hang-enter" or probe.steps[-1][0] == "leave"


async def test_self_ended_context_raises_cause_in_next_call() -> None:
    async with bridged(Probe()) as storage:
        with pytest.raises((TransientStorageError, ExceptionGroup)) as raised:
            async with storage.open_sink("fail-inside") as sink:
                while True:
                    await sink.send([b"x"])
        assert "failed by itself" in repr(raised.value)


async def test_source_is_closed_after_its_context() -> None:
    async with bridged(MemoryStorage()) as storage:
        await storage.put("key", b"bytes")
        async with storage.open_source("key") as source:
            pass
        with pytest.raises(anyio.ClosedResourceError):
            await source.receive(1)


async def test_listing_is_fetched_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.storage._listing.LISTED", 3)
    inner = MemoryStorage()
    for n in range(7):
        await inner.put(f"k/{n}", b"")
    async with bridged(inner) as storage:
        assert [info.key async for info in storage.list_objects("k/")] == [f"k/{n}" for n in range(7)]
        assert [info.key async for info in storage.list_objects(start_after="k/3")] == ["k/4", "k/5", "k/6"]
        async with aclosing(storage.list_objects()) as listing:  # type: ignore[type-var]  # it is a generator
            assert (await anext(listing)).key == "k/0"


class Chunk(bytearray):
    """A chunk that supports weak references, so that a test can see when it is freed."""


async def test_bridge_keeps_no_chunk_after_send() -> None:
    chunk = Chunk(100)
    gone = weakref.ref(chunk)
    async with bridged(MemoryStorage()) as storage, storage.open_sink("a") as sink:
        await sink.send([chunk])
        del chunk
        assert gone() is None


async def test_concurrent_bridged_calls_do_not_mix() -> None:
    async with bridged(MemoryStorage()) as storage:

        async def one(n: int) -> None:
            data = b"%d" % n * 50_000
            await storage.put(f"k/{n}", data)
            assert await storage.get(f"k/{n}") == data
            async with storage.open_source(f"k/{n}", start=n) as source:
                assert await source.receive(1_000) == data[n : n + 1_000]

        async with anyio.create_task_group() as group:
            for n in range(50):
                group.start_soon(one, n)


async def test_on_asyncio_detects_running_event_loop(anyio_backend: str) -> None:
    assert on_asyncio() == (anyio_backend == "asyncio")
