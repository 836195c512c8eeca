"""A writer makes a checkpoint automatically if many segments are not covered by one; a reader never does."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from itertools import count
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import StoragePermissionError, TransientStorageError
from asyncrec.storage import Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage

from .manifest_store import Store, Writer

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

# A writer checks for uncovered segments within a minute.
SOON = 61.0


async def commit(storage: Storage, count: int, **options: Any) -> None:
    """Let one writer make ``count`` commits; each segment exists until a checkpoint has covered it for an hour."""
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1, **options) as writer:
        for number in range(count):
            await writer.write(b"%d" % number, key=b"%d" % number)
            await writer.commit()


async def checkpoints(storage: Storage) -> list[str]:
    return [
        info.key async for info in storage.list_objects("_manifest/pages/~checkpoint-") if info.key.endswith("json")
    ]


def manifests_read(store: Store) -> list[str]:
    """Return the segments and checkpoints that were read, except the beginnings of logs, which liveness checks read."""
    read = [key for what, key in store.asked if what in ("get", "open") and key.startswith("_manifest/")]
    return [key for key in read if not key.endswith("-000000.jsonl")]


async def records(storage: Storage) -> list[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return sorted([record async for record in dataset])


async def test_writer_finding_many_segments_merges_them_soon() -> None:
    storage = MemoryStorage()
    await commit(storage, 120)
    before = await records(storage)
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        assert await checkpoints(storage) == []
        await anyio.sleep(SOON)
        assert await checkpoints(storage) == ["_manifest/pages/~checkpoint-000001.json"]
        await writer.write(b"one more")
    assert await records(storage) == sorted([*before, b"one more"])
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key(b"17") == b"17"
    assert (await tools.verify("pages", storage=storage)).orphans == []


async def test_writer_finding_few_segments_merges_nothing() -> None:
    storage = MemoryStorage()
    await commit(storage, 90)
    async with asyncrec.open_sharded_writer("pages", storage=storage):
        await anyio.sleep(10 * SOON)
    assert await checkpoints(storage) == []


@pytest.mark.parametrize("options", [{"num_shards": 2, "mode": "replace"}, {"mode": "replace"}], ids=str)
async def test_writer_with_one_commit_merges_nothing(options: dict[str, Any]) -> None:
    storage = MemoryStorage()
    await commit(storage, 120)
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options):
        await anyio.sleep(SOON)
    assert await checkpoints(storage) == []


async def test_reader_merges_nothing() -> None:
    storage = MemoryStorage()
    await commit(storage, 120)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await dataset.get(3)
        await anyio.sleep(SOON)
    assert await checkpoints(storage) == []


async def test_concurrent_writers_make_few_checkpoint_attempts() -> None:
    storage = FlakyStorage(MemoryStorage())
    await commit(storage, 120)
    storage.operations.clear()
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            async with asyncrec.open_sharded_writer("pages", storage=storage):
                await anyio.sleep(SOON)

        for _ in range(30):
            tasks.start_soon(write)
    assert await checkpoints(storage) == ["_manifest/pages/~checkpoint-000001.json"]
    made = [key for operation, key in storage.operations if operation == "publish" and "~checkpoint-" in key]
    assert 2 <= len(made) < 15  # the checkpoint's data and the pointer to it; more if some check at once


async def test_writers_finding_few_segments_read_no_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten writers commit many times at once; merging the segments is left to the next writer that opens."""
    monkeypatch.setattr("secrets.randbelow", lambda most: most - 1)  # no commit is followed by a check
    store = Store()
    await commit(store, 5)
    opened = anyio.Semaphore(0)
    begin = anyio.Event()
    async with anyio.create_task_group() as tasks:

        async def write() -> None:
            async with asyncrec.open_sharded_writer("pages", storage=store, max_shard_records=1) as writer:
                opened.release()
                await begin.wait()
                for _ in range(30):
                    await writer.write(b"one more")
                    await writer.commit()
                await anyio.sleep(2 * SOON)
                assert manifests_read(store) == []

        for _ in range(10):
            tasks.start_soon(write)
        for _ in range(10):
            await opened.acquire()
        store.asked.clear()
        begin.set()
    assert await checkpoints(store) == []


async def test_new_checkpoint_costs_other_writers_one_listing_each(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = count(1)
    monkeypatch.setattr("secrets.randbelow", lambda most: next(moments) % most)
    store = Store()
    await commit(store, 120)
    async with AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(asyncrec.open_sharded_writer("pages", storage=store))
        await anyio.sleep(SOON)
        made = store.asked.index(("put", "_manifest/pages/~checkpoint-000001.json"))
        del store.asked[:made]
        assert store.asked.count(("list", "_manifest/pages/")) >= 9
        assert set(manifests_read(store)) <= {"_manifest/pages/~latest.json"}  # read by the checkpoint's maker
    assert await checkpoints(store) == ["_manifest/pages/~checkpoint-000001.json"]


async def test_writer_of_many_shards_merges_repeatedly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec._shards.writing.checkpoints.SHARDS_FOR_A_LOOK", 100)
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=1) as writer:
        for _ in range(3):
            for number in range(110):
                await writer.write(b"%d" % number)
            await writer.commit()
            await anyio.sleep(2 * SOON)
        assert len(await checkpoints(storage)) >= 3
    assert len(await records(storage)) == 330


async def test_old_covered_segments_are_deleted_in_thousands() -> None:
    store = Store()
    writer = Writer(store, "a")
    for _ in range(1200):
        await writer.commit()
    for hours, left in ((0, 1200), (2, 1400 - 1000), (4, 1600 - 1400)):
        store.now += timedelta(hours=hours)
        async with asyncrec.open_sharded_writer("pages", storage=store, writer_id=f"w{hours}"):
            await anyio.sleep(SOON)
        segments = [info.key async for info in store.list_objects("_manifest/pages/a-")]
        assert len(segments) == left
        for _ in range(200):
            await writer.commit()


@pytest.mark.parametrize("error", [TransientStorageError, StoragePermissionError])
async def test_failed_checkpoint_does_not_fail_writer(error: type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            if operation == "publish" and "~checkpoint-" in key:
                raise error("refused, as asked")
            return await call()

    inner = MemoryStorage()
    await commit(inner, 120)
    with caplog.at_level("INFO"):
        async with asyncrec.open_sharded_writer("pages", storage=Refusing(inner)) as writer:
            await anyio.sleep(20 * SOON)
            await writer.write(b"stored all the same")
    assert "no checkpoint was made" in caplog.text
    assert await checkpoints(inner) == []
    assert b"stored all the same" in await records(inner)


@pytest.mark.parametrize("end", [".jsonl.gz", ".json"])
async def test_exit_does_not_wait_for_checkpoint(end: str) -> None:
    reached = anyio.Event()

    class Hanging(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            if operation == "publish" and "~checkpoint-" in key and key.endswith(end):
                reached.set()
                await anyio.sleep_forever()
            return await call()

    inner = MemoryStorage()
    await commit(inner, 120)
    async with asyncrec.open_sharded_writer("pages", storage=Hanging(inner)) as writer:
        await writer.write(b"stored")
        await reached.wait()
        begun = anyio.current_time()
    assert anyio.current_time() - begun < 1
    assert b"stored" in await records(inner)
    left = [info.key async for info in inner.list_objects("_manifest/pages/~")]
    # A checkpoint whose number may still be claimed stays until a later compaction claims the number or finds it taken.
    assert [key.rpartition(".")[2] for key in left] == ([] if end == ".jsonl.gz" else ["gz", "run"])
