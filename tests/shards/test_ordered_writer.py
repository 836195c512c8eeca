"""Records are written in order to shards of known sizes, one shard at a time, and committed together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import anyio.from_thread
import pytest

from asyncrec._framing.compression import parse_compression
from asyncrec._records.index import parse_index
from asyncrec._records.reading.reader import read_records
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import load_manifest
from asyncrec._shards.writing.ordered_writer import BlockingBatches, Limits, shard_boundaries, write_ordered
from asyncrec.errors import ConflictError, DatasetError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


def records(count: int) -> list[bytes]:
    return [b"record %d" % i for i in range(count)]


async def write(
    storage: Storage, batches: Iterator[list[bytes]], *, count: int, num_shards: int, compression: str = ""
) -> list[ShardEntry]:
    return await write_ordered(
        storage,
        "train",
        BlockingBatches(batches),
        limits=Limits(num_shards=num_shards, records=count),
        compression=parse_compression(compression),
        schema=None,
        metadata={},
        mode="replace",
    )


@pytest.mark.parametrize("batch", [1, 7, 1000, 5000])
async def test_shards_contain_assigned_records_for_any_batch_size(batch: int) -> None:
    expected = records(3001)
    storage = MemoryStorage()
    batches = iter([expected[start : start + batch] for start in range(0, 3001, batch)])
    entries = await write(storage, batches, count=3001, num_shards=4)
    bounds = shard_boundaries(3001, 4)
    for i, entry in enumerate(entries):
        assert await read_records(entry.path, storage=storage) == expected[bounds[i] : bounds[i + 1]]
        assert entry.index is not None
        assert len(parse_index(await storage.get(entry.index.path))) == entry.records
        assert entry.bytes == (await storage.head(entry.path)).size


async def test_extra_shards_are_empty_with_too_few_records() -> None:
    storage = MemoryStorage()
    entries = await write(storage, iter([records(3)]), count=3, num_shards=5, compression="GZIP")
    assert sum(entry.records for entry in entries) == 3
    assert [len(await read_records(entry.path, storage=storage)) for entry in entries] == [
        entry.records for entry in entries
    ]


async def test_ordered_writer_opens_one_shard_at_a_time(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    most = 0

    def watched() -> Iterator[list[bytes]]:
        nonlocal most
        for record in records(300):
            yield [record]
            most = max(most, len(os.listdir("/proc/self/fd")))

    entries = await write(LocalStorage(tmp_path), watched(), count=300, num_shards=150)
    assert len(entries) == 150
    assert most - before <= 4


async def test_replacement_uses_new_names_and_deletes_old_shards() -> None:
    """No object is overwritten, whatever the old and new numbers of shards are."""
    storage = MemoryStorage()
    before: set[str] = set()
    for count, num_shards in ((10, 3), (20, 3), (5, 2)):
        entries = await write(storage, iter([records(count)]), count=count, num_shards=num_shards)
        now = {key for entry in entries for key in entry.objects}
        assert not now & before
        there = {info.key async for info in storage.list_objects("")}
        assert {key for key in there if not key.startswith("_manifest/")} == now
        manifest = await load_manifest(storage, "train", path="train")
        assert manifest is not None
        assert manifest.shards == tuple(entries)
        assert manifest.records == count
        before |= now


async def test_concurrent_replacement_raises_conflict_and_leaves_winner_intact() -> None:
    storage = MemoryStorage()

    def with_another() -> Iterator[list[bytes]]:
        anyio.from_thread.run(partial(write, storage, iter([records(20)]), count=20, num_shards=2))
        yield records(10)

    await write(storage, iter([records(5)]), count=5, num_shards=2)
    with pytest.raises(ConflictError):
        await write(storage, with_another(), count=10, num_shards=2)
    manifest = await load_manifest(storage, "train", path="train")
    assert manifest is not None
    found = [record for entry in manifest.shards for record in await read_records(entry.path, storage=storage)]
    assert found == records(20)
    there = {info.key async for info in storage.list_objects("")}
    assert {key for key in there if not key.startswith("_manifest/")} == {
        key for entry in manifest.shards for key in entry.objects
    }


@pytest.mark.parametrize("there", [9, 11])
async def test_wrong_announced_record_count_fails_without_changes(there: int) -> None:
    """Otherwise records beyond the last shard would be dropped silently."""
    storage = MemoryStorage()
    await write(storage, iter([records(5)]), count=5, num_shards=2)
    before = await data_objects(storage)
    with pytest.raises(DatasetError, match="10 records were announced"):
        await write(storage, iter([records(there)]), count=10, num_shards=3)
    assert await data_objects(storage) == before
    manifest = await load_manifest(storage, "train", path="train")
    assert manifest is not None
    assert manifest.records == 5


async def data_objects(storage: Storage) -> list[str]:
    return [info.key async for info in storage.list_objects("") if not info.key.startswith("_manifest/")]
