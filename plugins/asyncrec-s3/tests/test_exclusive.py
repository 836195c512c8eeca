"""`exclusive` on stores that honour conditions of puts and completions, of puts only, or of neither."""

from __future__ import annotations

import random
from typing import Any

import pytest
from s3_opening import Open, opener
from s3_store import CHUNK

import asyncrec
from asyncrec.errors import ObjectExistsError, StorageError, TransientStorageError
from asyncrec.storage._base import ByteSink, ExclusiveParts

pytestmark = pytest.mark.anyio

SMALL = random.Random(1).randbytes(1_000)
LARGE = random.Random(2).randbytes(CHUNK + 1_000)
OTHER = random.Random(3).randbytes(CHUNK + 1_000)
CEPH = frozenset({"CompleteMultipartUpload"})
NOTHING = CEPH | {"PutObject"}


@pytest.fixture
def open_storage(store: Any, proxy: Any, prefix: str, small_parts: None) -> Open:
    return opener(store, proxy, prefix, chunk_size=CHUNK)


async def send(sink: ByteSink, data: bytes) -> None:
    view = memoryview(data)
    while view:
        size = sink.chunk_size
        await sink.send([view[:size]])
        view = view[size:]


async def test_first_exclusive_put_is_repeated_to_verify_condition(open_storage: Open, proxy: Any) -> None:
    """If the repeated put fails, the store honours conditions. Other storages reuse this finding."""
    async with open_storage() as storage, open_storage() as other:
        await storage.put("a", SMALL, exclusive=True)
        assert proxy.operations() == ["HeadObject", "PutObject", "PutObject"]
        await other.put("b", SMALL, exclusive=True)
        assert proxy.operations() == ["HeadObject", *["PutObject"] * 3]
        assert await storage.get("a") == await storage.get("b") == SMALL


@pytest.mark.parametrize("ignores", [frozenset(), NOTHING], ids=["honours", "ignores"])
async def test_exclusive_put_keeps_existing_object_on_unknown_store(
    open_storage: Open, proxy: Any, ignores: frozenset[str]
) -> None:
    """The object is found by a look-up, and no put is sent."""
    proxy.ignores = ignores
    async with open_storage() as storage:
        await storage.put("a", SMALL)
        proxy.requests.clear()
        with pytest.raises(ObjectExistsError):
            await storage.put("a", OTHER[:10], exclusive=True)
        assert proxy.operations() == ["HeadObject"]
        assert await storage.get("a") == SMALL


