"""The parts, connections and attempts of a storage are limited, and every wait ends."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from asyncrec_s3.storage import S3Storage
from s3_opening import Open, until

from asyncrec.errors import TransientStorageError
from asyncrec.storage.http import PartSlots

pytestmark = pytest.mark.anyio

CHUNK = 5 << 20


async def test_attempt_sends_exactly_one_request(open_storage: Open, proxy: Any) -> None:
    """The SDK does not retry; the core's back-off is the only one."""
    proxy.plan = lambda request: "500"
    async with open_storage() as storage:
        with pytest.raises(TransientStorageError, match="looking"):
            await storage.shared.bucket.call("head_object", "looking", Key="x")
        with pytest.raises(TransientStorageError, match="putting"):
            await storage.shared.bucket.call("put_object", "putting", Key="x", Body=b"x")
    assert proxy.operations() == ["HeadObject", "PutObject"]


async def test_writer_waits_while_store_accepts_no_parts(open_storage: Open, proxy: Any) -> None:
    """While the store accepts nothing, the writer waits with four parts in flight, and does not copy a fifth."""
    taken = 0
    proxy.plan = lambda request: "hold" if request.operation == "UploadPart" else None

    async def write(storage: S3Storage, key: str) -> None:
        nonlocal taken
        async with storage.open_sink(key) as sink:
            for _ in range(4):
                await sink.send([bytes(CHUNK)])
                taken += 1

    async with open_storage() as storage:
        async with anyio.create_task_group() as group:
            group.start_soon(write, storage, "x")
            group.start_soon(write, storage, "y")
            await until(lambda: proxy.operations().count("UploadPart") == 4)
            await until(lambda: storage.shared.slots.waiting)
            assert taken == 4
            proxy.release()
        assert taken == 8


async def test_short_objects_do_not_wait_for_each_other(open_storage: Open) -> None:
    """A task may have more open sinks than there are slots, each with all its data, and close them in any order."""
    async with open_storage(max_concurrency=1) as storage:
        sinks = [storage.open_sink(f"{n}") for n in range(5)]
        opened = [await sink.__aenter__() for sink in sinks]
        for sink in opened:
            await sink.send([b"short"])
        for sink in sinks:
            await sink.__aexit__(None, None, None)
        assert [info.key async for info in storage.list_objects()] == ["0", "1", "2", "3", "4"]


async def test_larger_parts_occupy_more_slots() -> None:
    """A part takes as many slots as it has chunks, and a very long part takes all slots. Cancellation loses no slot."""
    slots = PartSlots(4, 10)
    assert [slots.of(size) for size in (1, 10, 11, 40, 400)] == [1, 1, 2, 4, 4]
    await slots.acquire(3)
    with anyio.move_on_after(0):
        await slots.acquire(2)
    slots.release(3)
    with anyio.fail_after(1):
        await slots.acquire(4)


async def test_idle_sources_hold_no_connection(open_storage: Open, proxy: Any, store: Any, prefix: str) -> None:
    """A hundred sources that have begun reading are idle, with five connections."""
    store.put(f"{prefix}/x", bytes(100))
    async with open_storage(max_connections=5) as storage:
        sources = [storage.open_source("x") for _ in range(100)]
        opened = [await source.__aenter__() for source in sources]
        for source in opened:
            assert await source.receive(50) == bytes(50)
        assert proxy.in_flight == 0
        assert proxy.connections <= 5
        for source in opened:
            assert await source.receive(51) == bytes(50)
        for source in sources:
            await source.__aexit__(None, None, None)
