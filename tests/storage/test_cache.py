"""`open_dataset(cache=...)`: shards are cached in a local folder, verified, shared between processes, and limited."""

from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec.errors import IntegrityError, ObjectChangedError, StorageError
from asyncrec.storage._disk_cache import DiskCache
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage
from tests.storage.cache_kit import RECORDS, damage_all, files, reads, stored, taken

pytestmark = pytest.mark.anyio


async def test_cache_fetches_each_shard_only_once(tmp_path: Path) -> None:
    storage = await stored()
    for opened in (4, 0):  # the second time acts like a later process
        async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path / "cache") as dataset:
            assert await dataset.get_many(range(400)) == RECORDS
            assert await dataset.get_many(range(399, 0, -7)) == RECORDS[399:0:-7]
            assert reads(storage) == opened
    assert len(files(tmp_path / "cache")) == 4


async def test_concurrent_cache_users_fetch_each_shard_once(tmp_path: Path) -> None:
    storage = await stored()
    async with (
        asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as one,
        asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as two,
        anyio.create_task_group() as tasks,
    ):
        for dataset in (one, two) * 5:
            tasks.start_soon(dataset.get_many, range(400))
    assert reads(storage) == 4


async def test_cache_waits_for_download_by_another_process(tmp_path: Path) -> None:
    storage = await stored()
    held = []
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        for lock in range(256):
            fd = os.open(tmp_path / f".lock-{lock:03d}", os.O_RDWR | os.O_CREAT)
            fcntl.flock(fd, fcntl.LOCK_EX)
            held.append(fd)
        with anyio.move_on_after(0.2) as scope:
            await dataset.get(0)
        assert scope.cancelled_caught
        assert reads(storage) == 0
        for fd in held:
            os.close(fd)
        assert await dataset.get(0) == RECORDS[0]


async def test_cache_evicts_least_recently_used_shards(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        await dataset.get_many(range(0, 400, 100))
    kept = list(tmp_path.glob("*.copy"))  # the indexes and the manifest
    size = dataset.manifest.shards[0].bytes
    bound = sum(path.stat().st_size for path in kept) + 2 * size + 1
    for path in files(tmp_path):
        path.unlink()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path, cache_bytes=bound) as dataset:
        for second, number in enumerate((0, 100, 0, 200)):
            await dataset.get(number)
            for path in files(tmp_path):  # simulate the passing of time
                os.utime(path, ns=(0, os.stat(path).st_mtime_ns - 10**9 * (10 - second)))
        assert len(files(tmp_path)) == 2
        reads(storage)
        await dataset.get_many([1, 201])
        assert reads(storage) == 0, "of the three, the second was not used for longest"
        await dataset.get(101)
        assert reads(storage) == 1
        assert taken(tmp_path) <= bound


async def test_shard_larger_than_cache_is_read_from_store(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path, cache_bytes=100) as dataset:
        assert await dataset.get(0) == RECORDS[0]
        assert files(tmp_path) == []
    with pytest.raises(ValueError, match="cache_bytes"):
        DiskCache(tmp_path, 0)


