"""Random access to uncompressed local shards, whose files stay open: the threads that read, and the errors."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import blocking
from asyncrec._concurrency import tasks
from asyncrec._sampling.random_access import frame_extractor, local_shards
from asyncrec._sampling.random_access.dataset import Dataset
from asyncrec.errors import CorruptRecordError, ObjectChangedError, ObjectNotFoundError
from asyncrec.storage._local import open_files
from asyncrec.storage._local.disk import Disk
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio

RECORDS = [b"record %05d " % i * (1 + i % 7) for i in range(600)]


class System:
    """The functions of `os`, which record the name and thread of each call, on a disk whose cache the test controls."""

    def __init__(self, cached: Callable[[], bool] = lambda: True, *, asked: bool = True) -> None:
        self.calls: list[tuple[str, bool]] = []
        self._loop = threading.get_ident()
        self._cached = cached
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            self.calls.append((name, threading.get_ident() == self._loop))
            if name == "preadv" and not self._asked:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            if name == "preadv" and not self._cached():
                raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")
            return getattr(os, name)(*args[:3] if name == "preadv" else args, **options)

        return call

    @property
    def on_loop(self) -> set[str]:
        return {name for name, here in self.calls if here}


@pytest.fixture(autouse=True)
def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that the tests' folder is on a disk, wherever it really is."""
    monkeypatch.setattr(Disk, "lives_in_memory", lambda self, device: False)


async def written(folder: Path, **options: Any) -> None:
    async with asyncrec.open_sharded_writer(folder / "pages", max_shard_records=100, **options) as writer:
        for number, record in enumerate(RECORDS):
            await writer.write(record, key=str(number))


def shard(folder: Path, dataset: Dataset, number: int = 0) -> Path:
    return folder / dataset.manifest.shards[number].path


async def warmed(dataset: Dataset) -> None:
    assert await dataset.get_many(range(600)) == RECORDS


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_cached_records_are_read_on_loop_without_thread(tmp_path: Path) -> None:
    await written(tmp_path)
    system = System()
    async with asyncrec.open_dataset("pages", storage=LocalStorage(tmp_path, system=system)) as dataset:
        await warmed(dataset)
        system.calls.clear()
        for number in (0, 99, -1, 350):
            assert await dataset.get(number) == RECORDS[number]
        assert await dataset.get_many([5, 500, 5, 499, 7]) == [RECORDS[n] for n in (5, 500, 5, 499, 7)]
        assert await dataset.get_by_key("42") == RECORDS[42]
        assert system.on_loop == {"stat", "preadv", "fstat"}  # fstat is called for the keys files, which are closed


@pytest.mark.parametrize("asked", [True, False], ids=["not cached", "cannot be asked"])
async def test_uncached_records_are_read_in_one_thread_per_call(
    tmp_path: Path, asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(tmp_path)
    system = System(lambda: False, asked=asked)
    hops = 0
    in_thread = Disk.in_thread

    async def counted(self: Disk, *args: Any) -> Any:
        nonlocal hops
        hops += 1
        return await in_thread(self, *args)

    async with asyncrec.open_dataset("pages", storage=LocalStorage(tmp_path, system=system)) as dataset:
        await warmed(dataset)
        monkeypatch.setattr(Disk, "in_thread", counted)
        system.calls.clear()
        assert await dataset.get(300) == RECORDS[300]
        assert hops == 1
        wanted = random.Random(1).choices(range(600), k=200)
        assert await dataset.get_many(wanted) == [RECORDS[number] for number in wanted]
        assert hops == 2
    assert system.on_loop <= ({"stat", "preadv"} if asked else set())
    assert ("pread", False) in system.calls


async def test_partly_cached_records_are_read_completely(tmp_path: Path) -> None:
    await written(tmp_path)
    source = random.Random(2)
    system = System(lambda: source.random() < 0.7)
    async with asyncrec.open_dataset("pages", storage=LocalStorage(tmp_path, system=system)) as dataset:
        for count in (1, 3, 50, 2000):
            wanted = source.choices(range(600), k=count)
            assert await dataset.get_many(wanted) == [RECORDS[number] for number in wanted]


async def test_large_records_are_read_in_pieces_by_thread(tmp_path: Path) -> None:
    records = [random.Random(n).randbytes((n % 5) * 300_000) for n in range(40)]
    async with asyncrec.open_sharded_writer(tmp_path / "large") as writer:
        await writer.write_many(records)
    async with asyncrec.open_dataset(tmp_path / "large") as dataset:
        for _ in range(2):
            assert await dataset.get_many(slice(None)) == records
        assert await dataset.get_many(slice(30, None, -7)) == records[30::-7]
        assert await dataset.get(4) == records[4]


async def test_slow_disk_read_is_cancellable_between_hops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_shards, "_HOP_SECONDS", 0.0)
    await written(tmp_path)
    system = System(lambda: False)
    async with asyncrec.open_dataset("pages", storage=LocalStorage(tmp_path, system=system)) as dataset:
        await warmed(dataset)
        system.calls.clear()
        with anyio.move_on_after(0):
            await dataset.get_many(range(0, 600, 2))
        assert [name for name, _ in system.calls if name == "pread"] == []
        assert await dataset.get_many(range(0, 600, 2)) == RECORDS[::2]
        assert await dataset.get_many(range(0, 600, 3)) == RECORDS[::3]


async def test_large_selections_of_small_records_are_read_in_pieces(tmp_path: Path) -> None:
    records = [b"%d" % number for number in range(30_000)]
    async with asyncrec.open_sharded_writer(tmp_path / "small") as writer:
        await writer.write_many(records)
    async with asyncrec.open_dataset(tmp_path / "small") as dataset:
        for _ in range(2):
            assert await dataset.get_many(slice(None)) == records
        assert await dataset.get_many(slice(None, None, -2)) == records[::-2]


