"""Which thread closes a local file after reading it: closing may be slow, and must not block the event loop."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from asyncrec.storage._local import source as local_source
from asyncrec.storage._local.disk import Disk, Place
from asyncrec.storage._local.open_files import OpenFiles
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio


class System:
    """A replacement for `os` that records closes; like NFS and FUSE, it cannot tell what is cached unless ``asked``."""

    def __init__(self, *, asked: bool) -> None:
        self.closed_by: list[int] = []
        self.stale = False
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fstat(self, fd: int) -> os.stat_result:
        if self.stale:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return os.fstat(fd)

    def preadv(self, *args: Any) -> int:
        if not self._asked:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")
        return os.preadv(*args[:3])

    def close(self, fd: int) -> None:
        self.closed_by.append(threading.get_ident())
        os.close(fd)


@pytest.mark.parametrize(
    ("asked", "removed", "on_loop"),
    [(True, False, True), (True, True, False), (False, False, False)],
    ids=["that is there", "that was removed, whose content it frees", "of a server that is told"],
)
async def test_source_closes_on_loop_only_file(
    tmp_path: Path, asked: bool, removed: bool, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"content")
    system = System(asked=asked)
    storage = LocalStorage(tmp_path, system=system)
    monkeypatch.setattr(storage.disk, "lives_in_memory", lambda device: False)  # wherever the tests' folder is
    monkeypatch.setattr(local_source, "os", system)
    async with storage.open_source("x") as source:
        assert await source.receive(7) == b"content"
        if removed:
            (tmp_path / "x").unlink()
    assert [closer == threading.get_ident() for closer in system.closed_by] == [on_loop]


async def test_stale_file_is_not_closed_on_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x").write_bytes(b"content")
    system = System(asked=True)
    storage = LocalStorage(tmp_path, system=system)
    monkeypatch.setattr(local_source, "os", system)
    async with storage.open_source("x"):
        system.stale = True
    assert [closer == threading.get_ident() for closer in system.closed_by] == [False]


async def test_files_with_descriptor_zero_are_closed(tmp_path: Path) -> None:
    """The first file that is opened gets the descriptor 0."""
    (tmp_path / "x").write_bytes(b"content")
    storage = LocalStorage(tmp_path)
    await storage.get("x")  # anything that opens further files has done so now
    kept = OpenFiles(Disk())
    standard_input = os.dup(0)
    try:
        os.close(0)
        async with storage.open_source("x") as source:
            assert os.fstat(0).st_size == 7
            assert await source.receive(7) == b"content"
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(0)
        file = kept.open("x", Place(key="x", path=str(tmp_path / "x"), shown="x"), lambda info: True)
        assert file is not None
        assert os.fstat(0).st_size == 7
        kept.close()
        file.close()
        with pytest.raises(OSError, match="descriptor"):
            os.fstat(0)
    finally:
        os.dup2(standard_input, 0)
        os.close(standard_input)
