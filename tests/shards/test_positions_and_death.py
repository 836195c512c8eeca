"""A consumer is killed at each step: behind it each message is stored once, on a disk, through a spool, in a store."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

from .messages import LAST, SOURCES, consume, once, progress_of, stored, turns
from .mortal import Process

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("turns")]

__all__ = ["turns"]

SMALL: dict[str, Any] = {"open_shards": 2, "max_shard_records": 7}
ALL = dict.fromkeys(SOURCES, LAST)


async def consumed(storage: Storage, after: int, **options: Any) -> bool:
    """A consumer that is killed after so many steps; whether it came to its end before."""
    process = Process(storage, after=after)
    try:
        await consume(process.storage, since={}, **options)
    except StorageError:
        assert process.dead
    return not process.dead


async def goes_on(storage: Storage, **options: Any) -> None:
    """The next consumer, which reads the messages behind what is stored."""
    since = await progress_of(storage)
    before = await stored(storage)
    for source, (_, position) in since.items():
        there = {record for record in before if record.startswith(source.encode())}
        assert {
            record for record in once() if record.startswith(source.encode()) and int(record.split()[1]) <= position
        } <= there
    await consume(storage, since=since, **options)
    assert await stored(storage) == once()
    assert {source: position for source, (_, position) in (await progress_of(storage)).items()} == ALL


STEPS = [pytest.param(first, 5, "GZIP" if first == 1 else "", marks=pytest.mark.slow) for first in range(5)]


@pytest.mark.parametrize(("first", "step", "compression"), [(5, 31, "GZIP"), *STEPS])
async def test_each_message_is_stored_once_on_a_disk(tmp_path: Path, first: int, step: int, compression: str) -> None:
    for after in range(first, 1000, step):
        storage = LocalStorage(tmp_path / f"{after}")
        done = await consumed(storage, after, compression=compression, **SMALL)
        with suppress(ObjectNotFoundError):  # it may have made nothing
            await asyncrec.recover("pages", storage=storage)
        await goes_on(storage, **SMALL)
        left = [path.name for path in (tmp_path / f"{after}").rglob(".pages*")]
        assert left == []
        if done:
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("first", [7, pytest.param(3, marks=pytest.mark.slow)])
async def test_each_message_is_stored_once_through_a_spool(tmp_path: Path, first: int) -> None:
    """The store and the spool die with the process: its disk stays."""
    for after in range(first, 1000, 19):
        storage, spool = MemoryStorage(), tmp_path / f"{after}"
        done = await consumed(storage, after, spool=spool, **SMALL)
        await asyncrec.recover(spool, to="pages", storage=storage)
        await goes_on(storage, **SMALL)
        assert [path.name for path in spool.rglob("*.partial")] == []
        if done:
            return
    pytest.fail("it never came to its end")


@pytest.mark.virtual_clock
@pytest.mark.parametrize("first", [5, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3, 4))])
@pytest.mark.parametrize("flush_seconds", [1, None])
async def test_each_message_is_stored_once_in_a_store(first: int, flush_seconds: float | None) -> None:
    for after in range(first, 1000, 5):
        storage = MemoryStorage()
        done = await consumed(storage, after, flush_seconds=flush_seconds, **SMALL)
        with suppress(ObjectNotFoundError):
            await asyncrec.recover("pages", storage=storage)
        await goes_on(storage, **SMALL)
        assert [info.key async for info in storage.list_objects("_progress/")] == []
        assert (await tools.verify("pages", storage=storage)).orphans == []
        if done:
            return
    pytest.fail("it never came to its end")
