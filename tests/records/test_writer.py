"""`asyncrec.open_writer`: records are written to one object, which is published completely or not at all."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec._framing.frames import encode_frames
from asyncrec.errors import ObjectExistsError, StorageError, StoragePermissionError, TransientStorageError
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Fault, FlakyStorage, SlowStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


RECORDS = [b"", b"a", b"x" * 300, bytes(70_000), b"end"]


def framed(records: list[bytes]) -> bytes:
    return b"".join(encode_frames(records))


@pytest.mark.parametrize(
    ("compression", "expand"),
    [("", bytes), ("GZIP", gzip.decompress), ("ZLIB", zlib.decompress), (0, bytes), (2, gzip.decompress)],
)
async def test_writer_output_is_tfrecord_byte_for_byte(tmp_path: Path, compression: Any, expand: Any) -> None:
    path = tmp_path / "a" / "x.tfrecord"
    async with asyncrec.open_writer(path, compression=compression) as writer:
        for record in RECORDS:
            await writer.write(record)
    assert expand(path.read_bytes()) == framed(RECORDS)
    assert writer.published is not None
    assert writer.published.size == path.stat().st_size


async def test_file_without_records_is_empty(tmp_path: Path) -> None:
    await asyncrec.write_records(tmp_path / "empty", [])
    assert (tmp_path / "empty").read_bytes() == b""
    await asyncrec.write_records(tmp_path / "empty.gz", [], compression="GZIP")
    assert gzip.decompress((tmp_path / "empty.gz").read_bytes()) == b""


async def test_single_and_batched_writes_give_same_bytes() -> None:
    records = [bytes([i % 251]) * (i * 37 % 3000) for i in range(3000)] + [bytes(3 << 20), b"after", bytes(300_000)]
    storage = MemoryStorage()
    async with asyncrec.open_writer("one", storage=storage) as writer:
        for record in records:
            await writer.write(record)
    await asyncrec.write_records("many", records, storage=storage)
    await asyncrec.write_records("lazily", (bytearray(record) for record in records), storage=storage)
    for key in ("one", "many", "lazily"):
        assert await storage.get(key) == framed(records), key


async def test_buffer_may_be_reused_after_write() -> None:
    storage = MemoryStorage()
    buffer = bytearray(b"first")
    large = bytearray(2 << 20)
    async with asyncrec.open_writer("x", storage=storage) as writer:
        await writer.write(buffer)
        buffer[:] = b"second"
        await writer.write(memoryview(buffer)[1:4])
        buffer[:] = b"third!"
        await writer.write(large)
        large[:] = b"\xff" * len(large)
        await writer.write_many([buffer])
        buffer[:] = b"gone!!"
    assert await asyncrec.read_records("x", storage=storage) == [b"first", b"eco", bytes(2 << 20), b"third!"]


@pytest.mark.parametrize("wrong", ["text", None, 7, [b"x"], object()])
async def test_invalid_record_raises_type_error_and_writer_continues(wrong: Any) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_writer("x", storage=storage) as writer:
        with pytest.raises(TypeError, match="a record must be bytes, bytearray or memoryview"):
            await writer.write(wrong)
        with pytest.raises(TypeError):
            await writer.write_many([b"before", wrong, b"after"])
        await writer.write(b"next")
    assert await asyncrec.read_records("x", storage=storage) == [b"before", b"next"]


@pytest.mark.parametrize("one", [b"bytes", "text", bytearray(b"x")])
async def test_write_many_rejects_single_record(one: Any) -> None:
    async with asyncrec.open_writer("x", storage=MemoryStorage()) as writer:
        with pytest.raises(TypeError, match="use write"):
            await writer.write_many(one)


async def test_body_exception_publishes_no_file_and_keeps_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError, match="the crawl failed"):
        async with asyncrec.open_writer(path) as writer:
            await writer.write_many([bytes(1000)] * 5000)
            raise RuntimeError("the crawl failed")
    assert path.read_bytes() == b"before"
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


async def test_cancellation_publishes_nothing(tmp_path: Path) -> None:
    with anyio.CancelScope() as scope:
        async with asyncrec.open_writer(tmp_path / "x") as writer:
            await writer.write_many([bytes(1000)] * 5000)
            scope.cancel()
            await checkpoint()
    assert scope.cancelled_caught
    assert list(tmp_path.iterdir()) == []


async def test_flushed_records_survive_body_failure(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        async with asyncrec.open_writer(tmp_path / "x") as writer:
            await writer.write_many([b"kept"] * 10)
            assert await writer.flush() == "spooled"
            raise RuntimeError
    (kept,) = tmp_path.iterdir()
    assert kept.name.startswith(".x.")
    assert await asyncrec.read_records(kept) == [b"kept"] * 10


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_flushing_between_records_does_not_change_reading(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "x"
    async with asyncrec.open_writer(path, compression=compression) as writer:
        for size in (0, 10, 300_000, 1, 2 << 20, 5):
            await writer.write(bytes(size))
            await writer.flush()
            await writer.flush()
    assert [len(record) for record in await asyncrec.read_records(path)] == [0, 10, 300_000, 1, 2 << 20, 5]


async def test_flush_names_unreachable_level() -> None:
    async with asyncrec.open_writer("x", storage=MemoryStorage()) as writer:
        assert await writer.flush() == "buffered"
        with pytest.raises(
            ValueError, match="x: flush cannot reach the level 'spooled': a file is committed when the writer's"
        ):
            await writer.flush(require="spooled")
        with pytest.raises(ValueError, match="cannot reach the level 'committed'"):
            await writer.flush(require="committed")
        with pytest.raises(ValueError, match="cannot reach the level 'safe'"):
            await writer.flush(require="safe")  # type: ignore[arg-type]


async def test_mode_x_rejects_existing_object(tmp_path: Path) -> None:
    path = tmp_path / "x"
    await asyncrec.write_records(path, [b"1"], mode="x")
    with pytest.raises(ObjectExistsError, match="x"):
        await asyncrec.write_records(path, [b"2"], mode="x")
    assert await asyncrec.read_records(path) == [b"1"]
    with pytest.raises(ValueError, match="'w', 'x' or 'a'"):
        await asyncrec.write_records(path, [], mode="r")  # type: ignore[arg-type]  # deliberately wrong


async def test_use_after_context_raises_closed_resource_error(tmp_path: Path) -> None:
    async with asyncrec.open_writer(tmp_path / "x") as writer:
        await writer.write(b"1")
    for late in (writer.write(b"2"), writer.write_many([b"2"]), writer.write(bytes(2 << 20)), writer.flush()):
        with pytest.raises(anyio.ClosedResourceError, match="the writer is closed"):
            await late
    assert await asyncrec.read_records(tmp_path / "x") == [b"1"]


async def test_tasks_sharing_writer_write_every_record_once() -> None:
    storage = MemoryStorage()

    async def work(number: int) -> None:
        for i in range(200):
            await writer.write(b"%d %d" % (number, i))
            if i % 17 == 0:
                await writer.flush()

    async with asyncrec.open_writer("x", storage=storage) as writer, anyio.create_task_group() as group:
        for number in range(32):
            group.start_soon(work, number)
    records = await asyncrec.read_records("x", storage=storage)
    assert len(records) == 32 * 200
    for number in range(32):
        assert [r for r in records if r.split()[0] == b"%d" % number] == [b"%d %d" % (number, i) for i in range(200)]


class FullDisk:
    """A replacement for `os` whose disk accepts only ``room`` bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def __getattr__(self, name: str) -> Any:
        import os

        return getattr(os, name)

    def pwritev(self, fd: int, buffers: Any, offset: int, flags: int = 0) -> int:
        return self._write(sum(map(len, buffers)))

    def writev(self, fd: int, buffers: Any) -> int:
        return self._write(sum(map(len, buffers)))

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        return self._write(len(data))

    def _write(self, size: int) -> int:
        import errno

        if size > self.room:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= size
        return size


