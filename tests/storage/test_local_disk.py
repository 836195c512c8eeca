"""`open_own` only opens regular files that the user owns, and rejects anything else with that name."""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from asyncrec.errors import ObjectExistsError, ObjectNotFoundError, StorageError, StoragePermissionError
from asyncrec.storage._local.opening import open_own

LOCK = os.O_RDWR | os.O_CREAT


class OwnedBy:
    """A replacement for `os` in which every file is owned by ``user``."""

    def __init__(self, user: int) -> None:
        self.user = user

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fstat(self, fd: int) -> Any:
        status = os.fstat(fd)
        return SimpleNamespace(st_mode=status.st_mode, st_nlink=status.st_nlink, st_uid=self.user)


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(b"precious")
    return path


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Any:
    before = len(os.listdir("/proc/self/fd"))
    yield
    assert len(os.listdir("/proc/self/fd")) == before


def refused(path: Path, text: str, flags: int = LOCK | os.O_TRUNC, **kwargs: Any) -> StorageError:
    with pytest.raises(StorageError, match=text) as caught:
        open_own(str(path), flags, **kwargs)
    assert str(path) in str(caught.value)
    return caught.value


def test_open_own_creates_file_only_user_reads(tmp_path: Path) -> None:
    os.close(open_own(str(tmp_path / "lock"), LOCK))
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o600


def test_file_mode_is_chosen_by_caller(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        os.close(open_own(str(tmp_path / "lock"), LOCK, 0o666))
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o644


def test_own_file_is_truncated_only_on_request(victim: Path) -> None:
    fd = open_own(str(victim), LOCK)
    assert os.read(fd, 100) == b"precious"
    os.close(fd)
    os.close(open_own(str(victim), LOCK | os.O_TRUNC))
    assert victim.read_bytes() == b""


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, LOCK, LOCK | os.O_TRUNC])
def test_symbolic_link_is_rejected_without_touching_target(tmp_path: Path, victim: Path, flags: int) -> None:
    (tmp_path / "lock").symlink_to(victim)
    assert refused(tmp_path / "lock", "it is a symbolic link", flags).errno == errno.ELOOP
    assert victim.read_bytes() == b"precious"


def test_dangling_link_is_rejected_without_creating_target(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "made")
    refused(tmp_path / "lock", "it is a symbolic link")
    assert not (tmp_path / "made").exists()


def test_circular_links_above_file_raise_distinct_error(tmp_path: Path) -> None:
    (tmp_path / "round").symlink_to(tmp_path / "round")
    refused(tmp_path / "round" / "lock", "lock: Too many levels of symbolic links; the symbolic links form a loop")


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR, LOCK | os.O_TRUNC])
def test_pipe_is_rejected_without_waiting(tmp_path: Path, flags: int) -> None:
    os.mkfifo(tmp_path / "lock")
    refused(tmp_path / "lock", "not a regular file", flags)


def test_socket_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's address is limited in length
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("lock")
        refused(tmp_path / "lock", "not a regular file", os.O_RDONLY)


@pytest.mark.parametrize(("flags", "text"), [(os.O_RDONLY, "not a regular file"), (LOCK, "a file|folder|directory")])
def test_folder_is_rejected(tmp_path: Path, flags: int, text: str) -> None:
    refused(tmp_path, text, flags)


def test_hard_linked_file_is_rejected_before_truncation(tmp_path: Path, victim: Path) -> None:
    os.link(victim, tmp_path / "lock")
    refused(tmp_path / "lock", "lock: it has another hard link; asyncrec trusts only a regular file that this user")
    assert victim.read_bytes() == b"precious"
    os.close(open_own(str(tmp_path / "lock"), os.O_RDONLY, linked=True))


def test_file_of_another_user_is_rejected_naming_owner(victim: Path) -> None:
    error = refused(victim, f"belongs to user {os.geteuid() + 1}", system=OwnedBy(os.geteuid() + 1))
    assert isinstance(error, StoragePermissionError)
    assert victim.read_bytes() == b"precious"


def test_shared_lock_accepts_any_owner_but_no_link(tmp_path: Path, victim: Path) -> None:
    os.close(open_own(str(victim), os.O_RDWR, anyones=True, system=OwnedBy(os.geteuid() + 1)))
    (tmp_path / "lock").symlink_to(victim)
    refused(tmp_path / "lock", "it is a symbolic link", anyones=True)


def test_file_owned_by_root_is_trusted(victim: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 4242)
    os.close(open_own(str(victim), os.O_RDONLY, system=OwnedBy(0)))


def test_missing_own_file_raises_object_not_found(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError):
        open_own(str(tmp_path / "lock"), os.O_RDWR)


def test_file_removed_during_opening_is_not_found(victim: Path) -> None:
    class Removing(OwnedBy):
        def fstat(self, fd: int) -> Any:
            victim.unlink()
            return super().fstat(fd)

    with pytest.raises(ObjectNotFoundError):
        open_own(str(victim), os.O_RDWR, system=Removing(os.geteuid()))


def test_exclusive_creation_of_existing_file_raises_object_exists(victim: Path) -> None:
    with pytest.raises(ObjectExistsError):
        open_own(str(victim), LOCK | os.O_EXCL)
