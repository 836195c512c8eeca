"""Encoding or decoding many small records one after another lets other tasks run in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from threading import get_ident
from types import SimpleNamespace

import anyio
import pytest
from anyio.lowlevel import checkpoint

import asyncrec
from asyncrec import FixedLen, Schema
from asyncrec._concurrency import turns
from asyncrec._concurrency.turns import Turns

pytestmark = pytest.mark.anyio

SCHEMA = Schema({"a": FixedLen((), "int64")})
ROWS = [{"a": number} for number in range(1000)]


@pytest.fixture(autouse=True)
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every step take a tenth of a millisecond."""
    clock = count()
    monkeypatch.setattr(turns, "time", SimpleNamespace(perf_counter=lambda: next(clock) * 0.0001))


@asynccontextmanager
async def turns_of_others() -> AsyncIterator[list[None]]:
    """Return a list that gets an item each time another task runs."""
    had: list[None] = []

    async def run() -> None:
        while True:
            await checkpoint()
            had.append(None)

    async with anyio.create_task_group() as group:
        group.start_soon(run)
        await checkpoint()
        yield had
        group.cancel_scope.cancel()


async def one_by_one(writer: asyncrec.RecordWriter | asyncrec.ShardedWriter) -> None:
    for row in ROWS:
        await writer.write(row)


async def at_once(writer: asyncrec.RecordWriter | asyncrec.ShardedWriter) -> None:
    await writer.write_many(ROWS)


@pytest.mark.parametrize("write", [one_by_one, at_once])
@pytest.mark.parametrize("sharded", [False, True])
async def test_other_tasks_run_while_many_rows_are_written(
    tmp_path: Path, write: Callable[[asyncrec.RecordWriter | asyncrec.ShardedWriter], Awaitable[None]], sharded: bool
) -> None:
    opened = (asyncrec.open_sharded_writer if sharded else asyncrec.open_writer)(tmp_path / "a", schema=SCHEMA)
    async with opened as writer, turns_of_others() as had:
        had.clear()
        await write(writer)
        assert len(had) >= 150


async def test_other_tasks_run_while_many_examples_are_read(tmp_path: Path) -> None:
    await asyncrec.write_examples(tmp_path / "a", ROWS, schema=SCHEMA)
    async with asyncrec.open_reader(tmp_path / "a") as reader, turns_of_others() as had:
        examples = reader.examples(SCHEMA)
        await anext(examples)  # all records are already available
        had.clear()
        assert len([example async for example in examples]) == len(ROWS) - 1
        assert len(had) >= 150


async def test_turns_run_only_large_steps_in_thread() -> None:
    work = Turns()
    assert await work.call(False, get_ident) == get_ident()
    assert await work.call(True, get_ident) != get_ident()


async def test_turns_count_failed_steps_and_skip_cancelled() -> None:
    work = Turns()
    for _ in range(6):
        with pytest.raises(ZeroDivisionError):
            await work.call(False, divmod, 1, 0)
    begun: list[int] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        await work.call(False, begun.append, 1)
    assert not begun
