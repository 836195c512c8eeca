"""Unfinished local files: which bytes are written twice, which files survive a fault, and who may remove them."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from asyncrec.errors import StorageError
from asyncrec.storage._local.disk import Disk, local_error
from asyncrec.storage._local.lock import FileLock, unlock
from asyncrec.storage._local.storage import BESIDE_CHUNK, LocalStorage
from asyncrec.testing._checks import content

pytestmark = pytest.mark.anyio


class System:
    """A replacement for `os` that counts the bytes given to `pwrite`, and can be told to fail when syncing a folder."""

    def __init__(self) -> None:
        self.rewritten: list[tuple[int, int]] = []
        self.folders_fail = False

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def pwrite(self, fd: int, data: bytes, position: int) -> int:
        self.rewritten.append((position, len(data)))
        return os.pwrite(fd, data, position)

    def fsync(self, fd: int) -> None:
        if self.folders_fail and os.path.isdir(f"/proc/self/fd/{fd}"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.fsync(fd)


async def test_flushed_bytes_are_not_rewritten_by_next_flush(tmp_path: Path) -> None:
    system = System()
    data = content(100)
    async with LocalStorage(tmp_path, chunk_size=1_000, system=system).open_sink("x") as sink:
        assert await sink.flush([data[:10]]) == 10
        assert await sink.flush([data[:10]]) == 10
        assert await sink.flush([data[:5], data[5:20], data[20:25]]) == 25
        assert await sink.flush([data[:25], data[25:40]]) == 40
        assert system.rewritten == [(0, 10), (10, 10), (20, 5), (25, 15)]
        await sink.send([data])
    assert (tmp_path / "x").read_bytes() == data


async def test_undurable_new_object_is_removed_but_flush_kept(tmp_path: Path) -> None:
    """An error means that nothing was published, but everything that a flush acknowledged can be recovered."""
    system = System()
    storage = LocalStorage(tmp_path, system=system)
    before = sorted(os.listdir("/proc/self/fd"))
    with pytest.raises(StorageError, match="the disk reported a failure"):
        async with storage.open_sink("x") as sink:
            await sink.flush([b"acknowledged"])
            await sink.send([b"acknowledged, and more"])
            system.folders_fail = True
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert [info async for info in storage.list_objects()] == []
    (unfinished,) = [info async for info in storage.list_unfinished()]
    assert await storage.get(unfinished.key) == b"acknowledged, and more"
    assert (tmp_path / unfinished.key).stat().st_mode & 0o777 == 0o600


async def test_removal_of_unfinished_file_keeps_second_link(tmp_path: Path) -> None:
    """A power cut can leave an exclusively published object with such a second link."""
    storage = LocalStorage(tmp_path)
    (tmp_path / ".x.w.partial").write_bytes(b"data")
    os.link(tmp_path / ".x.w.partial", tmp_path / "x")
    (unfinished,) = [info async for info in storage.list_unfinished()]
    await storage.remove_unfinished(unfinished)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


async def test_objects_are_written_on_filesystem_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only an explicitly requested lock raises an error there."""

    def flock(fd: int, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    storage = LocalStorage(tmp_path)
    await storage.put("x", b"data")
    assert await storage.get("x") == b"data"
    fd = os.open(tmp_path / "x", os.O_RDWR)
    unlock(fd)
    with pytest.raises(OSError, match="locks"):
        FileLock(fd, "x")
    with pytest.raises(OSError, match="descriptor"):
        os.fstat(fd)


def test_unlocked_file_is_lockable_while_still_open(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with open(tmp_path / "x") as one, open(tmp_path / "x") as other:
        fcntl.flock(one, fcntl.LOCK_EX)
        unlock(one.fileno())
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


async def test_writer_sidecars_use_small_chunks(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path, chunk_size=4 * BESIDE_CHUNK)
    sizes = [
        each.open_sink(key).chunk_size  # type: ignore[attr-defined]  # the sink is its own context manager
        for each in (storage, storage.owned_by("w"))
        for key in ("_index/x", "x")
    ]
    assert sizes == [4 * BESIDE_CHUNK, 4 * BESIDE_CHUNK, BESIDE_CHUNK, 4 * BESIDE_CHUNK]


async def test_deleting_folder_is_ignored_on_any_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS uses the same error for a folder and for a file that may not be removed."""

    class Mac(System):
        def unlink(self, path: Path) -> None:
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    storage = LocalStorage(tmp_path, system=Mac())
    await storage.delete("folder")
    with pytest.raises(StorageError, match="not permitted"):
        await storage.delete("file")


@pytest.mark.parametrize("prefix", ["a//", "/", "./", "a/./", "../", "a/../", "\0", "a\0/"])
async def test_invalid_prefix_lists_no_objects(tmp_path: Path, prefix: str) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").touch()
    (tmp_path / "y").touch()
    assert [info.key async for info in LocalStorage(tmp_path / "a").list_objects(prefix)] == []
    assert [info.key async for info in LocalStorage(tmp_path).list_objects(prefix)] == []


def test_error_advice_is_omitted_for_missing_objects() -> None:
    below_a_file = OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    assert str(local_error(below_a_file, "looking up", "a/b")) == f"looking up a/b: {os.strerror(errno.ENOTDIR)}"
    assert "choose another key" in str(local_error(below_a_file, "writing", "a/b"))


@pytest.mark.parametrize("memory", [True, False])
async def test_sink_reports_bytes_each_chunk_added_to_file(
    tmp_path: Path, memory: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LocalStorage(tmp_path)
    monkeypatch.setattr(storage.disk, "lives_in_memory", lambda device: memory)
    told: list[int] = []
    sink = storage.open_sink_of_zeros("x", 0)
    sink.on_sent = told.append
    async with sink:
        await sink.flush([b"abc"])
        for chunk in ([b"abc", b"def"], [b"g" * 10_000], []):
            await sink.send(chunk)
    assert told == [6, 10_000, 0]


def test_existing_name_is_not_overwritten_without_hard_links(tmp_path: Path) -> None:
    class NoLinks(System):
        def link(self, old: str, new: str) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    disk = Disk(NoLinks())
    (tmp_path / "partial").write_bytes(b"second")
    (tmp_path / "x").write_bytes(b"first")
    with pytest.raises(FileExistsError):
        disk.link(str(tmp_path / "partial"), str(tmp_path / "x"))
    assert (tmp_path / "x").read_bytes() == b"first"
    assert disk.link(str(tmp_path / "partial"), str(tmp_path / "y")) is False
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x", "y"]


@pytest.mark.parametrize("keep", [True, False])
async def test_flushed_file_is_kept_only_under_promise(tmp_path: Path, keep: bool) -> None:
    storage = LocalStorage(tmp_path).owned_by("w", keep=keep)
    assert storage.flush_level == ("spooled" if keep else "buffered")
    with pytest.raises(KeyError):
        async with storage.open_sink("x") as sink:
            assert await sink.flush([b"abc"]) == (3 if keep else 0)
            raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ([storage.partial_of("x").name] if keep else [])
