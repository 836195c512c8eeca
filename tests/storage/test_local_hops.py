"""How often a source that reads a local file waits for a worker thread."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing._checks import content

pytestmark = pytest.mark.anyio


class Network:
    """A replacement for `os` that cannot tell what is cached, as on a network file system."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def preadv(self, *args: Any) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


async def test_large_record_takes_one_thread_hop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The header that follows a record's body is read together with the body."""
    header, body = 12, 2 << 20
    data = content(3 * (header + body))
    (tmp_path / "x").write_bytes(data)
    storage = LocalStorage(tmp_path, system=Network())
    monkeypatch.setattr(storage.disk, "lives_in_memory", lambda device: False)
    hops: list[int] = []
    read = storage.disk.in_thread

    async def in_thread(function: Callable[..., Any], *args: Any) -> Any:
        hops[-1] += 1
        return await read(function, *args)

    found = b""
    async with storage.open_source("x") as source:
        monkeypatch.setattr(storage.disk, "in_thread", in_thread)
        for _ in range(3):
            for size in (header, body):
                hops.append(0)
                block = await source.receive(size)
                assert len(block) == size
                found += block
        assert await source.receive(header) == b""
        monkeypatch.undo()
    assert found == data
    assert hops == [1, 1, 0, 1, 0, 1]


async def test_failed_cache_query_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading in a thread then returns the bytes or raises the error."""

    class Failing(Network):
        asked = 0

        def preadv(self, *args: Any) -> int:
            self.asked += 1
            if self.asked == 1:
                return os.preadv(*args[:3])  # the query at opening succeeds
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    (tmp_path / "x").write_bytes(content(100))
    system = Failing()
    storage = LocalStorage(tmp_path, system=system)
    monkeypatch.setattr(storage.disk, "lives_in_memory", lambda device: False)
    async with storage.open_source("x") as source:
        assert b"".join([await source.receive(10) for _ in range(10)]) == content(100)
    assert system.asked == 2
