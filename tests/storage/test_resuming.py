"""`ResumingSource`: it continues after transient faults without losing bytes or mixing versions of an object."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from random import Random

import anyio
import pytest

from asyncrec.errors import (
    ObjectChangedError,
    ObjectNotFoundError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage._base import ByteSource, ObjectInfo
from asyncrec.storage._chunk_writer import ResumingSource
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._cancellation import cancel_at_every_checkpoint
from asyncrec.testing._checks import receive_all

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("read_ahead", [0, 7_000, 1 << 20])]

DATA = Random(7).randbytes(100_000)
Fault = Callable[[int], Exception | None]


class FaultyStorage(MemoryStorage):
    """A storage whose n-th open or receive raises the error that ``open_fault(n)`` or ``receive_fault(n)`` returns."""

    def __init__(self, open_fault: Fault = lambda n: None, receive_fault: Fault = lambda n: None) -> None:
        super().__init__()
        self.open_fault, self.receive_fault = open_fault, receive_fault
        self.ranges: list[tuple[int, int | None]] = []
        self.received = 0
        self.open_now = 0
        self.most_out = 0
        self.short_after: int | None = None  # a body ends there, as if it were complete

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return self._open(key, start, end, info)

    @asynccontextmanager
    async def _open(self, key: str, start: int, end: int | None, info: ObjectInfo | None) -> AsyncIterator[ByteSource]:
        self.ranges.append((start, end))
        await anyio.lowlevel.checkpoint()
        if (error := self.open_fault(len(self.ranges))) is not None:
            raise error
        async with super().open_source(key, start=start, end=end, info=info) as source:
            self.open_now += 1
            try:
                # Exiting this scope in a different task than the one that entered it would fail.
                with anyio.CancelScope():
                    yield _FaultySource(self, source, start)
            finally:
                self.open_now -= 1


class _FaultySource(ByteSource):
    def __init__(self, storage: FaultyStorage, source: ByteSource, start: int) -> None:
        self.storage, self.source, self.info, self.position = storage, source, source.info, start

    async def receive(self, max_bytes: int) -> bytes:
        storage = self.storage
        storage.received += 1
        await anyio.lowlevel.checkpoint()
        if (error := storage.receive_fault(storage.received)) is not None:
            raise error
        max_bytes = min(max_bytes, 9_000)  # simulates that no more has arrived
        if storage.short_after is not None:
            if self.position >= storage.short_after:
                storage.short_after = None
                return b""
            max_bytes = min(max_bytes, storage.short_after - self.position)
        block = await self.source.receive(max_bytes)
        self.position += len(block)
        return block


@pytest.fixture
def sleeps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Replace the clock by one that only sleeping advances; return the list of delays."""
    slept: list[float] = []

    async def sleep(delay: float) -> None:
        slept.append(delay)
        await anyio.lowlevel.checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    monkeypatch.setattr(anyio, "current_time", lambda: sum(slept))
    return slept


def transient(*which: int) -> Fault:
    return lambda n: TransientStorageError(f"reset {n}") if n in which else None


@pytest.mark.parametrize("block", [1_000, 3_333, 1 << 18])
async def test_resuming_source_returns_bytes_of_range(read_ahead: int, block: int) -> None:
    storage = FaultyStorage()
    await storage.put("x", DATA)
    ranges: list[tuple[int, int | None]] = [(0, None), (5, 70_000), (99_999, None), (0, 0), (200_000, None), (7, 10**9)]
    for start, end in ranges:
        async with ResumingSource(storage, "x", start=start, end=end, read_ahead=read_ahead) as source:
            assert source.info.size == len(DATA)
            assert await receive_all(source, block) == DATA[start:end]
            assert source.retries == 0
        assert storage.open_now == 0


