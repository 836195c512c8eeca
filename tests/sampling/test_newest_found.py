"""Newest versions are found with few requests, only once, past damage on request, and without leftovers."""

from __future__ import annotations

import json
import tempfile
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import CorruptRecordError, StorageError
from asyncrec.storage import ByteSource, MemoryStorage
from asyncrec.testing import cancel_at_checkpoint

from .versioned import Page, Site, number_of

pytestmark = pytest.mark.anyio


class Far(MemoryStorage):
    """A remote store that records which objects are read."""

    read_ahead = 8 << 20

    def __init__(self) -> None:
        super().__init__(chunk_size=1 << 20)
        self.asked: list[str] = []

    def open_source(self, key: str, **options: Any) -> AbstractAsyncContextManager[ByteSource]:
        self.asked.append(key)
        return super().open_source(key, **options)


async def crawled(storage: MemoryStorage, *, compact: bool) -> Site:
    """Write 3,000 pages to 30 shards, and newer versions of five adjacent ones."""
    site = Site(storage)
    await site.commit([Page(f"k{n}", 1) for n in range(3000)], "b", per_shard=100)
    await site.commit([Page(f"k{n}", 2) for n in range(1010, 1015)], "a", per_shard=100)
    if compact:
        await site.compact()
    return site


async def test_newest_search_requests_only_repeated_keys_and_records() -> None:
    storage = Far()
    site = await crawled(storage, compact=True)
    storage.asked.clear()
    async with asyncrec.open_dataset("pages", storage=storage, newest="date") as dataset:
        opened = len(storage.asked)
        async with dataset.shuffled():
            asked = storage.asked[opened:]
        assert not [key for key in asked if key.endswith(".keys")]
        assert len([key for key in asked if key.endswith(".run")]) == 2, "its tail, and the rest"
        assert sorted(key.rpartition(".")[2] for key in asked if ".tfrecord" in key) == [
            "index", "index", "tfrecord", "tfrecord"
        ]  # fmt: skip
        assert len(asked) == 6
        async with dataset.shuffled() as stream:
            assert storage.asked[opened:] == asked, "it is found once"
            assert {number_of(record) async for record in stream} == site.newest()


async def test_newest_search_requests_keys_per_shard_without_runs() -> None:
    storage = Far()
    site = await crawled(storage, compact=False)
    async with asyncrec.open_dataset("pages", storage=storage, newest="date") as dataset:
        storage.asked.clear()
        async with dataset.shuffled():
            assert len([key for key in storage.asked if key.endswith(".keys")]) == 31
            assert len(storage.asked) == 31 + 4
        assert {number_of(record) async for record in dataset} == site.newest()


async def test_lookup_reads_only_versions_of_its_key() -> None:
    storage = Far()
    await crawled(storage, compact=True)
    async with asyncrec.open_dataset("pages", storage=storage, newest="date") as dataset:
        storage.asked.clear()
        assert number_of(await dataset.get_by_key("k1012")) == 3002
        assert len(storage.asked) == 6, "the run's tail, a block, two indexes, two records"
        storage.asked.clear()
        assert number_of(await dataset.get_by_key("k7")) == 7
        assert len(storage.asked) == 3, "a block, an index, a record"


