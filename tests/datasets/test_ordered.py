"""Records in order into shards of known sizes: one at a time, committed together."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from asyncrec.datasets.ordered import Replaced, write_shards
from asyncrec.framing.compression import parse_compression
from asyncrec.records.index import parse_index
from asyncrec.records.reader import read_records
from asyncrec.shards.segment import ShardEntry
from asyncrec.shards.sizing import shard_boundaries
from asyncrec.shards.snapshot import load_manifest
from asyncrec.storage.base import Storage
from asyncrec.storage.local import LocalStorage
from asyncrec.storage.memory import MemoryStorage

pytestmark = pytest.mark.anyio


def records(count: int) -> list[bytes]:
    return [b"record %d" % i for i in range(count)]


async def write(
    storage: Storage, batches: Iterator[list[bytes]], *, count: int, num_shards: int, compression: str = ""
) -> tuple[list[ShardEntry], list[str]]:
    manifest = await load_manifest(storage, "train", path="train")
    return await write_shards(
        storage,
        "train",
        batches,
        records=count,
        num_shards=num_shards,
        compression=parse_compression(compression),
        schema=None,
        metadata={},
        before=Replaced(manifest, [entry.path for entry in manifest.shards] if manifest else []),
    )


@pytest.mark.parametrize("batch", [1, 7, 1000, 5000])
async def test_each_shard_has_its_records_however_they_come(batch: int) -> None:
    expected = records(3001)
    storage = MemoryStorage()
    batches = iter([expected[start : start + batch] for start in range(0, 3001, batch)])
    entries, stale = await write(storage, batches, count=3001, num_shards=4)
    assert stale == []
    bounds = shard_boundaries(3001, 4)
    for i, entry in enumerate(entries):
        assert await read_records(entry.path, storage=storage) == expected[bounds[i] : bounds[i + 1]]
        assert entry.index is not None
        assert len(parse_index(await storage.get(entry.index.path))) == entry.records
        assert entry.bytes == (await storage.head(entry.path)).size


async def test_more_shards_than_records_leave_some_empty() -> None:
    storage = MemoryStorage()
    entries, _ = await write(storage, iter([records(3)]), count=3, num_shards=5, compression="GZIP")
    assert sum(entry.records for entry in entries) == 3
    assert [len(await read_records(entry.path, storage=storage)) for entry in entries] == [
        entry.records for entry in entries
    ]


async def test_however_many_shards_only_one_is_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    most = 0

    def watched() -> Iterator[list[bytes]]:
        nonlocal most
        for record in records(300):
            yield [record]
            most = max(most, len(os.listdir("/proc/self/fd")))

    entries, _ = await write(LocalStorage(tmp_path), watched(), count=300, num_shards=150)
    assert len(entries) == 150
    assert most - before <= 4


async def test_shards_of_the_same_names_are_replaced_and_others_told_to_be_stale() -> None:
    storage = MemoryStorage()
    await write(storage, iter([records(10)]), count=10, num_shards=3)
    old, _ = await write(storage, iter([records(20)]), count=20, num_shards=3)
    manifest = await load_manifest(storage, "train", path="train")
    assert manifest is not None
    assert manifest.records == 20
    _, stale = await write(storage, iter([records(5)]), count=5, num_shards=2)
    manifest = await load_manifest(storage, "train", path="train")
    assert manifest is not None
    assert manifest.records == 5
    assert sorted(stale) == sorted([key for entry in old for key in (entry.path, entry.index) if key])
