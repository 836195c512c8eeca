"""`Life`: the lock that proves a job on this machine alive or dead, and the folder of such locks."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import asyncrec
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.ownership import liveness as life
from asyncrec._shards.ownership.liveness import Life, claim_life
from asyncrec.errors import StorageError, StoragePermissionError
from asyncrec.storage._local import mounts
from asyncrec.storage._memory import MemoryStorage


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(life, "_swept", set())
    return tmp_path / "asyncrec"


def locks(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_lives_cannot_be_taken_and_what_let_go_can(folder: Path) -> None:
    living = Life.begin()
    assert locks(folder) == [f"{living.token}.lock"]
    assert (folder.stat().st_mode & 0o777, (folder / locks(folder)[0]).stat().st_mode & 0o077) == (0o700, 0)
    with pytest.raises(StorageError) as caught:
        Life.take(living.token)
    assert caught.value.errno == 11
    living.end(keep=True)
    living.end()
    assert locks(folder) == [f"{living.token}.lock"], "kept, and ended once"
    dead = Life.take(living.token)
    assert dead is not None
    dead.end()
    assert locks(folder) == []
    assert Life.take(living.token) is None


@pytest.mark.parametrize("token", ["0123456789abcdef", "../x", "", "a.lock"])
def test_a_token_of_no_lock_here_proves_nothing(token: str) -> None:
    Life.begin().end(keep=True)
    assert Life.take(token) is None


@pytest.mark.parametrize(("kind", "proves"), [("ext4", True), ("nfs4", False), ("fuse.sshfs", False), ("", False)])
def test_a_lock_of_another_boot_proves_by_the_filesystem(
    folder: Path, kind: str, proves: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what one machine alone mounts it is a reboot, whatever the host is called by now."""
    monkeypatch.setattr(mounts, "mount_of", lambda fd: (kind, "0:1"))
    monkeypatch.setattr(mounts.socket, "gethostname", lambda: "another")
    living = Life.begin()
    living.end(keep=True)
    assert dead_by(living.token) is True, "of this boot"
    (folder / f"{living.token}.lock").write_text("another-boot 0:1")
    assert dead_by(living.token) is proves
    (folder / f"{living.token}.lock").write_text("")
    assert dead_by(living.token) is proves


def dead_by(token: str) -> bool:
    life = Life.take(token)
    assert life is not None
    life.end(keep=True)
    return life.dead


def test_a_link_under_the_name_of_a_lock_proves_nothing(folder: Path, tmp_path: Path) -> None:
    Life.begin().end()
    (tmp_path / "file").write_bytes(b"")
    (folder / "abc.lock").symlink_to(tmp_path / "file")
    assert Life.take("abc") is None


@pytest.mark.anyio
async def test_a_writer_to_a_store_warns_when_its_death_could_not_be_proven(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()) as writer:
        await writer.write(b"record")
    (record,) = [each for each in caplog.records if "XDG_RUNTIME_DIR" in each.getMessage()]
    assert (record.levelname, str(folder) in record.getMessage()) == ("WARNING", True)


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_folder_that_others_can_write_to_is_refused(folder: Path, mode: int) -> None:
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(StoragePermissionError, match="proves nothing"):
        Life.begin()


def test_locks_of_a_month_ago_are_removed_once_in_a_process_unless_they_are_held(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, left, other = Life.begin(), Life.begin(), folder / "something"
    left.end(keep=True)
    other.write_bytes(b"")
    (folder / "young.lock").write_bytes(b"")
    month = time.time() - 31 * 86400
    for name in (f"{held.token}.lock", f"{left.token}.lock", "something"):
        os.utime(folder / name, (month, month))
    Life.begin().end()
    assert f"{left.token}.lock" in locks(folder), "it was looked through by this process"
    monkeypatch.setattr(life, "_swept", set())
    Life.begin().end()
    assert locks(folder) == sorted([f"{held.token}.lock", "something", "young.lock"])
    held.end()


def test_what_is_kept_briefly_is_removed_after_a_day(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    living = Life.begin()
    living.end(keep=True, briefly=True)
    now = time.time()
    for hours, left in ((23, [f"{living.token}.lock"]), (25, [])):
        monkeypatch.setattr(life, "_swept", set())
        monkeypatch.setattr(life.time, "time", lambda hours=hours: now + hours * 3600)
        Life.begin().end()
        assert locks(folder) == left


def test_without_a_runtime_folder_it_is_one_of_this_user_among_the_temporary_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "not there"))
    monkeypatch.setattr(life.tempfile, "gettempdir", lambda: str(tmp_path))
    living = Life.begin()
    assert (tmp_path / f"asyncrec-{os.geteuid()}" / f"{living.token}.lock").exists()
    living.end()


@pytest.mark.parametrize("there", [True, False])
def test_what_was_taken_for_a_caller_that_is_collected_is_let_go_and_kept(
    folder: Path, there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks next can prove the job dead, too."""

    async def in_thread(func: Callable[[], object], *, limiter: object) -> None:
        func()
        await Never()

    class Never:
        def __await__(self) -> Generator[None, None, None]:
            yield

    living = Life.begin()
    living.end(keep=there)
    monkeypatch.setattr("asyncrec._concurrency.tasks.in_thread", in_thread)
    mark = JobHeader(
        kind="fixed",
        writer="w",
        name="pages",
        url="pages",
        metadata={},
        life=living.token,
    )
    waiting = claim_life(mark)
    waiting.send(None)
    waiting.close()
    assert locks(folder) == [f"{living.token}.lock"][:there]
    if there:
        dead = Life.take(living.token)
        assert dead is not None
        dead.end()