async def test_source_resumes_at_reached_offset_after_transient_fault(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage(transient(1, 3), transient(2, 5, 6, 9))
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x", start=10, read_ahead=read_ahead) as source:
        assert await receive_all(source, 3_000) == DATA[10:]
        assert source.retries == len(sleeps) >= 3
    assert storage.open_now == 0
    begins = [start for start, _ in storage.ranges]
    assert begins == sorted(begins)
    assert begins[-1] > 10


async def test_source_resumes_after_short_body(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage()
    await storage.put("x", DATA)
    storage.short_after = 40_000
    async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
        assert await receive_all(source, 3_000) == DATA
        assert source.retries == 1
    assert storage.ranges[1] == (40_000, len(DATA))


async def test_replaced_object_is_never_mixed_with_new_one(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage(receive_fault=transient(3))
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x", read_ahead=min(read_ahead, 2_000)) as source:
        assert DATA.startswith(await source.receive(1_000))
        await storage.put("x", DATA[::-1])
        with pytest.raises(ObjectChangedError):
            await receive_all(source, 1_000)
    assert storage.open_now == 0


async def test_missing_pinned_version_fails_on_entry(read_ahead: int) -> None:
    storage = FaultyStorage()
    old = await storage.put("x", DATA)
    await storage.put("x", DATA)
    with pytest.raises(ObjectChangedError):
        async with ResumingSource(storage, "x", info=old, read_ahead=read_ahead):
            raise AssertionError("not reached")
    with pytest.raises(ObjectNotFoundError):
        async with ResumingSource(storage, "y", read_ahead=read_ahead):
            raise AssertionError("not reached")


async def test_retries_are_exhausted_while_opening(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage(lambda n: TransientStorageError("down"))
    await storage.put("x", DATA)
    with pytest.raises(TransientStorageError, match="down") as caught:
        async with ResumingSource(storage, "x", read_ahead=read_ahead):
            raise AssertionError("not reached")
    assert caught.value.__notes__[0].startswith("reading memory://x: asyncrec gave up after 10 attempts")


async def test_exhausted_retries_raise_after_delivering_received_bytes(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage(receive_fault=lambda n: TransientStorageError("down") if n > 3 else None)
    await storage.put("x", DATA)
    got = b""
    async with ResumingSource(storage, "x", read_ahead=min(read_ahead, 7_000)) as source:
        with pytest.raises(TransientStorageError, match="down"):
            while block := await source.receive(1_000):
                got += block
        with pytest.raises(TransientStorageError):
            await source.receive(1_000)
    assert got
    assert DATA.startswith(got)
    assert storage.open_now == 0


async def test_retry_budget_is_renewed_by_progress(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage(receive_fault=lambda n: TransientStorageError("flaky") if n % 2 else None)
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x", read_ahead=read_ahead and 2_000) as source:
        assert await receive_all(source, 1_000) == DATA
        assert source.retries >= 100
    assert max(sleeps) <= 0.2


async def test_permanent_error_is_raised_immediately(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage(receive_fault=lambda n: StoragePermissionError("no more") if n == 2 else None)
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x", read_ahead=min(read_ahead, 7_000)) as source:
        with pytest.raises(StoragePermissionError):
            await receive_all(source, 1_000)
    assert sleeps == []


async def test_body_error_propagates_unchanged(read_ahead: int) -> None:
    storage = FaultyStorage()
    await storage.put("x", DATA)
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
            await source.receive(10)
            raise error
    assert caught.value is error
    assert storage.open_now == 0


async def test_abandoned_source_is_closed_and_rejects_reads(read_ahead: int) -> None:
    storage = FaultyStorage()
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
        await source.receive(1)
    assert storage.open_now == 0
    with pytest.raises(anyio.ClosedResourceError):
        await source.receive(1)


async def test_cancellation_at_any_await_leaves_nothing_open(read_ahead: int, sleeps: list[float]) -> None:
    storage = FaultyStorage()
    await storage.put("x", DATA)

    async def read() -> None:
        storage.ranges.clear()
        storage.received = 0
        storage.open_fault, storage.receive_fault = transient(1), transient(2)
        async with ResumingSource(storage, "x", read_ahead=min(read_ahead, 40_000)) as source:
            assert await receive_all(source, 20_000) == DATA

    async def nothing_open() -> None:
        assert storage.open_now == 0

    assert await cancel_at_every_checkpoint(read, after=nothing_open) > 3


async def test_cancelled_receive_loses_no_byte(read_ahead: int) -> None:
    storage = FaultyStorage()
    await storage.put("x", DATA)
    got = b""
    async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
        while len(got) < len(DATA):
            with anyio.CancelScope() as scope:
                scope.cancel()
                got += await source.receive(9_000)
            got += await source.receive(9_000)
        assert await source.receive(1) == b""
    assert got == DATA


async def test_read_ahead_bounds_held_bytes(read_ahead: int) -> None:
    storage = FaultyStorage()
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
        await anyio.wait_all_tasks_blocked()
        assert source._held <= read_ahead
        assert (source._held > 0) == (read_ahead > 0)
        await source.receive(5_000)
        await anyio.wait_all_tasks_blocked()
        assert source._held <= read_ahead


class _PiecemealSource(ByteSource):
    """A source that receives all requested bytes, but returns them in pieces of 500 bytes."""

    def __init__(self, source: ByteSource) -> None:
        self.source, self.info, self.answer, self.asked = source, source.info, b"", list[int]()

    async def receive(self, max_bytes: int) -> bytes:
        if not self.answer:
            self.answer = await self.source.receive(max_bytes)
            self.asked.append(len(self.answer))
        piece, self.answer = self.answer[:500], self.answer[500:]
        self.buffered = len(self.answer)
        return piece


async def test_buffered_bytes_are_drained_and_counted(read_ahead: int) -> None:
    sources: list[_PiecemealSource] = []

    class Piecemeal(MemoryStorage):
        @asynccontextmanager
        async def _opened(self, opening: AbstractAsyncContextManager[ByteSource]) -> AsyncIterator[ByteSource]:
            async with opening as source:
                sources.append(_PiecemealSource(source))
                yield sources[-1]

        def open_source(
            self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
        ) -> AbstractAsyncContextManager[ByteSource]:
            return self._opened(super().open_source(key, start=start, end=end, info=info))

    storage = Piecemeal()
    await storage.put("x", DATA)
    got = b""
    async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
        while len(got) < len(DATA):
            if read_ahead:
                await anyio.wait_all_tasks_blocked()
                assert sources[0].buffered == 0, "it was taken"
                assert sum(sources[0].asked) - len(got) <= read_ahead
            got += await source.receive(700)
    assert got == DATA


async def test_storage_determines_read_ahead(read_ahead: int) -> None:
    storage = FaultyStorage()
    storage.read_ahead = read_ahead
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x") as source:
        assert (source._scope is not None) == (read_ahead > 0)
        assert await receive_all(source) == DATA


async def test_closing_error_does_not_hide_original_error(read_ahead: int) -> None:
    class FailsToClose(FaultyStorage):
        @asynccontextmanager
        async def _open(
            self, key: str, start: int, end: int | None, info: ObjectInfo | None
        ) -> AsyncIterator[ByteSource]:
            async with super()._open(key, start, end, info) as source:
                yield source
            raise StorageError("closing failed")

    storage = FailsToClose()
    await storage.put("x", DATA)
    async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
        assert await receive_all(source) == DATA


async def test_version_is_fixed_after_first_bytes(
    read_ahead: int, sleeps: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a source finds that the response at its opening was wrong, it continues with the actual version."""
    storage = FaultyStorage(receive_fault=transient(1, 4, 8))
    await storage.put("x", DATA)
    truth = await storage.head("x")
    opened: list[str | None] = []
    real_open, real_receive = FaultyStorage._open, _FaultySource.receive

    @asynccontextmanager
    async def open_with_a_wrong_answer(
        self: FaultyStorage, key: str, start: int, end: int | None, info: ObjectInfo | None
    ) -> AsyncIterator[ByteSource]:
        opened.append(info and info.etag)
        async with real_open(self, key, start, end, info) as source:
            if info is None:
                source.info = replace(source.info, etag="wrong")
            yield source

    async def receive(self: _FaultySource, max_bytes: int) -> bytes:
        block = await real_receive(self, max_bytes)
        self.info = truth
        return block

    monkeypatch.setattr(FaultyStorage, "_open", open_with_a_wrong_answer)
    monkeypatch.setattr(_FaultySource, "receive", receive)
    async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
        assert await receive_all(source, 3_000) == DATA
        assert source.info == truth
    assert opened == [None, None, truth.etag, truth.etag]


async def test_early_replacement_by_other_size_is_detected(read_ahead: int, sleeps: list[float]) -> None:
    """No bytes of both versions were mixed yet, but the caller already knows the old size."""
    storage = FaultyStorage()
    await storage.put("x", DATA)
    await storage.put("y", DATA + b"more")
    objects = storage._objects

    def replaced(n: int) -> Exception | None:
        objects["x"] = objects["y"]
        return TransientStorageError("reset")

    storage.receive_fault = replaced
    with pytest.raises(ObjectChangedError):
        async with ResumingSource(storage, "x", read_ahead=read_ahead) as source:
            await receive_all(source)


async def test_source_seeks_to_any_offset_within_version(
    read_ahead: int,
) -> None:
    """Seeking works forwards, backwards and from the end; bytes that were in flight before are not delivered."""
    store = MemoryStorage()
    data = Random(5).randbytes(300_000)
    await store.put("x", data)
    async with ResumingSource(store, "x", read_ahead=read_ahead) as source:
        assert (await source.receive(10)) == data[:10]
        await store.put("y", b"another")
        with anyio.CancelScope():
            for place in (200_000, 5, 299_990, 300_000, 100):
                await source.seek(place)
                assert await source.receive(20) == data[place : place + 20]
        await source.seek(299_000)
        rest = b""
        while block := await source.receive(1 << 20):
            rest += block
        assert rest == data[299_000:]
        await store.put("x", b"replaced" * 50_000)
        await source.seek(0)
        with pytest.raises(ObjectChangedError):
            await source.receive(10)
