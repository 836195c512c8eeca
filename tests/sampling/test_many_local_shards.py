"""One call that reads very many local shards opens few at once, and reads little on the event loop."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec.storage._local import open_files
from asyncrec.storage._local.storage import LocalStorage

pytestmark = pytest.mark.anyio

SHARDS = 60


class Counting:
    """Like `os`, but it notes the number of descriptors when a shard is opened, and counts the event loop's reads."""

    def __init__(self) -> None:
        self.most = 0
        self.on_loop = 0
        self._loop = threading.get_ident()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, *args: Any) -> int:
        self.most = max(self.most, len(os.listdir("/proc/self/fd")))
        return os.open(*args)

    def preadv(self, *args: Any) -> int:
        self.on_loop += threading.get_ident() == self._loop
        return os.preadv(*args[:3])  # without flags, so that it works on any file system


@pytest.mark.slow
@pytest.mark.parametrize("known", [False, True], ids=["first", "again"])
async def test_call_over_many_shards_opens_few_files_at_once(
    tmp_path: Path, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_files, "_MOST_OPEN", 8)
    records = [b"record %d" % number for number in range(2 * SHARDS)]
    async with asyncrec.open_sharded_writer(tmp_path / "pages", max_shard_records=2) as writer:
        await writer.write_many(records)
    system = Counting()
    async with asyncrec.open_dataset("pages", storage=LocalStorage(tmp_path, system=system)) as dataset:
        if known:
            await dataset.get_many(range(2 * SHARDS))
        before, system.most = len(os.listdir("/proc/self/fd")), 0
        assert await dataset.get_many(range(0, 2 * SHARDS, 2)) == records[::2]
        assert system.most <= before + 32


async def test_event_loop_reads_at_most_half_millisecond_per_shard(tmp_path: Path) -> None:
    records = [b"record %d" % number for number in range(2000)]
    async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
        await writer.write_many(records)
    system = Counting()
    async with asyncrec.open_dataset("pages", storage=LocalStorage(tmp_path, system=system)) as dataset:
        await dataset.get_many(range(2000))
        for count in (100, 1000):
            system.on_loop = 0
            assert await dataset.get_many(range(0, 2 * count, 2)) == records[: 2 * count : 2]
            assert system.on_loop == (count if count == 100 else 0)