@pytest.mark.parametrize("compact", [False, True])
async def test_damaged_key_run_does_not_change_results(compact: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds even if some keys were already returned before the damage was reached."""
    monkeypatch.setattr("asyncrec._shards.manifest.key_runs._STEP_BLOCKS", 1)
    storage = Far()
    site = await crawled(storage, compact=True)
    [run] = [info.key async for info in storage.list_objects("_manifest/pages/~keys-")]
    content = bytearray(await storage.get(run))
    content[len(content) // 2] ^= 1
    await storage.put(run, bytes(content))
    if compact:
        await site.compact()
    async with asyncrec.open_dataset("pages", storage=storage, newest="date") as dataset:
        assert {number_of(record) async for record in dataset} == site.newest()


@pytest.mark.parametrize("dates", [[None] * 8, [3, 5, None, 5, 5, 4, 5, 1], [7, 1, 1, 1, 1, 1, 1, 1]])
async def test_versions_are_compared_across_read_steps(
    dates: list[int | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrec._sampling.random_access.in_order._STEP_RECORDS", 3)
    site = Site(MemoryStorage())
    await site.commit([Page("a", date) for date in dates] + [Page("b", 1)], "w", per_shard=100)
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        assert number_of(await dataset.get_by_key("a")) == site.dated("a")[-1]
        assert [number_of(record) for record in await dataset.history("a")] == site.dated("a")


async def test_concurrent_tasks_find_newest_records_once() -> None:
    storage = Far()
    site = await crawled(storage, compact=True)
    found: list[set[int]] = []
    async with asyncrec.open_dataset("pages", storage=storage, newest="date") as dataset:

        async def read() -> None:
            async with dataset.shuffled() as stream:
                found.append({number_of(record) async for record in stream})

        storage.asked.clear()
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(read)
        assert len([key for key in storage.asked if key.endswith(".run")]) == 2
    assert found == [site.newest()] * 3


async def damaged(storage: MemoryStorage, number: int) -> str:
    """Change a byte in the data of the record with this number; return its shard."""
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        place = await dataset.locate(number)
    shard = place.path.removeprefix(storage.root).lstrip("/")
    content = bytearray(await storage.get(shard))
    content[place.offset + 14] ^= 1
    await storage.put(shard, bytes(content))
    return shard


async def test_damaged_version_raises_or_counts_as_oldest() -> None:
    site = Site(MemoryStorage())
    await site.commit([Page("a", 1), Page("b", 1), Page("c", 5)], "0")
    await site.commit([Page("a", 2), Page("b", 2)], "1")
    shard = await damaged(site.storage, 3)  # type: ignore[arg-type]
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        with pytest.raises(CorruptRecordError):
            async with dataset.shuffled():
                pass
        with pytest.raises(CorruptRecordError):
            await dataset.get_by_key("a")
        for _ in range(2):
            async with dataset.shuffled(on_corrupt="skip") as stream:
                assert {number_of(record) async for record in stream} == {0, 2, 4}
                assert [each.path.rpartition("/")[2] for each in stream.damage] == [shard]
        with pytest.raises(CorruptRecordError):
            async with dataset.shuffled():
                pass


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make tables go to temporary files at once, and return the folder of these files."""
    monkeypatch.setattr("asyncrec._sampling.random_access.newest._MEMORY", 1000)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def again_and_again() -> Site:
    site = Site(MemoryStorage())
    for turn in range(3):
        await site.commit([Page(f"k{n % 70}", (n * turn) % 9) for n in range(100)], "zyx"[turn], per_shard=30)
    return site


async def test_temporary_tables_are_removed_after_use(little_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = await again_and_again()
    made = []
    temporary = tempfile.TemporaryDirectory

    def counted(**options: Any) -> tempfile.TemporaryDirectory[str]:
        made.append(options)
        return temporary(**options)

    monkeypatch.setattr(tempfile, "TemporaryDirectory", counted)
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        assert {number_of(record) async for record in dataset} == site.newest()
    assert len(made) == 3, "all tables went to files"
    assert list(little_memory.iterdir()) == []


async def test_cancelled_search_leaves_no_files_and_can_be_repeated(little_memory: Path) -> None:
    site = await again_and_again()

    async def entered() -> None:
        async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
            async with dataset.shuffled():
                pass

    at = 1
    while await cancel_at_checkpoint(entered, at):
        assert list(little_memory.iterdir()) == []
        at += 1 + at // 7
    assert at > 100
    async with asyncrec.open_dataset("pages", storage=site.storage, newest="date") as dataset:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await dataset.get_by_key("k1")
        with anyio.CancelScope() as scope:
            scope.cancel()
            async with dataset.shuffled():
                pass
        assert {number_of(record) async for record in dataset} == site.newest()


async def test_failing_store_leaves_no_temporary_files(little_memory: Path) -> None:
    site = await again_and_again()

    class Failing(MemoryStorage):
        left = 0

        def open_source(self, key: str, **options: Any) -> AbstractAsyncContextManager[ByteSource]:
            self.left -= 1
            if self.left < 0:
                raise StorageError("the store is down")
            return super().open_source(key, **options)

    failing = Failing()
    async for info in site.storage.list_objects(""):
        await failing.put(info.key, await site.storage.get(info.key))
    failing.left = 1 << 20
    async with asyncrec.open_dataset("pages", storage=failing, newest="date") as dataset:
        for allowed in range(0, 12, 3):
            failing.left = allowed
            with pytest.raises(StorageError, match="down"):
                async with dataset.shuffled():
                    pass
            assert list(little_memory.iterdir()) == []
        failing.left = 1 << 20
        assert {number_of(record) async for record in dataset} == site.newest()


@pytest.mark.parametrize("mode", ["block", "buffer", "global"])
async def test_damage_to_newest_version_refuses_earlier_states(mode: Any, tmp_path: Path) -> None:
    schema = asyncrec.Schema({"key": asyncrec.FixedLen((), "str"), "date": asyncrec.FixedLen((), "int64")})
    async with asyncrec.open_sharded_writer(
        tmp_path / "x", schema=schema, key_feature="key", max_shard_records=100, on_duplicate="write"
    ) as writer:
        for number in range(200):
            await writer.write({"key": f"k{number}", "date": 0})
        await writer.write({"key": "k5", "date": 1})
    options: dict[str, Any] = {"seed": 1, "mode": mode, "on_corrupt": "skip"}

    async def read(state: Any = None, *, early: bool = False) -> tuple[list[list[bytes]], Any]:
        async with asyncrec.open_dataset(tmp_path / "x", newest="date") as dataset:
            stream = dataset.shuffled(**options)
            if early:
                stream.load_state_dict(state)
            async with stream:
                if state is not None and not early:
                    stream.load_state_dict(state)
                batches = stream.batches(10)
                first = [await anext(batches) for _ in range(5)]
                return first, json.loads(json.dumps(stream.state_dict()))

    _, intact = await read()
    following, _ = await read(intact)
    assert await read(intact, early=True) == await read(intact)
    shard = max(tmp_path.glob("*.tfrecord"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:])
    _, damaged = await read()
    await read(damaged)
    for early in (False, True):
        with pytest.raises(ValueError, match="the newest versions are not the same records"):
            await read(intact, early=early)
    shard.write_bytes(whole)
    with pytest.raises(ValueError, match="the newest versions are not the same records"):
        await read(damaged)
    assert (await read(intact))[0] == following
