"""`reshard` writes the same output for any number of jobs, and whether it copies records or their frames."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest
from tool_data import WatchedDisk, change, data_names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec._native import native
from asyncrec.errors import CorruptRecordError, FormatError, ObjectChangedError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio

JOBS = (1, 2, 4, None)


async def write_source(storage: Storage, compression: str) -> None:
    """Write shards with and without keys, with empty records and one record longer than any block."""
    records = [bytes([number % 251]) * (number * 37 % 5000) for number in range(400)]
    records[170] = bytes(range(256)) * 12_000
    async with asyncrec.open_sharded_writer(
        "from/pages", storage=storage, compression=compression, max_shard_records=150
    ) as writer:
        for number, record in enumerate(records):
            await writer.write(record, key=f"key {number}" if number > 160 else None)


async def written(storage: Storage, name: str) -> list[bytes]:
    """Return the contents of a data set's folder in the order of its shards, without the names, which are random.

    Compressed shards are returned decompressed and without their block index: how many bytes the compressor produces
    for the same records depends on how they are divided between its calls, and therefore on the timing of the threads.
    """
    manifest = await asyncrec.read_manifest(f"{name}/pages", storage=storage)
    found = []
    for shard in manifest.shards:
        assert shard.index is not None
        content = await storage.get(f"{name}/{shard.path}")
        found.append(gzip.decompress(content) if shard.compression else content)
        found += [await storage.get(f"{name}/{shard.index.path}")] if not shard.compression else []
        found += [await storage.get(f"{name}/{shard.keys.path}")] if shard.keys is not None else []
    return found


async def records(storage: Storage, path: str) -> list[bytes]:
    async with asyncrec.open_dataset(path, storage=storage) as dataset:
        return await dataset.get_many(range(400))


LIMITS: list[dict[str, Any]] = [
    {"num_shards": 7},
    {"max_shard_bytes": 100_000},
    {"max_shard_records": 33},
    {"max_shard_bytes": 100_000, "compression": "gzip"},
    {"num_shards": 3, "shuffle": True},
]


@pytest.mark.slow
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_reshard_output_does_not_depend_on_jobs(
    storage: Storage, compression: str, limits: dict[str, Any]
) -> None:
    await write_source(storage, compression)
    found = []
    for jobs in JOBS:
        await tools.reshard("from/pages", f"{jobs}/pages", jobs=jobs, storage=storage, target_storage=storage, **limits)
        found.append(await written(storage, str(jobs)))
    assert all(each == found[0] for each in found)
    assert (await tools.verify("1/pages", storage=storage)).ok
    before, after = [await records(storage, path) for path in ("from/pages", "1/pages")]
    assert (sorted(after) if "shuffle" in limits else after) == (sorted(before) if "shuffle" in limits else before)


@pytest.mark.parametrize("limits", LIMITS[:3])
async def test_frame_and_record_copying_produce_same_shards(
    storage: Storage, limits: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_source(storage, "")
    options = {"storage": storage, "target_storage": storage}
    await tools.reshard("from/pages", "frames/pages", **options, **limits)
    monkeypatch.setattr("asyncrec.tools._frames_reading.native", None)
    await tools.reshard("from/pages", "records/pages", **options, **limits)
    assert await written(storage, "frames") == await written(storage, "records")


@pytest.mark.parametrize("jobs", JOBS)
@pytest.mark.parametrize("at", [14, 0, 200_000])
async def test_damage_is_located_and_leaves_no_shards(storage: Storage, jobs: int | None, at: int) -> None:
    await asyncrec.write_records("a.tfrecord", [b"x" * 1000] * 400, storage=storage)
    await change(storage, "a.tfrecord", at)
    with pytest.raises(FormatError) as caught:
        await tools.reshard(
            "a.tfrecord", "new/pages", jobs=jobs, max_shard_records=10, storage=storage, target_storage=storage
        )
    error = caught.value
    assert (error.record, error.offset) == (at // 1016, at // 1016 * 1016)
    assert "a.tfrecord" in str(error)
    assert await data_names(storage, "new/") == []


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("how", ["cut", "replaced"])
async def test_source_changed_during_reading_is_reported(tmp_path: Path, jobs: int, how: str) -> None:
    block = (1 << 20) // 1024 * 1024  # a whole number of frames
    source = tmp_path / "a.tfrecord"
    await asyncrec.write_records(source, [b"x" * 1008] * 4096)
    if how == "replaced":  # by an intact file, after the old one was found to be damaged
        other = tmp_path / "b.tfrecord"
        await asyncrec.write_records(other, [b"y" * 1008] * 4096)
        with source.open("r+b") as file:
            file.seek(block + 14)
            file.write(b"?")

    def reading(position: int) -> None:
        if position < block:
            return
        if how == "cut":
            os.truncate(source, block)
        elif other.exists():
            other.replace(source)

    storage = LocalStorage(tmp_path, system=WatchedDisk(reading))
    # Without the C code, the file is not opened a second time, so the error is about the damaged file.
    expected = ObjectChangedError if how == "cut" or native is not None else CorruptRecordError
    with pytest.raises(expected, match=r"a\.tfrecord"):
        await tools.reshard("a.tfrecord", tmp_path / "new" / "pages", jobs=jobs, storage=storage)
    assert not [each for each in tmp_path.rglob("pages*") if each.is_file()]


class CountingDisk:
    """Like `os`, but it counts the bytes read, and records the size of the longest read."""

    def __init__(self) -> None:
        self.bytes = self.most = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        block = os.pread(fd, size, position)
        self.bytes += len(block)
        self.most = max(self.most, len(block))
        return block


async def test_long_record_is_read_without_excess_bytes(tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "a.tfrecord", [bytes(9 << 20)] * 3)
    disk = CountingDisk()
    storage = LocalStorage(tmp_path, system=disk)
    await tools.reshard("a.tfrecord", tmp_path / "new" / "pages", num_shards=1, jobs=1, storage=storage)
    assert disk.most < (9 << 20) + 100
    count = 27 << 20  # because of num_shards, the records are counted first
    assert disk.bytes < 2 * count + (3 << 20) + 1000


@pytest.mark.parametrize("jobs", [1, 2])
async def test_cancelled_reshard_leaves_no_shards(storage: Storage, jobs: int) -> None:
    await write_pages(storage, "from/pages", records=60)
    with anyio.CancelScope() as scope:
        await tools.reshard(
            "from/pages",
            "new/pages",
            jobs=jobs,
            max_shard_records=4,
            progress=lambda done, total: scope.cancel(),
            storage=storage,
            target_storage=storage,
        )
    assert scope.cancelled_caught
    assert await data_names(storage, "new/") == []


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
async def test_reshard_memory_does_not_grow_with_output(tmp_path: Path, jobs: int) -> None:
    path = str(tmp_path / "a.tfrecord")
    await asyncrec.write_records(path, [bytes(100_000)] * 600)
    tracemalloc.start()
    await tools.reshard(path, str(tmp_path / "new" / "pages"), num_shards=6, jobs=jobs)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 24 << 20
