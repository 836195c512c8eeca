"""Faults occur where they were requested, and nowhere else."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from asyncrec.errors import ObjectNotFoundError, StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import Fault, FlakyStorage, SlowStorage, StorageConformance

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

CHUNK = 10


class Wrapped(StorageConformance):
    """A wrapper around a correct storage is a correct storage while no fault is requested."""

    wrap: Callable[[Storage], Storage]

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.within = MemoryStorage(chunk_size=1_000)
        yield type(self).wrap(self.within)

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        await self.within.put(key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        try:
            return await self.within.get(key)
        except ObjectNotFoundError:
            return None

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [info.key async for info in self.within.list_objects()]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return []


class TestFlakyStorage(Wrapped):
    wrap = FlakyStorage


class TestSlowStorage(Wrapped):
    @staticmethod
    def wrap(storage: Storage) -> Storage:
        return SlowStorage(storage, bytes_per_second=1e6, latency=0.1)


async def job(storage: Storage) -> list[bytes]:
    """Perform every operation at least once."""
    async with storage.open_sink("a") as sink:
        await sink.send([b"0123456789"])
        await sink.flush([b"ta"])
        await sink.send([b"tail"])
    async with storage.open_source("a") as source:
        blocks = [await source.receive(8), await source.receive(8)]
    assert [info.key async for info in storage.list_objects()] == ["a"]
    await storage.head("a")
    await storage.delete("a")
    return blocks


OPERATIONS = [
    "open_sink", "send", "flush", "send", "publish", "open_source", "receive", "receive", "list", "head", "delete",
]  # fmt: skip


async def test_operations_are_counted_in_order() -> None:
    storage = FlakyStorage(MemoryStorage(chunk_size=CHUNK))
    assert await job(storage) == [b"01234567", b"89tail"]
    assert [operation for operation, _ in storage.operations] == OPERATIONS
    assert storage.operations[0] == ("open_sink", "a")
    assert storage.failed == []


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("k", range(len(OPERATIONS)))
async def test_kth_operation_fails_with_its_number(k: int, when: Any) -> None:
    within = MemoryStorage(chunk_size=CHUNK)
    storage = FlakyStorage(within, {k: Fault(when=when, error=StoragePermissionError)})
    with pytest.raises(StoragePermissionError, match=f"{OPERATIONS[k]} .*operation {k} failed on purpose"):
        await job(storage)
    assert len(storage.operations) == k + 1
    assert storage.failed == [k]
    published = [info.key async for info in within.list_objects()] == ["a"]
    # With "after", a failed operation still takes effect: its object is published or deleted.
    gone_by = OPERATIONS.index("delete") + (when == "before")
    there_from = OPERATIONS.index("publish") + (when == "before")
    assert published == (there_from <= k < gone_by)


async def test_single_fault_passes_but_permanent_fault_stays() -> None:
    within = MemoryStorage()
    await within.put("a", b"x")
    storage = FlakyStorage(within, {1: Fault(), 3: Fault(for_good=True)})
    outcomes = []
    for _ in range(6):
        try:
            outcomes.append((await storage.head("a")).size)
        except TransientStorageError:
            outcomes.append(None)
    assert outcomes == [1, None, 1, None, None, None]
    assert storage.failed == [1, 3, 4, 5]


async def test_receive_failing_after_its_effect_loses_no_bytes() -> None:
    within = MemoryStorage()
    await within.put("a", b"0123456789")
    storage = FlakyStorage(within, {1: Fault(when="after")})
    async with storage.open_source("a") as source:
        with pytest.raises(TransientStorageError):
            await source.receive(6)
        assert await source.receive(4) == b"0123"
        assert await source.receive(6) == b"45"
        assert await source.receive(6) == b"6789"


async def test_short_receive_ends_object_early() -> None:
    within = MemoryStorage()
    await within.put("a", b"0123456789")
    storage = FlakyStorage(within, {2: Fault("short")})
    async with storage.open_source("a") as source:
        assert source.info.size == 10
        assert [await source.receive(4) for _ in range(3)] == [b"0123", b"", b""]


async def test_short_send_stores_half_and_raises() -> None:
    within = MemoryStorage(chunk_size=CHUNK)
    storage = FlakyStorage(within, {1: Fault("short")})
    with pytest.raises(TransientStorageError, match="half a chunk"):
        await storage.put("a", b"0123456789")
    assert [info.key async for info in within.list_objects()] == []


async def test_failed_send_swallowed_by_body_is_remembered() -> None:
    within = MemoryStorage(chunk_size=CHUNK)
    with pytest.raises(StorageError, match="failed or was cancelled"):
        async with FlakyStorage(within, {1: Fault()}).open_sink("a") as sink:
            with pytest.raises(TransientStorageError):
                await sink.send([b"0123456789"])
    assert [info.key async for info in within.list_objects()] == []


async def test_short_listing_ends_in_error() -> None:
    within = MemoryStorage()
    for key in "abcd":
        await within.put(key, b"x")
    found = []
    with pytest.raises(TransientStorageError, match="cut short"):
        async for info in FlakyStorage(within, {0: Fault("short")}).list_objects():
            found.append(info.key)
    assert found == ["a", "b"]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_hanging_operation_can_be_cancelled(when: Any) -> None:
    within = MemoryStorage()
    storage = FlakyStorage(within, {2: Fault("hang", when=when)})  # its publication
    with pytest.raises(TimeoutError):
        with anyio.fail_after(3_600):
            await storage.put("a", b"x")
    assert [info.key async for info in within.list_objects()] == ([] if when == "before" else ["a"])


async def failures(seed: int, rate: float) -> list[int]:
    storage = FlakyStorage(MemoryStorage(), seed=seed, rate=rate)
    for n in range(200):
        try:
            await storage.delete(f"{n}")
        except StorageError:
            continue
    return storage.failed


async def test_random_choices_follow_seed() -> None:
    assert await failures(1, 0.2) == await failures(1, 0.2)
    assert await failures(1, 0.2) != await failures(2, 0.2)
    assert 20 <= len(await failures(1, 0.2)) <= 60
    assert set(await failures(1, 0.1)) < set(await failures(1, 0.2)), "one draw an operation, whatever the rate"
    assert await failures(1, 0.0) == []


async def test_bandwidth_is_shared_by_all_operations() -> None:
    storage = SlowStorage(MemoryStorage(chunk_size=1_000), bytes_per_second=1_000)
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(storage.put, f"{n}", bytes(2_000))
    assert anyio.current_time() - began == pytest.approx(10)
    assert len(await storage.get("3")) == 2_000
    assert anyio.current_time() - began == pytest.approx(12)


async def test_wrapping_storages_pass_on_storage_properties() -> None:
    inner = MemoryStorage()
    inner.lists_by_pages = False
    assert not FlakyStorage(inner).lists_by_pages
    assert not SlowStorage(inner).lists_by_pages


async def test_latency_delays_each_operation() -> None:
    storage = SlowStorage(MemoryStorage(), latency=2)
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        for n in range(5):
            group.start_soon(storage.delete, f"{n}")
    assert anyio.current_time() - began == pytest.approx(2)
    await storage.put("a", b"x")  # open_sink, send, publish
    assert anyio.current_time() - began == pytest.approx(8)