async def test_full_disk_fails_later_calls_and_leaves_no_file(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, system=FullDisk(0))
    with pytest.raises(StorageError, match="free some space") as at_exit:
        async with asyncrec.open_writer("x", storage=storage) as writer:
            await writer.write_many([bytes(1000)] * 2000)
            with pytest.raises(StorageError, match="free some space"):
                while True:
                    await writer.write(bytes(1000))
            for later in (writer.write(b"1"), writer.write_many([b"1"]), writer.flush(), writer.write(bytes(2 << 20))):
                with pytest.raises(StorageError, match="free some space") as caught:
                    await later
                assert isinstance(caught.value.__cause__, StorageError)
    assert str(tmp_path) in str(at_exit.value)
    assert list(tmp_path.iterdir()) == []


async def test_store_failure_at_any_operation_leaves_no_object() -> None:
    records = [bytes(1000)] * 300

    async def job(storage: FlakyStorage) -> None:
        async with asyncrec.open_writer("x", storage=storage) as writer:
            await writer.write_many(records)
            await writer.flush()
            await writer.write_many(records)

    calm = FlakyStorage(MemoryStorage())
    await job(calm)
    for k in range(len(calm.operations)):
        store = MemoryStorage()
        with pytest.raises(TransientStorageError):
            await job(FlakyStorage(store, {k: Fault("error", when="before")}))
        assert [info async for info in store.list_objects()] == [], f"after operation {k}, {calm.operations[k]}"