Spoil = Callable[[Path], object]


def replaced(path: Path) -> None:
    path.with_name("other").write_bytes(path.read_bytes())
    path.with_name("other").replace(path)


SPOILS: dict[str, tuple[Spoil, type[Exception]]] = {
    "replaced": (replaced, ObjectChangedError),
    "cut": (lambda path: os.truncate(path, 50), ObjectChangedError),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"more"), ObjectChangedError),
    "gone": (lambda path: path.unlink(), ObjectNotFoundError),
}


@pytest.mark.parametrize("how", SPOILS)
async def test_shard_changed_while_open_raises_same_error_as_reopened(tmp_path: Path, how: str) -> None:
    await written(tmp_path)
    spoil, error = SPOILS[how]
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        await warmed(dataset)
        path = shard(tmp_path, dataset)
        spoil(path)
        for _ in range(2):
            with pytest.raises(error, match=path.name):
                await dataset.get(3)
            with pytest.raises(error, match=path.name):
                await dataset.get_many([3, 400])
        assert await dataset.get_many([150, 400]) == [RECORDS[150], RECORDS[400]]


@pytest.mark.parametrize("how", SPOILS)
def test_blocking_read_of_corrupted_shard_raises(tmp_path: Path, how: str) -> None:
    anyio.run(written, tmp_path)
    spoil, error = SPOILS[how]
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        assert dataset[:] == RECORDS
        path = tmp_path / dataset.manifest.shards[0].path
        spoil(path)
        with pytest.raises(error, match=path.name):
            dataset.get(3)
        with pytest.raises(error, match=path.name):
            dataset.get_many([3, 400])
        assert dataset[400] == RECORDS[400]


@pytest.mark.parametrize("native", [True, False], ids=["C", "Python"])
async def test_damage_in_open_file_is_found_by_checksum(
    tmp_path: Path, native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not native:
        monkeypatch.setattr(frame_extractor, "native", None)
    await written(tmp_path)
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        await warmed(dataset)
        path, where = shard(tmp_path, dataset), await dataset.locate(7)
        status = path.stat()
        with path.open("r+b") as file:
            file.seek(where.offset + 14)
            file.write(b"\xff")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # like a disk that reports the wrong time
        for wanted in ([7], [5, 7, 9], range(600)):
            with pytest.raises(CorruptRecordError) as raised:
                await dataset.get_many(wanted)
            assert (raised.value.record, raised.value.offset, raised.value.part) == (7, where.offset, "data")
        assert await dataset.get_many([6, 8]) == [RECORDS[6], RECORDS[8]]


async def test_open_files_are_few_and_closed_with_data_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "_MOST_OPEN", 2)
    await written(tmp_path)
    before = descriptors()
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        await warmed(dataset)
        for number in range(0, 600, 7):
            assert await dataset.get(number) == RECORDS[number]
        assert descriptors() == before + 2
    assert descriptors() == before
    with pytest.raises(anyio.ClosedResourceError):
        await dataset.get(3)
    assert descriptors() == before


async def test_cancelled_call_leaves_no_file_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await written(tmp_path)
    before = descriptors()
    run = tasks.to_thread.run_sync
    for k in range(40):
        count = 0
        async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
            with anyio.CancelScope() as scope:

                async def cancelling(*args: Any, **options: Any) -> Any:
                    nonlocal count
                    count += 1
                    if count == k:  # noqa: B023  # within this turn
                        scope.cancel()
                    return await run(*args, **options)

                with monkeypatch.context() as patch:
                    patch.setattr(tasks.to_thread, "run_sync", cancelling)
                    await dataset.get_many(range(0, 600, 50))
            assert await dataset.get_many([1, 599]) == [RECORDS[1], RECORDS[599]]
        assert descriptors() == before
        if count < k:
            return
    pytest.fail("a call has fewer hops")


def test_blocking_dataset_avoids_event_loop_and_shares_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anyio.run(written, tmp_path)
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        assert dataset[:] == RECORDS
        assert dataset.get_by_key("5") == RECORDS[5]
        monkeypatch.setattr(blocking._portal.Portal, "run", None)
        assert dataset[3] == dataset.get(-597) == RECORDS[3]
        assert dataset[-3:] == dataset.get_many([597, 598, 599]) == RECORDS[-3:]
        assert dataset[10:2:-3] == RECORDS[10:2:-3]
        assert dataset[700:] == dataset.get_many([]) == []
        assert dataset.get_by_key("599") == RECORDS[599]
        wrong: list[object] = []

        def read(seed: int) -> None:
            source = random.Random(seed)
            for _ in range(300):
                wanted = source.choices(range(600), k=source.choice((1, 9)))
                if dataset.get_many(wanted) != [RECORDS[number] for number in wanted]:
                    wrong.append(wanted)

        monkeypatch.setattr(open_files, "_MOST_OPEN", 2)
        threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []


def test_forked_child_closes_files_opened_by_parent(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"content")
    storage = LocalStorage(tmp_path)
    files = open_files.OpenFiles(storage.disk)
    place = open_files.Place(key="a", path=str(tmp_path / "a"), shown="a")
    file = files.open("a", place, lambda info: True)
    assert file is not None
    before = descriptors()
    files.forked()  # as in a forked child process
    assert descriptors() == before - 1
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.read(7, 0)
    again = files.open("a", place, lambda file: file.info.size == 7)
    assert again is not None
    assert again.read(7, 0) == b"content"