async def test_cache_keeps_no_damaged_download(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        path = dataset.manifest.shards[0].path
        data = bytearray(await storage.get(path))
        data[20] ^= 1
        await storage.put(path, data)
        with pytest.raises(IntegrityError, match="and was not cached"):
            await dataset.get(0)
        assert files(tmp_path) == []
        assert not list(tmp_path.glob(".*.partial"))


async def test_truncated_cache_file_is_fetched_again(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        await dataset.get(0)
        (kept,) = files(tmp_path)
        kept.write_bytes(kept.read_bytes()[:10])
        assert await dataset.get(1) == RECORDS[1]
        assert reads(storage) == 2


async def test_replaced_shard_is_read_as_listed_or_rejected(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        await dataset.get(0)
    first, second, *_ = dataset.manifest.shards
    other = await storage.get(first.path)
    for shard in (first, second):
        await storage.put(shard.path, other[:-20] + other[:20])
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        assert await dataset.get(99) == RECORDS[99]
        with pytest.raises(IntegrityError, match="not the expected"):
            await dataset.get(100)
        await storage.put(second.path, other[:40])
        with pytest.raises(ObjectChangedError, match="not the expected"):
            await dataset.get(100)


async def test_replaced_file_outside_manifest_is_fetched_again(tmp_path: Path) -> None:
    storage = MemoryStorage()
    for records in (RECORDS[:3], RECORDS[3:6]):
        async with asyncrec.open_writer("one.tfrecord", storage=storage) as writer:
            await writer.write_many(records)
        for _ in range(2):
            async with asyncrec.open_reader("one.tfrecord", storage=storage, cache=tmp_path) as reader:
                assert [record async for record in reader] == records
    assert len(files(tmp_path)) == 2


async def test_failed_download_leaves_no_cached_copy(tmp_path: Path) -> None:
    inner = (await stored())._storage
    async with asyncrec.open_dataset("pages", storage=inner, cache=tmp_path) as dataset:
        pass
    storage = FlakyStorage(inner, {2: Fault(error=StorageError, for_good=True)})
    async with asyncrec.open_dataset(dataset.manifest, storage=storage, cache=tmp_path) as dataset:
        with pytest.raises(StorageError):
            await dataset.get(0)
        assert files(tmp_path) == []
    async with asyncrec.open_dataset(dataset.manifest, storage=inner, cache=tmp_path) as dataset:
        assert await dataset.get(0) == RECORDS[0]
    assert len(files(tmp_path)) == 1


async def test_cache_removes_leftover_partial_files_after_one_day(tmp_path: Path) -> None:
    storage = await stored()
    old, new = tmp_path / ".a.tfrecord.1.partial", tmp_path / ".b.tfrecord.1.partial"
    for path in (old, new):
        path.write_bytes(b"begun")
    os.utime(old, (0, 0))
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        await dataset.get(0)
    assert (old.exists(), new.exists()) == (False, True)


async def test_new_cache_folder_is_private(tmp_path: Path) -> None:
    """Users who want to share a cache create its folder themselves, with the mode they want."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o775)
    for name, mode in (("own", 0o700), ("shared", 0o775)):
        async with asyncrec.open_dataset("pages", storage=await stored(), cache=tmp_path / name) as dataset:
            assert await dataset.get_many(range(400)) == RECORDS
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


async def test_symlink_in_place_of_shard_is_replaced_unfollowed(tmp_path: Path) -> None:
    storage = await stored()
    cache = tmp_path / "cache"
    async with asyncrec.open_dataset("pages", storage=storage, cache=cache) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
    reads(storage)
    for number, path in enumerate(files(cache)):
        other = tmp_path / f"other-{number}"
        path.rename(other)
        os.utime(other, (1, 1))
        path.symlink_to(other)
    async with asyncrec.open_dataset("pages", storage=storage, cache=cache) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
    assert reads(storage) == 4
    assert all(path.stat().st_mtime == 1 for path in tmp_path.glob("other-*"))
    assert not any(path.is_symlink() for path in files(cache))


@pytest.mark.parametrize("what", ["link", "pipe"])
async def test_invalid_cache_lock_file_raises_error(tmp_path: Path, what: str) -> None:
    for name in [".lock-evict", *(f".lock-{lock:03d}" for lock in range(256))]:
        if what == "link":
            (tmp_path / name).symlink_to(tmp_path / "elsewhere")
        else:
            os.mkfifo(tmp_path / name)
    with pytest.raises(StorageError, match=r"\.lock-.* (symbolic link|not a regular file)"):
        async with asyncrec.open_dataset("pages", storage=await stored(), cache=tmp_path) as dataset:
            await dataset.get_many(range(400))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mode", [0o770, 0o702])
async def test_cache_writable_by_others_is_verified_before_reading(tmp_path: Path, mode: int) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
    tmp_path.chmod(mode)
    first, second, *_ = files(tmp_path)
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())  # same length, and each record is intact
    second.write_bytes(content)
    reads(storage)
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
        assert reads(storage) == 2
        assert await dataset.get_many(range(400)) == RECORDS
        assert reads(storage) == 0


async def test_cache_ignores_foreign_folders_and_pipes(tmp_path: Path) -> None:
    for name in ("old.partial", "other.tfrecord"):
        (tmp_path / name).mkdir()
        os.mkfifo(tmp_path / f"pipe-{name}")
        for each in (name, f"pipe-{name}"):
            os.utime(tmp_path / each, (1, 1))
    async with asyncrec.open_dataset("pages", storage=await stored(), cache=tmp_path, cache_bytes=5000) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
    assert len(list(tmp_path.glob("*old.partial"))) == len(list(tmp_path.glob("*other.tfrecord"))) == 2


async def test_pipe_in_place_of_damaged_copy_does_not_block(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        assert await dataset.get_many(range(400)) == RECORDS
        damage_all(tmp_path)
        for path in files(tmp_path):
            path.unlink()
            os.mkfifo(path)
        assert await dataset.get_many(range(400)) == RECORDS


async def test_smaller_cache_bound_applies_from_opening(tmp_path: Path) -> None:
    storage = await stored()
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path) as dataset:
        await dataset.get_many(range(400))
    sizes = [path.stat().st_size for path in files(tmp_path)]
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path, cache_bytes=2 * sizes[0]) as dataset:
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 2 * sizes[0]
        await dataset.get_many(range(400))
    async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path, cache_bytes=1):
        assert files(tmp_path) == []  # no shard is cached


async def test_cache_smaller_than_open_shards_still_reads_all(tmp_path: Path) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", max_shard_records=20, storage=storage) as writer:
        await writer.write_many(RECORDS)
    for _ in range(5):
        async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path, cache_bytes=800) as dataset:
            assert await dataset.get_many(range(400)) == RECORDS
