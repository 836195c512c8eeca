"""Shards that fill up at the same rate have to write at the same time; only a few do so in each turn of the loop."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec._records.writing.write_batch import BATCH_BYTES, WriteBatch
from asyncrec._shards.writing.writer import ShardedWriter
from asyncrec.storage._local.disk import Disk

pytestmark = pytest.mark.anyio

SHARDS = 16
# A call of `write_many` with a hundred of these passes two batches' worth of bytes, spread evenly over the shards.
RECORD = bytes((2 * BATCH_BYTES) // 100)
MOST = 6  # batches framed, or chunks written, on the loop in one turn: fewer than one for each of the 16 shards


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> Turns:
    monkeypatch.setattr(Disk, "lives_in_memory", lambda self, device: True)
    return Turns(monkeypatch)


class Turns:
    """Counts the long-running steps in each turn of the loop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.framed: Counter[int] = Counter()
        self.written: Counter[int] = Counter()
        self._now = 0
        loop = threading.get_ident()
        seal, writev = WriteBatch.seal, os.writev

        def counted_seal(batch: WriteBatch, *args: Any) -> None:
            self.framed[self._now] += 1
            seal(batch, *args)

        def counted_writev(fd: int, buffers: Sequence[Any]) -> int:
            size = writev(fd, buffers)
            if size > 64 << 10 and threading.get_ident() == loop:
                self.written[self._now] += 1
            return size

        monkeypatch.setattr(WriteBatch, "seal", counted_seal)
        monkeypatch.setattr(os, "writev", counted_writev)

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        async def count() -> None:
            while True:
                await checkpoint()
                self._now += 1

        async with anyio.create_task_group() as group:
            group.start_soon(count)
            yield
            group.cancel_scope.cancel()

    @property
    def most(self) -> int:
        return max([*self.framed.values(), *self.written.values()])


async def fill(writer: ShardedWriter, calls: int) -> None:
    for _ in range(calls):
        await writer.write_many([RECORD] * 100)


async def test_shards_filled_by_lists_take_turns_writing(tmp_path: Path, turns: Turns) -> None:
    """This also holds after a flush, when all shards start over, and at the exit, when each has a last chunk."""
    async with turns.counting():
        async with asyncrec.open_sharded_writer(tmp_path / "pages", num_shards=SHARDS) as writer:
            await fill(writer, 40)
            await writer.flush()
            await fill(writer, 44)
        assert turns.framed.total() > 2 * SHARDS
        assert turns.written.total() > 2 * SHARDS
        assert turns.most <= MOST


@pytest.mark.parametrize("end", [ShardedWriter.flush, ShardedWriter.commit])
async def test_shards_flushed_or_committed_take_turns_writing(tmp_path: Path, turns: Turns, end: Any) -> None:
    async with turns.counting():
        async with asyncrec.open_sharded_writer(
            tmp_path / "pages", max_shard_bytes=1 << 30, open_shards=SHARDS
        ) as writer:
            await fill(writer, 8)
            await writer.flush()  # now all shards are open
            await fill(writer, 20)
            turns.framed.clear()
            turns.written.clear()
            await end(writer)
            assert turns.framed.total() > SHARDS // 2
            assert turns.most <= MOST, (turns.framed.most_common(3), turns.written.most_common(3))
