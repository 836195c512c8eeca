"""Only valid indexes are trusted; without one, the shard itself is read."""

from __future__ import annotations

import tracemalloc
from typing import Literal

import pytest

import asyncrec
from asyncrec._sampling.random_access import indexes
from asyncrec._sampling.random_access.indexes import read_index
from asyncrec.errors import CorruptRecordError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_indexes_are_trusted_even_for_empty_shards(
    compression: Literal["", "GZIP", "ZLIB"], caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("x", storage=storage, num_shards=3, compression=compression) as writer:
        await writer.write_many([b"record", b"another"])
    manifest = await asyncrec.read_manifest("x", storage=storage)
    found = [await read_index(storage, entry) for entry in manifest.shards]
    assert [index is not None and len(index) for index in found] == [entry.records for entry in manifest.shards]
    assert 0 in [entry.records for entry in manifest.shards]
    assert not caplog.records


async def test_damage_found_without_index_names_shard() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("x", storage=storage, num_shards=1) as writer:
        await writer.write_many([b"record", b"another"])
    (entry,) = (await asyncrec.read_manifest("x", storage=storage)).shards
    assert entry.index is not None
    await storage.delete(entry.index.path)
    content = bytearray(await storage.get(entry.path))
    content[22 + 9] ^= 1  # the checksum of the second record's length
    await storage.put(entry.path, content)
    async with asyncrec.open_dataset("x", storage=storage) as dataset:
        with pytest.raises(CorruptRecordError, match=entry.path):
            await dataset.get(1)


async def test_index_memory_is_that_of_its_sizes() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("x", storage=storage, num_shards=1) as writer:
        await writer.write_many([b"a record"] * 50_000)
    (entry,) = (await asyncrec.read_manifest("x", storage=storage)).shards
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        index = await read_index(storage, entry)
        held = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert index is not None
    assert held < 2.5 * entry.records + 10_000


async def test_index_cache_overflow_is_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "_HELD_BYTES", 1 << 16)
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("x", storage=storage, num_shards=3) as writer:
        await writer.write_many([b""] * 60_000)
    async with asyncrec.open_dataset("x", storage=storage) as dataset:
        await dataset.get_many([0, 1])
        assert not caplog.records
        for _ in range(3):
            await dataset.get_many([0, 20_000, 40_000])
    [line] = caplog.records
    assert vars(line)["kept_bytes"] == 1 << 16
    assert vars(line)["shards"] == 3


async def test_shuffle_skips_empty_gzip_shards() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("x", storage=storage, num_shards=4, compression="GZIP") as writer:
        await writer.write_many([b"a", b"b"])
    async with asyncrec.open_dataset("x", storage=storage) as dataset, dataset.shuffled(seed=1) as stream:
        assert sorted([record async for record in stream]) == [b"a", b"b"]
