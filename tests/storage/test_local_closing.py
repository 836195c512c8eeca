"""Which thread closes a local file that was read: to close one may take long, and the event loop has no time."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from asyncrec.storage._local import source as local_source
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio


class System:
    """`os`, of a disk whose cache can be asked or, as on NFS and FUSE, cannot; and which thread closed something."""

    def __init__(self, *, asked: bool) -> None:
        self.closed_by: list[int] = []
        self._asked = asked

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

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
async def test_a_source_closes_on_the_loop_only_a_file(
    tmp_path: Path, asked: bool, removed: bool, on_loop: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").write_bytes(b"content")
    system = System(asked=asked)
    storage = LocalStorage(tmp_path, system=system)
    monkeypatch.setattr(storage.disk, "lives_in_memory", lambda device: False)  # whatever the tests' folder is on
    monkeypatch.setattr(local_source, "os", system)
    async with storage.open_source("x") as source:
        assert await source.receive(7) == b"content"
        if removed:
            (tmp_path / "x").unlink()
    assert [closer == threading.get_ident() for closer in system.closed_by] == [on_loop]
