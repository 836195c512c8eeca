"""Each message is stored once even if the consumer is killed at any step, on a disk, with a spool, and in a store."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage

from .messages import LAST, SOURCES, consume, once, progress_of, stored
from .mortal import Killed, Process

pytestmark = pytest.mark.anyio

SMALL: dict[str, Any] = {"open_shards": 2, "max_shard_records": 7}
ALL = dict.fromkeys(SOURCES, LAST)


def size_of(journal: Path) -> int:
    """Return a journal's size, or 0 if its writer has just renamed it."""
    try:
        return journal.stat().st_size
    except FileNotFoundError:
        return 0


async def consumed(storage: Storage, after: int, **options: Any) -> bool:
    """Run a consumer that is killed after ``after`` steps; return whether it finished before that."""
    process = Process(storage, after=after)
    try:
        await consume(process.storage, since={}, **options)
    except StorageError:
        assert process.dead
    return not process.dead


async def goes_on(storage: Storage, **options: Any) -> None:
    """Run the next consumer, which continues after the messages that are stored."""
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
async def test_consumer_on_disk_stores_each_message_once(
    tmp_path: Path, first: int, step: int, compression: str
) -> None:
    for after in range(first, 1000, step):
        storage = LocalStorage(tmp_path / f"{after}")
        done = await consumed(storage, after, compression=compression, **SMALL)
        with suppress(ObjectNotFoundError):  # it may not have created anything
            await asyncrec.recover("pages", storage=storage)
        await goes_on(storage, **SMALL)
        left = [path.name for path in (tmp_path / f"{after}").rglob(".pages*")]
        assert left == []
        if done:
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("first", [7, pytest.param(3, marks=pytest.mark.slow)])
async def test_consumer_with_spool_stores_each_message_once(tmp_path: Path, first: int) -> None:
    """The killed process can no longer change the store or the spool, but the spool's files stay on disk."""
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
async def test_consumer_in_store_stores_each_message_once(first: int, flush_seconds: float | None) -> None:
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


@pytest.mark.parametrize("where", ["disk", "store"])
async def test_torn_position_is_dropped_entirely(tmp_path: Path, where: str) -> None:
    """This holds even if some of the position's records are on disk or in a flush entry."""
    storage: Storage = LocalStorage(tmp_path, chunk_size=1000) if where == "disk" else MemoryStorage()
    process = Process(storage)
    with suppress(Killed, StorageError):
        async with asyncrec.open_sharded_writer(
            "pages", storage=process.storage, memory_limit=32 << 20, flush_seconds=None if where == "disk" else 1
        ) as writer:
            await writer.write(b"before")
            await writer.write(b"0", source="q", position=0)
            await writer.flush()
            if where == "disk":
                (journal,) = tmp_path.glob(".pages-*.partial")
                flushed = journal.stat().st_size
            else:
                process.at = "_flush/pages/"  # the first entry exists; kill it at the next, the first of three
                process.done = True
            with suppress(StorageError):
                await writer.write_many([b"1 %d" % n * 500 for n in range(4000)], source="q", position=1)
                if where == "disk":
                    with anyio.fail_after(10):
                        while journal.stat().st_size < flushed + 100_000:
                            await anyio.lowlevel.checkpoint()
                else:
                    await writer.flush()
            process.kill()
            raise Killed
    assert process.dead
    await asyncrec.recover("pages", storage=storage)
    assert await stored(storage) == {b"before": 1, b"0": 1}
    assert await progress_of(storage) == {"q": (1, 0)}


async def test_torn_large_first_message_is_dropped(tmp_path: Path) -> None:
    """The message's first batch contains records but no position yet."""
    storage = LocalStorage(tmp_path, chunk_size=1000)
    process = Process(storage)
    with suppress(Killed, StorageError):
        async with asyncrec.open_sharded_writer("pages", storage=process.storage, memory_limit=32 << 20) as writer:
            await writer.write_many([b"0 %d" % n * 500 for n in range(4000)], source="q", position=0)
            with anyio.fail_after(10):
                while not any(size_of(journal) > 100_000 for journal in tmp_path.glob(".pages-*.tfrecord.*")):
                    await anyio.lowlevel.checkpoint()
            process.kill()
            raise Killed
    assert process.dead
    await asyncrec.recover("pages", storage=storage)
    assert (await stored(storage), await progress_of(storage)) == ({}, {})


async def test_positions_wait_for_commit_of_earlier_shard(tmp_path: Path) -> None:
    """If the first of two spooled shards cannot be uploaded, the second one must not be committed either."""
    storage, spool = MemoryStorage(), tmp_path / "spool"
    with suppress(Killed, StorageError):
        async with asyncrec.open_sharded_writer(
            "pages", storage=Down(storage), spool=spool, max_shard_records=2
        ) as writer:
            for position in range(5):
                await writer.write(b"%d" % position, source="q", position=position)
            await writer.flush()
            raise Killed
    first, *others = sorted([*spool.glob("pages-*.tfrecord"), *spool.glob(".pages-*.tfrecord.*")], key=shard_in)
    assert len(others) >= 2
    os.link(first, tmp_path / "another name")
    with pytest.raises(StorageError, match="another hard link"):
        await asyncrec.recover(spool, to="pages", storage=storage)
    assert (await stored(storage), await progress_of(storage)) == ({}, {})
    (tmp_path / "another name").unlink()
    await asyncrec.recover(spool, to="pages", storage=storage)
    assert await stored(storage) == {b"%d" % position: 1 for position in range(5)}
    assert await progress_of(storage) == {"q": (1, 4)}


async def test_failed_writer_leaves_no_descriptor_open(tmp_path: Path) -> None:
    """The writer's complete shards, each with its positions, are in the spool, waiting for a store that is down."""
    with pytest.raises(StorageError):
        async with asyncrec.open_sharded_writer(
            "pages", storage=Down(MemoryStorage()), spool=tmp_path, max_shard_records=2, exit_timeout=0.1
        ) as writer:
            for position in range(7):
                await writer.write(b"%d" % position, source="q", position=position)
            await writer.flush()
            raise StorageError("the body fails")
    held = [os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.exists()]
    assert [path for path in held if str(tmp_path) in path] == []
    assert len(list(tmp_path.glob("_progress/.*"))) == 4


class Down(FlakyStorage):
    """A store that accepts no shards."""

    async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
        if key.endswith(".tfrecord"):
            raise TransientStorageError("down")
        return await call()


def shard_in(path: Path) -> str:
    return path.name.removeprefix(".")