async def test_rejected_put_proves_condition_is_honoured(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """Another writer's object was created between the look-up and the put."""
    proxy.plan = lambda request: store.put(f"{prefix}/a", OTHER) if request.operation == "PutObject" else None
    async with open_storage() as storage:
        with pytest.raises(ObjectExistsError):
            await storage.put("a", SMALL, exclusive=True)
        proxy.reset()
        await storage.put("b", SMALL, exclusive=True)
        assert proxy.operations() == ["PutObject"]
        assert await storage.get("a") == OTHER


async def test_store_ignoring_conditions_is_rejected_for_exclusive_writes(
    open_storage: Open, proxy: Any, store: Any
) -> None:
    """The store's first exclusive object is deleted again, and later exclusive writes are rejected. All else works."""
    proxy.ignores = NOTHING
    async with open_storage() as storage:
        with pytest.raises(StorageError, match=r"/a: the store ignores If-None-Match"):
            await storage.put("a", SMALL, exclusive=True)
        proxy.requests.clear()
        for data in (SMALL, LARGE):
            with pytest.raises(StorageError, match="ignores If-None-Match"):
                await storage.put("b", data, exclusive=True)
        assert proxy.requests == []
        assert [info.key async for info in storage.list_objects()] == []
        await storage.put("c", SMALL)
        assert await storage.get("c") == SMALL


async def test_writer_rejects_store_ignoring_exclusive_condition(open_storage: Open, proxy: Any) -> None:
    """Another process could replace flushed records, which would then be lost."""
    proxy.ignores = NOTHING
    async with open_storage() as storage:
        with pytest.raises(StorageError, match="the store ignores If-None-Match"):
            async with asyncrec.open_sharded_writer("pages", storage=storage, flush_seconds=1):
                pytest.fail("it was opened")
        assert [info.key async for info in storage.list_objects()] == []


async def test_concurrent_deletion_repeats_exclusion_proof(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """Another process deletes the object between the put and the proof, which is tried once more."""

    def plan(request: Any) -> None:
        if request.number == 2:
            store.client.delete_object(Bucket=store.bucket, Key=f"{prefix}/a")

    async with open_storage() as storage:
        proxy.plan = plan
        await storage.put("a", SMALL, exclusive=True)
        await storage.put("b", SMALL, exclusive=True)
    assert proxy.operations() == ["HeadObject", *["PutObject"] * 4]


@pytest.mark.parametrize("fault", ["500", "403", "500-after"])
async def test_accepted_put_survives_failed_proof(
    open_storage: Open, proxy: Any, store: Any, prefix: str, fault: str
) -> None:
    async with open_storage() as storage:
        proxy.plan = lambda request: fault if request.number >= 2 else None
        await storage.put("a", SMALL, exclusive=True)
    assert store.get(f"{prefix}/a") == SMALL


async def test_exclusive_multipart_completed_later_is_rejected(open_storage: Open, proxy: Any) -> None:
    """Otherwise, the store would have replaced the first writer's object."""
    proxy.ignores, proxy.echoes = CEPH, False
    async with open_storage() as storage:
        with pytest.raises(ObjectExistsError):
            async with storage.open_sink("x", exclusive=True) as late:
                await send(late, OTHER)
                async with storage.open_sink("x", exclusive=True) as early:
                    await send(early, LARGE)
        assert await storage.get("x") == LARGE
        assert [info async for info in storage.list_unfinished()] == []


async def test_exclusive_multipart_replaced_at_once_raises_object_exists(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """Another writer also checked, found nothing, and completed its upload just after ours."""
    proxy.ignores, proxy.echoes = CEPH, False

    def plan(request: Any) -> None:
        if request.operation == "HeadObject" and "CompleteMultipartUpload" in proxy.operations():
            store.put(f"{prefix}/x", OTHER)

    async with open_storage() as storage:
        proxy.plan = plan
        with pytest.raises(ObjectExistsError, match="another writer"):
            await storage.put("x", LARGE, exclusive=True)
        assert await storage.get("x") == OTHER


async def test_exclusive_object_replaced_afterwards_counts_as_published(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """On a store that keeps exclusive writers apart, another kind of writer may replace the object."""

    def plan(request: Any) -> None:
        if request.operation == "HeadObject" and "CompleteMultipartUpload" in proxy.operations():
            store.put(f"{prefix}/x", OTHER)

    async with open_storage() as storage:
        assert await storage.excludes_parts("probe")
        proxy.requests.clear()
        proxy.plan = plan
        assert (await storage.put("x", LARGE, exclusive=True)).size == len(LARGE)


@pytest.mark.parametrize(("ignores", "expected"), [(frozenset(), True), (CEPH, False), (NOTHING, False)])
async def test_probe_detects_exclusive_completions_without_leftovers(
    open_storage: Open, proxy: Any, ignores: frozenset[str], expected: bool
) -> None:
    """The probe leaves nothing behind, and its result is reused."""
    proxy.ignores = ignores
    async with open_storage() as storage:
        assert isinstance(storage, ExclusiveParts)
        assert await storage.excludes_parts("probe/it") is expected
        assert [info.key async for info in storage.list_objects()] == []
        assert [info.key async for info in storage.list_unfinished()] == []
        proxy.requests.clear()
        await storage.put("x", LARGE, exclusive=True)
        assert proxy.operations().count("HeadObject") == (2 if expected else 3)


async def test_probe_of_exclusive_completions_survives_lost_response(open_storage: Open, proxy: Any) -> None:
    proxy.ignores = CEPH
    lost: list[int] = []

    def plan(request: Any) -> str | None:
        if request.operation == "CompleteMultipartUpload" and not lost:
            lost.append(request.number)
            return "500-after"
        return None

    proxy.plan = plan
    async with open_storage() as storage:
        assert await storage.excludes_parts("probe") is False
    assert lost


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["put", "upload"])
async def test_exclusive_put_limits_lookups_on_failing_store(open_storage: Open, proxy: Any, data: bytes) -> None:
    """The look-up gives up early: the next request fails and reports the problem anyway."""
    proxy.plan = lambda request: "500"
    async with open_storage() as storage:
        with pytest.raises(TransientStorageError, match="/x"):
            await storage.put("x", data, exclusive=True)
    assert proxy.operations().count("HeadObject") <= 4 + 10  # of the look-up, and of resolving a last request


async def test_preliminary_lookup_gives_up_after_four_attempts(open_storage: Open, proxy: Any) -> None:
    """The condition of the last request decides, so the upload begins anyway."""
    proxy.plan = lambda request: (
        "500" if request.operation == "HeadObject" and "CreateMultipartUpload" not in proxy.operations() else None
    )
    async with open_storage() as storage:
        assert (await storage.put("x", LARGE, exclusive=True)).size == len(LARGE)
    assert proxy.operations()[:5] == ["HeadObject"] * 4 + ["CreateMultipartUpload"]
