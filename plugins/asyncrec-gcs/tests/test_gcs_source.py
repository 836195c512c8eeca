"""Reading and listing under faults."""

from __future__ import annotations

import anyio
import pytest
from fake_gcs import UNIT, FakeGcs, Fault, nth
from opening import open_quick

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage.chunks import ResumingSource
from asyncrec.testing.checks import content, receive_all

pytestmark = pytest.mark.anyio

DATA = content(5 * UNIT + 77)


async def test_each_receive_is_one_request_of_one_generation(gcs: FakeGcs) -> None:
    found = gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key", start=10, end=UNIT + 10) as source:
        assert source.info.etag == str(found.generation)
        assert await receive_all(source, UNIT // 2) == DATA[10 : UNIT + 10]
    assert gcs.log == ["meta", "read", "read"]
    assert [headers["Range"] for headers in gcs.seen[1:]] == [
        f"bytes=10-{UNIT // 2 + 9}",
        f"bytes={UNIT // 2 + 10}-{UNIT + 9}",
    ]


async def test_a_thousand_idle_sources_hold_no_connection(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage:
        sources = [storage.open_source("key", start=n) for n in range(1_000)]
        async with anyio.create_task_group() as group:
            for opening in sources:
                group.start_soon(opening.__aenter__)
        gcs.wait_until_idle()
        limiter = anyio.CapacityLimiter(8)
        for opening in sources[:50]:
            async with limiter:
                await opening.receive(10)  # type: ignore[attr-defined]  # it is its own context
        gcs.wait_until_idle()
        for opening in sources:
            await opening.__aexit__(None, None, None)


@pytest.mark.parametrize("how", ["status", "status-after", "reset", "reset-after", "truncate"])
async def test_a_fault_while_receiving_is_transient_and_moves_nothing(gcs: FakeGcs, how: str) -> None:
    """The core goes on from where it is; nothing is repeated below it."""
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key") as source:
        first = await source.receive(1_000)
        gcs.plan = lambda kind, n: Fault(how)  # aiohttp repeats a GET whose connection broke, once
        with pytest.raises(TransientStorageError, match="gs://bucket/key"):
            await source.receive(UNIT)
        gcs.plan = lambda kind, n: None
        assert first + await receive_all(source) == DATA


@pytest.mark.parametrize("how", ["status", "status-after", "reset", "reset-after", "truncate"])
async def test_any_request_of_reading_listing_and_deleting_may_fail_once(gcs: FakeGcs, how: str) -> None:
    for k in range(1, 12):
        gcs.reset()
        gcs.page_size = 2
        for n in range(5):
            gcs.put(f"k/{n}", DATA)
        gcs.plan = nth(k, Fault(how))
        async with open_quick() as storage:
            assert [info.key async for info in storage.list_objects("k/")] == [f"k/{n}" for n in range(5)]
            assert (await storage.head("k/0")).size == len(DATA)
            async with ResumingSource(storage, "k/1", read_ahead=4 * UNIT) as source:
                assert await receive_all(source) == DATA
            await storage.delete("k/2")
        assert ("bucket", "k/2") not in gcs.objects


async def test_what_the_store_asks_to_wait_is_told(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key") as source:
        gcs.plan = lambda kind, n: Fault("status", 429, {"Retry-After": "7"})
        with pytest.raises(TransientStorageError) as raised:
            await source.receive(10)
    assert raised.value.retry_after == 7.0


async def test_an_object_that_vanished_or_shrank_has_changed(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key") as source:
        gcs.objects.clear()
        with pytest.raises(ObjectChangedError):
            await source.receive(10)
        gcs.plan = lambda kind, n: Fault("status", 416)
        with pytest.raises(ObjectChangedError):
            await source.receive(10)


async def test_a_missing_bucket_is_no_empty_one(gcs: FakeGcs) -> None:
    async with open_quick("gs://missing") as storage:
        with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
            [info async for info in storage.list_objects()]
        with pytest.raises(ObjectNotFoundError):
            await storage.head("key")
        await storage.delete("key")


async def test_an_answer_that_is_none_is_a_storage_error(gcs: FakeGcs) -> None:
    """A proxy's page with status 200, say."""
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key") as source:
        gcs.plan = lambda kind, n: Fault("page")
        with pytest.raises(StorageError, match="no JSON"):
            await storage.head("key")
        with pytest.raises(StorageError, match="no JSON"):
            [info async for info in storage.list_objects()]
        with pytest.raises(StorageError, match="instead"):
            await source.receive(UNIT)
        with pytest.raises(StorageError, match="without saying where"):
            async with storage.open_sink("other"):
                raise AssertionError("opened")


async def test_cancelled_while_receiving_no_request_is_left(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key") as source:
        gcs.plan = nth(1, Fault("stall"), "read")
        async with anyio.create_task_group() as group:

            async def cancel_when_reached() -> None:
                await anyio.to_thread.run_sync(gcs.reached.wait)
                group.cancel_scope.cancel()

            group.start_soon(cancel_when_reached)
            await source.receive(UNIT)
        await anyio.to_thread.run_sync(gcs.wait_until_idle)
        assert await receive_all(source) == DATA


@pytest.mark.parametrize("how", ["status", "status-after", "reset-after", "truncate"])
async def test_getting_a_whole_object_gets_over_a_fault(gcs: FakeGcs, how: str) -> None:
    """At either of its two requests: manifests are read so."""
    gcs.put("key", DATA)
    async with open_quick() as storage:
        for kind in ("meta", "read"):
            gcs.plan = nth(1, Fault(how), kind)
            assert await storage.get("key") == DATA
