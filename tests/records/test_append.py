"""``mode="a"``: appending to a local file in place."""

from __future__ import annotations

import gzip
import itertools
import os
import stat
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec._records import torn_end
from asyncrec._records.writing import append as append_module
from asyncrec.errors import CorruptRecordError, StorageError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


async def append(path: Path, *records: bytes, compression: str = "") -> None:
    async with asyncrec.open_writer(path, mode="a", compression=compression) as writer:
        await writer.write_many(records)


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_append_creates_and_continues_file(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "logs" / "events"
    await append(path, b"1", b"2", compression=compression)
    await append(path, compression=compression)
    await append(path, b"3", compression=compression)
    assert await asyncrec.read_records(path) == [b"1", b"2", b"3"]


async def test_growing_file_is_readable(tmp_path: Path) -> None:
    path = tmp_path / "events"
    async with asyncrec.open_writer(path, mode="a") as writer:
        for count in range(1, 5):
            await writer.write(b"event")
            assert await writer.flush(require="spooled") == "spooled"
            assert len(await asyncrec.read_records(path)) == count


@pytest.mark.parametrize("cut", range(1, 22))
async def test_append_truncates_torn_tail_and_keeps_earlier_records(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "events"
    await append(path, b"whole", b"torn!")
    path.write_bytes(path.read_bytes()[:-cut])
    await append(path, b"next")
    assert await asyncrec.read_records(path) == [b"whole", b"next"]


async def test_zeros_after_power_loss_are_truncated(tmp_path: Path) -> None:
    path = tmp_path / "events"
    await append(path, b"whole")
    path.write_bytes(path.read_bytes() + bytes(5000))
    await append(path, b"next")
    assert await asyncrec.read_records(path) == [b"whole", b"next"]


@pytest.mark.parametrize("zeros", [1, 100, 70_000, 3 << 20])
async def test_zeros_after_gzip_member_are_truncated_before_append(tmp_path: Path, zeros: int) -> None:
    """Readers that expect members without gaps, such as TensorFlow's zlib loop, would stop at the zeros."""
    path = tmp_path / "events"
    await append(path, b"whole", compression="GZIP")
    data = path.read_bytes()
    path.write_bytes(data + bytes(zeros))
    await append(path, b"next", compression="GZIP")
    assert await asyncrec.read_records(path) == [b"whole", b"next"]
    assert path.read_bytes()[len(data) : len(data) + 3] == b"\x1f\x8b\x08"


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("zeros", [0, 1, 12, 5000])
async def test_flushed_records_survive_any_torn_write_with_zeros(tmp_path: Path, compression: str, zeros: int) -> None:
    path = tmp_path / "events"
    await append(path, b"one" * 20, compression=compression)
    async with asyncrec.open_writer(path, mode="a", compression=compression) as writer:
        await writer.write(b"two" * 20)
        await writer.flush()
        flushed = path.stat().st_size
        await writer.write(bytes(range(40)))
        await writer.write(b"three")
    data = path.read_bytes()
    for end in range(flushed, len(data), 3):
        path.write_bytes(data[:end] + bytes(zeros))
        await append(path, b"next", compression=compression)
        found = await asyncrec.read_records(path)
        assert found[:2] == [b"one" * 20, b"two" * 20]
        assert found[-1] == b"next"
        assert len(found) <= 5
        if compression:
            gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_file_of_zeros_is_overwritten(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "events"
    path.write_bytes(bytes(5000))
    await append(path, b"next", compression=compression)
    assert await asyncrec.read_records(path) == [b"next"]


async def test_torn_record_longer_than_file_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "events"
    await append(path, b"whole", bytes(100_000))
    path.write_bytes(path.read_bytes()[:5000])
    await append(path, b"next")
    assert await asyncrec.read_records(path) == [b"whole", b"next"]


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_damage_before_zeros_still_raises(tmp_path: Path, compression: str) -> None:
    path = tmp_path / "events"
    await append(path, b"one" * 50, b"two", b"three", compression=compression)
    await append(path, b"four" * 50, compression=compression)
    for at in (13, 40):
        data = bytearray(path.read_bytes() + bytes(100))
        data[at] ^= 0x55
        (tmp_path / "damaged").write_bytes(data)
        with pytest.raises(CorruptRecordError, match="damaged"):
            await append(tmp_path / "damaged", b"next", compression=compression)
        assert (tmp_path / "damaged").read_bytes() == data


async def test_torn_gzip_member_keeps_its_flushed_records(tmp_path: Path) -> None:
    path = tmp_path / "events"
    await append(path, b"member one", compression="GZIP")
    async with asyncrec.open_writer(path, mode="a", compression="GZIP") as writer:
        await writer.write(b"flushed")
        await writer.flush()
        torn = path.read_bytes()
    path.write_bytes(torn + b"\x4a\x4c")
    await append(path, b"next", compression="GZIP")
    assert await asyncrec.read_records(path) == [b"member one", b"flushed", b"next"]
    gzip.decompress(path.read_bytes())


async def test_torn_member_is_completed_despite_short_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes may be short on a disk that is nearly full or reached over a network."""
    path = tmp_path / "events"
    async with asyncrec.open_writer(path, mode="a", compression="GZIP") as writer:
        await writer.write(b"flushed")
        await writer.flush()
        torn = path.read_bytes()
    path.write_bytes(torn)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, memoryview(data)[:3], position))
    await append(path, b"next", compression="GZIP")
    assert await asyncrec.read_records(path) == [b"flushed", b"next"]
    assert gzip.decompress(path.read_bytes())


@pytest.mark.parametrize("torn", range(1, 12))
async def test_member_torn_at_start_keeps_earlier_members(tmp_path: Path, torn: int) -> None:
    path = tmp_path / "events"
    await append(path, b"one", compression="GZIP")
    size = path.stat().st_size
    await append(path, b"two", compression="GZIP")
    path.write_bytes(path.read_bytes()[: size + torn])
    await append(path, b"next", compression="GZIP")
    assert await asyncrec.read_records(path) == [b"one", b"next"]


async def test_damage_before_end_prevents_append(tmp_path: Path) -> None:
    path = tmp_path / "events"
    await append(path, b"one", b"two", b"three")
    data = bytearray(path.read_bytes())
    data[13] ^= 1
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError, match="events"):
        await append(path, b"next")
    assert path.read_bytes() == data


async def test_exception_in_body_keeps_complete_records_only(tmp_path: Path) -> None:
    path = tmp_path / "events"
    with pytest.raises(RuntimeError):
        async with asyncrec.open_writer(path, mode="a") as writer:
            await writer.write(b"flushed")
            await writer.flush()
            await writer.write_many([bytes(100_000)] * 20)
            raise RuntimeError
    records = await asyncrec.read_records(path)
    assert records[0] == b"flushed"
    assert set(map(len, records[1:])) <= {100_000}


async def test_second_writer_cannot_append_to_open_file(tmp_path: Path) -> None:
    async with asyncrec.open_writer(tmp_path / "x", mode="a") as writer:
        await writer.write(b"mine")
        with pytest.raises(StorageError, match="another writer"):
            await append(tmp_path / "x", b"yours")
    await append(tmp_path / "x", b"later")
    assert await asyncrec.read_records(tmp_path / "x") == [b"mine", b"later"]


async def test_append_rejects_stores_zlib_and_other_compression(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="only local files"):
        async with asyncrec.open_writer("x", mode="a", storage=MemoryStorage()):
            pass
    with pytest.raises(ValueError, match="use GZIP"):
        await append(tmp_path / "x", compression="ZLIB")
    await asyncrec.write_records(tmp_path / "gz", [b"1"], compression="GZIP")
    with pytest.raises(ValueError, match="compression='GZIP'"):
        await append(tmp_path / "gz", b"2")


@pytest.mark.parametrize("fails", ["_write", "sync"])
async def test_failing_disk_raises_and_keeps_flushed_records(
    tmp_path: Path, fails: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "events"
    await append(path, b"before")

    def fail(*args: object) -> None:
        raise StorageError("the disk is full, as asked")

    with pytest.raises(StorageError, match="the disk is full"):
        async with asyncrec.open_writer(path, mode="a") as writer:
            await writer.write(b"flushed")
            await writer.flush()
            monkeypatch.setattr(append_module._AppendSink, fails, fail)
            await writer.write(b"lost")
    monkeypatch.undo()
    assert (await asyncrec.read_records(path))[:2] == [b"before", b"flushed"]
    await append(path, b"next")
    assert (await asyncrec.read_records(path))[-1] == b"next"


class Disk:
    """Replace functions of `os` by those of a disk with short writes, and log the operations on the file."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, most: int = 1 << 30) -> None:
        self.log: list[str] = []
        self.most = most
        for name in ("pwrite", "fsync", "ftruncate"):
            monkeypatch.setattr(append_module.os, name, getattr(self, name)(getattr(os, name)))

    def pwrite(self, real: Any) -> Any:
        def pwrite(fd: int, data: Any, offset: int) -> int:
            self.log.append("write")
            return int(real(fd, data[: self.most], offset))

        return pwrite

    def fsync(self, real: Any) -> Any:
        def fsync(fd: int) -> None:
            self.log.append("sync folder" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync")
            real(fd)

        return fsync

    def ftruncate(self, real: Any) -> Any:
        def ftruncate(fd: int, size: int) -> None:
            self.log.append(f"cut to {size}")
            real(fd, size)

        return ftruncate

    def taken(self) -> list[str]:
        """Return the operations since the last call of this method, with consecutive repetitions merged."""
        log, self.log = self.log, []
        return [what for what, _ in itertools.groupby(log)]


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_short_disk_writes_keep_every_byte_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    path = tmp_path / "events"
    Disk(monkeypatch, most=7)
    records = [bytes([number]) * 100 for number in range(20)]
    async with asyncrec.open_writer(path, mode="a", compression=compression) as writer:
        for record in records:
            await writer.write(record)
            await writer.flush()
    await append(path, b"next", compression=compression)
    assert await asyncrec.read_records(path) == [*records, b"next"]


async def test_flush_and_close_sync_after_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of a new file is synced, too, before anything is written to the file."""
    disk = Disk(monkeypatch)
    async with asyncrec.open_writer(tmp_path / "events", mode="a") as writer:
        assert disk.taken()[-1] == "sync folder"
        await writer.write(b"flushed")
        await writer.flush()
        assert disk.taken() == ["write", "sync"]
        await writer.write(b"closed")
    assert disk.taken() == ["write", "sync"]


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_torn_tail_is_truncated_and_synced_before_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    path = tmp_path / "events"
    await append(path, b"whole", compression=compression)
    size = path.stat().st_size
    await append(path, b"torn", compression=compression)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    disk = Disk(monkeypatch)
    async with asyncrec.open_writer(path, mode="a", compression=compression):
        log = disk.taken()
        assert log[-1] == "sync", "what is appended next must not stand behind what a power cut brings back"
        assert [what for what in log if what.startswith("cut")]
        assert compression or path.stat().st_size == size
    await append(path, compression=compression)
    disk.taken()
    async with asyncrec.open_writer(path, mode="a", compression=compression):
        assert not [what for what in disk.taken() if what != "sync folder"]


async def test_exception_truncates_torn_record_and_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk accepts only half of a record, but a later reader finds no torn record in the file."""
    path = tmp_path / "events"
    await append(path, b"before")
    size = path.stat().st_size
    real = os.pwrite

    def half(fd: int, data: Any, offset: int) -> int:
        if offset > size:
            raise OSError(28, "No space left on device")
        return real(fd, data[: len(data) // 2], offset)

    monkeypatch.setattr(append_module.os, "pwrite", half)
    with pytest.raises(StorageError, match="events"):
        await append(path, b"half of this")
    assert path.stat().st_size == size
    monkeypatch.undo()
    assert await asyncrec.read_records(path) == [b"before"]


async def test_rejected_file_is_closed_and_unlocked(tmp_path: Path) -> None:
    """If the file is damaged, differently compressed or in use, no descriptor or lock is leaked."""
    path = tmp_path / "events"
    await append(path, b"one" * 20, b"two")
    whole = path.read_bytes()
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="uncompressed; append to it with compression=''"):
        await append(path, b"next", compression="GZIP")
    path.write_bytes(whole[:20] + b"?" + whole[21:])
    with pytest.raises(CorruptRecordError):
        await append(path, b"next")
    path.write_bytes(whole)
    await append(path, b"next")
    assert len(os.listdir("/proc/self/fd")) <= len(before)
    assert await asyncrec.read_records(path) == [b"one" * 20, b"two", b"next"]


async def test_published_size_includes_earlier_content(tmp_path: Path) -> None:
    await append(tmp_path / "events", b"before")
    async with asyncrec.open_writer(tmp_path / "events", mode="a") as writer:
        await writer.write(b"next")
    assert writer.published is not None
    assert writer.published.size == (tmp_path / "events").stat().st_size == 22 + 20


async def test_unopenable_file_is_named_in_error(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    with pytest.raises(StorageError, match="events"):
        await append(tmp_path / "events", b"next")


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_file_is_scanned_in_bounded_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str
) -> None:
    """The zeros at the end of the file are also scanned in blocks."""
    path = tmp_path / "events"
    await append(path, *[os.urandom(100_000)] * 30, compression=compression)
    path.write_bytes(path.read_bytes() + bytes(3 << 20))
    sizes: list[int] = []
    real = torn_end.read_at

    def read_at(fd: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return real(fd, size, offset)

    monkeypatch.setattr(torn_end, "read_at", read_at)
    await append(path, b"next", compression=compression)
    assert len(sizes) > 5
    assert max(sizes) <= 1 << 20
    assert len(await asyncrec.read_records(path)) == 31
