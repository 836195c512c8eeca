"""Damaged cached copies are dropped and fetched again for every reader; damage in the store itself is reported."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import CorruptRecordError
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import FlakyStorage
from tests.storage.cache_kit import RECORDS, damage_all, files, reads, stored

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("index", [True, False])
async def test_damaged_cached_copy_is_fetched_again_with_warning(
    compression: str, index: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = MemoryStorage()
    async with asyncrec.open_sharded_writer(
        "pages", max_shard_records=100, compression=compression, storage=inner, index=index
    ) as writer:
        await writer.write_many(RECORDS)
    storage = FlakyStorage(inner)
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
    assert reads(storage) == 4
    for skips in (True, False):
        damage_all(tmp_path)
        caplog.clear()
        async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
            if skips:
                async with dataset.shuffled(on_corrupt="skip") as stream:
                    assert sorted([record async for record in stream]) == RECORDS
                assert stream.damage == []
            else:
                assert await dataset.get_many(range(400)) == RECORDS
            assert reads(storage) == 4
        said = [record.getMessage() for record in caplog.records if "is damaged" in record.getMessage()]
        assert len(said) == 4
        assert all(str(path) in " ".join(said) for path in files(tmp_path))


async def test_copy_also_damaged_in_store_is_not_refetched(tmp_path: Path) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", max_shard_records=100, storage=storage) as writer:
        await writer.write_many(RECORDS)
    (shard,) = [info.key async for info in storage.list_objects("pages-") if "000002" in info.key]
    data = bytearray(await storage.get(shard))
    data[250] ^= 1
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    await storage.put(shard, data)
    damaged = replace(
        manifest, shards=tuple(replace(each, crc32c=None) if each.path == shard else each for each in manifest.shards)
    )
    flaky = FlakyStorage(storage)
    async with asyncrec.open_dataset(damaged, storage=flaky, cache=tmp_path) as dataset:
        whole = [*range(200), *range(300, 400)]
        await dataset.get_many(whole)  # first, because the error below would cancel pending fetches
        for _ in range(3):
            with pytest.raises(CorruptRecordError, match="pages-"):
                await dataset.get_many(range(400))
    assert reads(flaky) == 4


async def test_concurrent_readers_of_damaged_copy_all_get_records(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        await dataset.get_many(range(400))
    damage_all(tmp_path)
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        found: list[list[bytes]] = []

        async def get() -> None:
            found.append(await dataset.get_many(range(400)))

        async with anyio.create_task_group() as tasks:
            for _ in range(10):
                tasks.start_soon(get)
    assert found == [RECORDS] * 10


async def test_cache_file_vanishing_at_opening_is_recreated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another task drops the file as damaged at that moment."""
    storage, system_open = await stored(), os.open
    gone: list[Any] = []

    def once(path: Any, flags: int, *args: Any, **options: Any) -> int:
        fd = system_open(path, flags, *args, **options)
        if not gone and flags & os.O_CREAT and str(path).endswith(".partial"):
            gone.append(path)
            os.unlink(path)
        return fd

    monkeypatch.setattr(os, "open", once)
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
    assert len(gone) == 1


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_reader_and_stream_refetch_damaged_copies(tmp_path: Path, compression: str) -> None:
    inner = MemoryStorage()
    async with asyncrec.open_sharded_writer(
        "pages", max_shard_records=100, compression=compression, storage=inner
    ) as writer:
        await writer.write_many(RECORDS)
    paths = await asyncrec.list_shards("pages", storage=inner)
    storage = FlakyStorage(inner)

    async def read() -> list[bytes]:
        async with asyncrec.interleave(paths, cycle_length=1, storage=storage, cache=tmp_path) as stream:
            found = [record async for record in stream]
        async with asyncrec.open_reader(paths[0], storage=storage, cache=tmp_path) as reader:
            assert [record async for record in reader] == RECORDS[:100]
        return found

    assert await read() == RECORDS
    assert reads(storage) == 4
    damage_all(tmp_path)
    assert await read() == RECORDS
    assert reads(storage) == 4
    assert await read() == RECORDS
    assert reads(storage) == 0
