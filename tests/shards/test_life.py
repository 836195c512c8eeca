"""The lock that proves, on a store writer's own machine, that the writer is dead or alive, and the folder of locks."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

import anyio.lowlevel
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.storage._local import mounts

from .mortal import dies

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "asyncrec"


def locks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def state(storage: Storage) -> str:
    """Return what this machine knows about the only writer: "alive", "dead" or "unknown"."""
    [dataset] = (await tools.info("pages", storage=storage)).datasets
    [writer] = dataset.writers
    return writer.state


async def test_lock_is_held_only_by_living_writer(folder: Path) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w"):
        [name] = locks(folder)
        assert (folder.stat().st_mode & 0o777, (folder / name).stat().st_mode & 0o077) == (0o700, 0)
        assert await state(storage) == "alive"
        assert (await asyncrec.recover("pages", storage=storage)).in_use == ("w",)
        assert locks(folder) == [name]
    assert locks(folder) == []
    storage = MemoryStorage()
    await dies(storage, writer_id="v")
    assert len(locks(folder)) == 1
    assert await state(storage) == "dead"
    assert (await asyncrec.recover("pages", storage=storage)).lost == ("v",)
    assert locks(folder) == []


@pytest.mark.parametrize("token", ["0123456789abcdef", "../x", "", "a.lock"])
async def test_unknown_lock_token_proves_nothing(folder: Path, tmp_path: Path, token: str) -> None:
    storage = MemoryStorage()
    await dies(storage, writer_id="w")
    mark = json.loads(await storage.get("_manifest/pages/w-000000.jsonl"))
    await storage.put("_manifest/pages/w-000000.jsonl", json.dumps(mark | {"life": token}).encode())
    (tmp_path / "x.lock").touch()
    recovery = await asyncrec.recover("pages", storage=storage)
    assert (recovery.lost, recovery.abandoned) == ((), ())
    assert len(locks(folder)) == 1


@pytest.mark.parametrize(("kind", "proves"), [("ext4", True), ("nfs4", False), ("fuse.sshfs", False), ("", False)])
async def test_lock_of_earlier_boot_proves_death_on_local_filesystem(
    folder: Path, kind: str, proves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock on a local file system from an earlier boot proves death, even if the host name has changed since."""
    monkeypatch.setattr(mounts, "mount_of", lambda fd: (kind, "0:1"))
    storage = MemoryStorage()
    await dies(storage)
    monkeypatch.setattr(mounts.socket, "gethostname", lambda: "another")
    assert await state(storage) == "dead", "of this boot"
    [name] = locks(folder)
    for content in ("another-boot 0:1", ""):
        (folder / name).write_text(content)
        assert await state(storage) == ("dead" if proves else "unknown")


async def test_symlinked_lock_leaves_writer_state_unknown(folder: Path, tmp_path: Path) -> None:
    storage = MemoryStorage()
    await dies(storage)
    [name] = locks(folder)
    (folder / name).rename(tmp_path / "file")
    (folder / name).symlink_to(tmp_path / "file")
    assert await state(storage) == "unknown"


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
async def test_writer_warns_about_lock_folder_writable_by_others(
    folder: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Other users can write to the folder that contains the locks."""
    folder.mkdir()
    folder.chmod(mode)
    async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()) as writer:
        await writer.write(b"record")
        assert locks(folder) == []
    [record] = [each for each in caplog.records if "XDG_RUNTIME_DIR" in each.getMessage()]
    assert (record.levelname, f"{folder}: other users can write to this folder" in record.getMessage()) == (
        "WARNING",
        True,
    )


async def test_locks_older_than_a_month_are_removed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process cleans up a folder once; the same folder under a different name counts as a different one."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("alive", storage=storage):
        [held] = locks(folder)
        await dies(storage)
        [left] = set(locks(folder)) - {held}
        for name in ("something", "young.lock"):
            (folder / name).touch()
        month = time.time() - 31 * 86400
        for name in (held, left, "something"):
            os.utime(folder / name, (month, month))
        async with asyncrec.open_sharded_writer("others", storage=storage):
            assert left in locks(folder)
        monkeypatch.setenv("XDG_RUNTIME_DIR", f"{folder.parent}/.")
        async with asyncrec.open_sharded_writer("others", storage=storage):
            assert left not in locks(folder)
        assert locks(folder) == sorted([held, "something", "young.lock"])


async def test_lock_of_rejected_writer_is_kept_for_a_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer's mark may reach the store late, because the backend may have sent the request twice."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w"):
        with pytest.raises(asyncrec.ObjectExistsError, match="id w"):
            async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w"):
                pass
    [kept] = locks(folder)
    now = time.time()
    for hours, left in ((23, [kept]), (25, [])):
        with monkeypatch.context() as patches:
            patches.setenv("XDG_RUNTIME_DIR", f"{folder.parent}{'/.' * hours}")
            patches.setattr(time, "time", lambda hours=hours: now + hours * 3600)
            async with asyncrec.open_sharded_writer("others", storage=storage):
                pass
        assert locks(folder) == left


async def test_locks_use_temporary_folder_without_runtime_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "not there"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()):
        assert len(locks(tmp_path / f"asyncrec-{os.geteuid()}")) == 1


async def test_writer_opens_without_writable_folder(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In a container with a read-only file system, a store writer works and recovers the records of other writers."""

    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/']")

    storage = MemoryStorage()
    await dies(storage, writer_id="elsewhere")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr(tempfile, "gettempdir", none)
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as writer:
        await writer.write(b"record", key="key")
        assert await writer.flush() == "spooled"
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 1
    assert [job.id for job in (await asyncrec.recover("pages", storage=storage)).unfinished] == ["elsewhere"]
    [warning] = [each.getMessage() for each in caplog.records if "XDG_RUNTIME_DIR" in each.getMessage()]
    assert "No usable temporary directory" in warning


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # its native cancellation loses a thread's result
async def test_lock_taken_for_cancelled_caller_is_released(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next process that checks must still be able to prove that the job is dead."""
    storage = MemoryStorage()
    await dies(storage)
    taken, go, flock = threading.Event(), threading.Event(), fcntl.flock

    def slow(fd: int, operation: int) -> None:
        flock(fd, operation)
        taken.set()
        go.wait(30)

    with monkeypatch.context() as patches:
        patches.setattr(fcntl, "flock", slow)
        task = asyncio.ensure_future(asyncrec.recover("pages", storage=storage))
        while not taken.is_set():
            await anyio.lowlevel.checkpoint()
        task.cancel()
        await anyio.lowlevel.checkpoint()
        go.set()
        with suppress(asyncio.CancelledError):
            await task
    while await state(storage) == "alive":  # until the thread has ended
        await anyio.lowlevel.checkpoint()
    assert await state(storage) == "dead"
    assert len(locks(folder)) == 1