async def test_slow_store_makes_caller_wait_in_bounded_memory() -> None:
    storage = SlowStorage(MemoryStorage(), bytes_per_second=40e6)
    most = 0
    async with asyncrec.open_writer("x", storage=storage) as writer:
        for _ in range(400):
            await writer.write(bytes(100_000))
            most = max(most, writer._budget.used)
        assert writer.stats().seconds_waiting > 0
    assert most <= 8 << 20
    assert writer.stats().records == 400
    assert writer.stats().bytes == 400 * 100_016


async def test_cancelled_write_stores_no_record() -> None:
    taken = 0
    inner = MemoryStorage()
    slow = SlowStorage(inner, bytes_per_second=20e6)
    async with asyncrec.open_writer("x", storage=slow) as writer:
        with anyio.move_on_after(0.2):
            while True:
                await writer.write(b"%d" % taken + bytes(200_000))
                taken += 1
        await writer.write(b"last")
    records = await asyncrec.read_records("x", storage=inner)
    assert len(records) == taken + 1
    assert records[-1] == b"last"


class NotAllowed(FullDisk):
    """A replacement for `os` in which the user lacks permission to write."""

    def open(self, path: str, flags: int, *args: Any) -> int:
        import errno
        import os

        if flags & (os.O_WRONLY | os.O_RDWR):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return os.open(path, flags, *args)


async def test_denied_write_raises_permission_error_naming_file(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, system=NotAllowed(0))
    with pytest.raises(StoragePermissionError, match=f"{tmp_path}/x"):
        await asyncrec.write_records("x", [b"1"], storage=storage)
    assert list(tmp_path.iterdir()) == []


async def test_folder_at_target_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(StorageError, match="folder"):
        await asyncrec.write_records(tmp_path / "x", [b"1"])
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


async def test_body_error_is_not_wrapped_in_group() -> None:
    with pytest.raises(KeyError):
        async with asyncrec.open_writer("x", storage=MemoryStorage()) as writer:
            await writer.write(b"1")
            raise KeyError("body")


async def test_storage_and_storage_options_are_mutually_exclusive() -> None:
    with pytest.raises(TypeError):
        async with asyncrec.open_writer("x", storage=MemoryStorage(), storage_options={"a": 1}):
            pass


async def test_large_records_wait_for_memory_like_others() -> None:
    """Two records fit within the limit and a third one waits. A rejected or cancelled record uses no memory."""
    storage = SlowStorage(MemoryStorage(), bytes_per_second=10e6)
    most = 0
    async with asyncrec.open_writer("x", storage=storage) as writer:
        for _ in range(12):
            await writer.write(bytes(3 << 20))
            assert writer._budget.used > 0
            most = max(most, writer._budget.used)
        with anyio.move_on_after(0.01):
            while True:
                await writer.write(bytes(3 << 20))
        assert writer.stats().seconds_waiting > 0
    assert most <= 8 << 20
    assert writer._budget.used == 0
    with pytest.raises(anyio.ClosedResourceError):
        await writer.write(bytes(3 << 20))
    assert writer._budget.used == 0
