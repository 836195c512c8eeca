"""Objects are cached in pieces, and a reader waits only for the pieces that it needs."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import IntegrityError, StorageError
from asyncrec.storage._local.storage import LocalStorage
from tests.storage.cache_kit import files, taken
from tests.storage.counted_store import CountedStorage, asked

pytestmark = pytest.mark.anyio

# Two and a half cache pieces per shard.
RECORDS = [bytes([number]) * (1 << 20) for number in range(40)]
SHARD = 20 << 20


@pytest.fixture
async def store(tmp_path: Path) -> CountedStorage:
    async with asyncrec.open_sharded_writer(tmp_path / "store" / "pages", max_shard_records=20) as writer:
        await writer.write_many(RECORDS)
    return CountedStorage(tmp_path / "store", tmp_path / "log")


def pieces(base: Path) -> list[str]:
    """Return the ranges of shards that were requested since the last call of this function."""
    return sorted(line.split(" ", 2)[2] for line in asked(base / "log").elements() if line.startswith("GET pages-"))


async def test_record_waits_only_for_its_piece(store: CountedStorage, tmp_path: Path) -> None:
    async with asyncrec.open_dataset("pages", storage=store, cache=tmp_path / "cache") as dataset:
        assert await dataset.get(10) == RECORDS[10]
        assert pieces(tmp_path) == [f"{8 << 20} {16 << 20}"]
        assert await dataset.get(11) == RECORDS[11]
        assert pieces(tmp_path) == []
        assert files(tmp_path / "cache") == []
        assert await dataset.get_many(range(20)) == RECORDS[:20]
        assert len(pieces(tmp_path)) == 2
        assert [path.stat().st_size for path in files(tmp_path / "cache")] == [dataset.manifest.shards[0].bytes]
    async with asyncrec.open_dataset("pages", storage=store, cache=tmp_path / "cache") as dataset:
        assert await dataset.get_many(range(20)) == RECORDS[:20]
    assert pieces(tmp_path) == []


async def test_cached_piece_serves_later_readers(store: CountedStorage, tmp_path: Path) -> None:
    for number in (0, 8, 19):
        async with asyncrec.open_dataset("pages", storage=store, cache=tmp_path / "cache") as dataset:
            assert await dataset.get(number) == RECORDS[number]
        assert len(pieces(tmp_path)) == 1
    assert len(files(tmp_path / "cache")) == 1


async def test_cached_copy_is_verified_after_last_piece(store: CountedStorage, tmp_path: Path) -> None:
    async with asyncrec.open_dataset("pages", storage=store, cache=tmp_path / "cache") as dataset:
        path = tmp_path / "store" / dataset.manifest.shards[0].path
        data = bytearray(path.read_bytes())
        data[-30] ^= 1
        path.write_bytes(data)
        assert await dataset.get(0) == RECORDS[0]
        with pytest.raises(IntegrityError, match="it is not cached"):
            await dataset.get_many(range(20))
        assert files(tmp_path / "cache") == []
        assert not list((tmp_path / "cache").glob(".*.tfrecord.*"))


async def test_partially_filled_files_respect_cache_bound(store: CountedStorage, tmp_path: Path) -> None:
    bound = SHARD + (1 << 20)
    async with (
        asyncrec.open_dataset("pages", storage=store, cache=tmp_path / "cache", cache_bytes=bound) as dataset,
        anyio.create_task_group() as tasks,
    ):

        async def read(numbers: range) -> None:
            assert await dataset.get_many(numbers) == [RECORDS[number] for number in numbers]
            assert taken(tmp_path / "cache") <= bound

        for start in range(0, 40, 5):
            tasks.start_soon(read, range(start, start + 5))


READS: Mapping[str, Callable[[Any, Any, Path], Any]] = {}


def way(read: Callable[[Any, Any, Path], Any]) -> Callable[[Any, Any, Path], Any]:
    READS[read.__name__] = read  # type: ignore[index]
    return read


@way
async def open_dataset(storage: Any, paths: list[str], cache: Path) -> list[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage, cache=cache) as dataset:
        return await dataset.get_many(range(40))


@way
async def open_reader(storage: Any, paths: list[str], cache: Path) -> list[bytes]:
    found = []
    for path in paths:
        async with asyncrec.open_reader(path, storage=storage, cache=cache) as reader:
            found += [record async for record in reader]
    return found


@way
async def interleave(storage: Any, paths: list[str], cache: Path) -> list[bytes]:
    async with asyncrec.interleave(paths, cycle_length=1, storage=storage, cache=cache) as stream:
        return [record async for record in stream]


@way
async def sampler(storage: Any, paths: list[str], cache: Path) -> list[bytes]:
    async with asyncrec.InterleaveSampler(
        "", bytes, 2, 20, seed=1, num_repeat=1, storage=storage, cache=cache
    ) as batches:
        return sorted([record async for batch in batches for record in batch])


@pytest.mark.parametrize("way_of_reading", READS)
async def test_every_way_of_reading_requests_store_once(
    way_of_reading: str, store: CountedStorage, tmp_path: Path
) -> None:
    paths = await asyncrec.list_shards("pages", storage=store)
    for came in (6, 0):
        assert await READS[way_of_reading](store, paths, tmp_path / "cache") == RECORDS
        assert len(pieces(tmp_path)) == came
    async with asyncrec.open_dataset(
        await asyncrec.read_manifest("pages", storage=store), storage=store, cache=tmp_path / "cache"
    ) as dataset:
        asked(tmp_path / "log")
        assert await dataset.get_many(range(40)) == RECORDS


@pytest.mark.parametrize("way_of_reading", READS)
async def test_full_cache_disk_warns_once_and_reads_store(
    way_of_reading: str,
    store: CountedStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    paths = await asyncrec.list_shards("pages", storage=store)
    pwrite, left = os.pwrite, [11 << 20]

    def full(fd: int, data: bytes, position: int) -> int:
        left[0] -= len(data)
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return pwrite(fd, data, position)

    monkeypatch.setattr(os, "pwrite", full)
    assert await READS[way_of_reading](store, paths, tmp_path / "cache") == RECORDS
    said = [record for record in caplog.records if "read from the store" in record.getMessage()]
    assert len(said) == (len(paths) if way_of_reading == "open_reader" else 1), "once by each that is opened"
    assert not list((tmp_path / "cache").glob("*.tfrecord"))


@pytest.mark.parametrize("way_of_reading", READS)
async def test_cancelled_read_leaves_cache_consistent(
    way_of_reading: str, store: CountedStorage, tmp_path: Path, anyio_backend_name: str
) -> None:
    paths = await asyncrec.list_shards("pages", storage=store)
    read, cache = READS[way_of_reading], tmp_path / "cache"
    for steps in range(3, 200, 25):
        with anyio.CancelScope() as scope:

            async def cancel(scope: anyio.CancelScope = scope, steps: int = steps) -> None:
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                scope.cancel()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel)
                await read(store, paths, cache)
        for path in files(cache) if cache.is_dir() else []:
            assert path.stat().st_size > SHARD, "a copy is whole"
    with anyio.fail_after(60):
        assert await read(store, paths, cache) == RECORDS


async def test_file_in_place_of_cache_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "cache").write_bytes(b"")
    storage = LocalStorage(tmp_path)
    with pytest.raises(StorageError, match="cache"):
        async with asyncrec.open_dataset("pages", storage=storage, cache=tmp_path / "cache"):
            pass
    with pytest.raises(StorageError, match="cache"):
        async with asyncrec.open_reader("one", storage=storage, cache=tmp_path / "cache"):
            pass
    with pytest.raises(ValueError, match="cache_bytes"):
        async with asyncrec.interleave(["one"], storage=storage, cache=tmp_path, cache_bytes=0):
            pass


async def test_pipe_in_place_of_pieces_raises_without_waiting(store: CountedStorage, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    async with asyncrec.open_dataset("pages", storage=store, cache=cache) as dataset:
        await dataset.get(0)
        (filling,) = cache.glob(".*.tfrecord.*.partial")
        filling.unlink()
        os.mkfifo(filling)
        with pytest.raises(StorageError, match="regular file"):
            await dataset.get(0)


async def test_cache_file_finished_by_another_reader_stays_intact(
    store: CountedStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (await asyncrec.list_shards("pages", storage=store))[:1]
    cache = tmp_path / "cache"
    fstat, names, looks, found = os.fstat, set[Path](), list[os.stat_result](), list[bytes]()

    async def read() -> list[bytes]:
        storage = CountedStorage(tmp_path / "store", tmp_path / "log")  # one storage per loop
        async with asyncrec.open_reader(path, storage=storage, cache=cache) as reader:
            return [record async for record in reader]

    def note(fd: int) -> os.stat_result:
        names.update(cache.glob(".*.partial"))
        return fstat(fd)

    def look(fd: int) -> os.stat_result:
        status = fstat(fd)
        if (
            not status.st_size
            and not looks
            and status.st_ino in [each.stat().st_ino for each in names if each.exists()]
        ):
            looks.append(status)
            other = threading.Thread(target=lambda: found.extend(anyio.run(read)))
            other.start()
            other.join()
        return status

    monkeypatch.setattr(os, "fstat", note)
    assert await read() == RECORDS[:20]
    monkeypatch.undo()
    for copy in cache.glob("*.tfrecord"):
        copy.unlink()
    (left,) = names
    left.touch()  # its creator was killed before it had its full length
    assert len(pieces(tmp_path)) == 3
    monkeypatch.setattr(os, "fstat", look)
    assert await read() == RECORDS[:20]
    monkeypatch.undo()
    assert found == RECORDS[:20]
    assert len(pieces(tmp_path)) == 3
    assert await read() == RECORDS[:20]
    assert pieces(tmp_path) == []
