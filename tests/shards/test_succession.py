"""A living writer whose log was ended by another process continues in a new log; no record is lost or stored twice."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, ObjectExistsError, StorageError, TransientStorageError
from asyncrec.storage._memory import MemoryStorage

from . import mortal
from .flushing import RECORDS, flush_entries, stored, write
from .test_flush_races import Act, Meeting, on_another_machine

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("open_shards", [1, 3])
async def test_ended_writer_continues_in_new_log(
    compression: Any, open_shards: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    options: dict[str, Any] = {"compression": compression, "open_shards": open_shards, "writer_id": "w"}
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        await write(writer, RECORDS[:40])
        assert await writer.flush() == "spooled"
        await write(writer, RECORDS[40:60])  # only in memory
        await on_another_machine(storage)
        assert (await asyncrec.recover("pages", storage=storage, dead=["w"])).records == 40
        await write(writer, RECORDS[60:80])
        assert await writer.flush() in ("spooled", "committed")
        ticket = await writer.write(RECORDS[80], key=RECORDS[80])
        await writer.wait(ticket, "spooled")
        await write(writer, RECORDS[81:])
        assert writer.stats().committed_records >= 40
    assert writer.stats().committed_records == len(RECORDS)
    assert "it continues as" in caplog.text
    assert await stored(storage) == RECORDS
    assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()
    assert len(await flush_entries(storage)) == 1  # the fence
    assert (await tools.verify("pages", storage=storage)).orphans == []


@pytest.mark.slow(but=[f"-{place}]" for place in range(0, 40, 3)])
@pytest.mark.parametrize("place", range(40))
@pytest.mark.parametrize("done", [False, True])
async def test_writer_continues_after_being_ended_at_any_step(place: int, done: bool) -> None:
    """Another process ends the writer before or after each of the writer's own requests in turn."""
    storage = MemoryStorage()
    rng = random.Random(place)
    seen = 0
    end = partial(asyncrec.recover, "pages", storage=storage, dead=["w"])

    async def ended() -> None:
        await on_another_machine(storage)
        await end()

    def meet(what: str, key: str, was_done: bool) -> Act | None:
        nonlocal seen
        if was_done != done or what not in ("put", "publish", "open_sink", "send"):
            return None
        seen += 1
        return ended if seen == place + 3 else None  # after the opening

    options: dict[str, Any] = {"open_shards": 2, "max_shard_records": 17, "writer_id": "w"}
    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), **options) as writer:
        for at in range(0, 100, 5):
            await write(writer, RECORDS[at : at + 5])
            if rng.random() < 0.5:
                assert await writer.flush() != "buffered"
            elif rng.random() < 0.2:
                await writer.commit()
    assert await stored(storage) == RECORDS
    assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()
    assert (await tools.verify("pages", storage=storage)).orphans == []


async def test_writer_continues_after_being_ended_repeatedly() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        for at in range(0, 100, 10):
            await write(writer, RECORDS[at : at + 10])
            await writer.flush()
            for mark in [info.key async for info in storage.list_objects("_manifest/") if "-000000" in info.key]:
                await storage.put(mark, (await storage.get(mark)).replace(b'"life":"', b'"life":"0'))
                await asyncrec.recover("pages", storage=storage, dead=[mark[len("_manifest/pages/") : -13]])
    assert await stored(storage) == RECORDS
    assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()


async def test_unanswered_flush_entry_is_not_written_twice() -> None:
    """The entry took effect, and another process has adopted its records and deleted it."""
    storage = MemoryStorage()

    async def ended() -> None:
        await on_another_machine(storage)
        assert (await asyncrec.recover("pages", storage=storage, dead=["w"])).records == 50
        raise TransientStorageError("lost, as asked")

    lost = True

    def meet(what: str, key: str, done: bool) -> Act | None:
        nonlocal lost
        if lost and done and what == "put" and key == "_flush/pages/w-000001.frames":
            lost = False
            return ended
        return None

    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), writer_id="w") as writer:
        await write(writer, RECORDS[:50])
        await writer.flush()
        await write(writer, RECORDS[50:])
        await writer.flush()
    assert await stored(storage) == RECORDS


async def test_writer_abandoned_by_operator_fails() -> None:
    """The operator has deleted records that the writer had acknowledged as safe."""
    storage = MemoryStorage()
    with pytest.raises(ConflictError) as caught:
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
            await write(writer, RECORDS[:50])
            await writer.flush()
            await on_another_machine(storage)
            await asyncrec.recover("pages", storage=storage, abandon=["w"])
            await write(writer, RECORDS[50:])
            await writer.flush()
    assert "first record not stored has the ticket 1" in "".join(getattr(caught.value, "__notes__", ()))
    assert await flush_entries(storage) != []
    async with asyncrec.open_sharded_writer("pages", storage=storage):
        pass
    assert await asyncrec.list_shards("pages", storage=storage) == []


async def test_writer_waits_for_end_of_log_after_fence() -> None:
    """The process that made the fence died; a different one ends the log a minute later."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
        await write(writer, RECORDS[:50])
        await writer.flush()
        await on_another_machine(storage)
        other = mortal.Process(storage, "_flush/pages/w-", done=True)
        with pytest.raises(StorageError):
            await asyncrec.recover("pages", storage=other.storage, dead=["w"])
        await write(writer, RECORDS[50:])
        async with anyio.create_task_group() as group:
            group.start_soon(writer.flush)
            await anyio.sleep(60)
            await asyncrec.recover("pages", storage=storage, dead=["w"])
    assert await stored(storage) == RECORDS


@pytest.mark.parametrize("at", ["_flush/pages/w-", "_manifest/pages/w-"], ids=["at the fence", "at the end"])
@pytest.mark.parametrize("open_shards", [1, 3])
async def test_writer_ends_own_log_after_fence(at: str, open_shards: int) -> None:
    """The process that made the fence died before it could end the log, and no other process does so."""
    storage = MemoryStorage()
    options: dict[str, Any] = {"writer_id": "w", "dead_after": 100, "open_shards": open_shards}
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=30, **options) as writer:
        await write(writer, RECORDS[:50])
        await writer.flush()
        await on_another_machine(storage)
        other = mortal.Process(storage, at, done=at.startswith("_flush"))
        with pytest.raises(StorageError):
            await asyncrec.recover("pages", storage=other.storage, dead=["w"])
        await write(writer, RECORDS[50:])
        with anyio.fail_after(150):
            assert await writer.flush() != "buffered"
    assert await stored(storage) == RECORDS
    assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()
    assert len(await flush_entries(storage)) == 1  # the fence
    orphans = (await tools.verify("pages", storage=storage)).orphans
    assert [each for each in orphans if "w." not in each] == []  # left by the process that died


async def test_unanswered_shard_is_kept_after_recovery_by_another_writer() -> None:
    """The failing writer deletes no object that the end of its log lists."""
    storage = MemoryStorage()

    async def ended() -> None:
        await on_another_machine(storage)
        assert (await asyncrec.recover("pages", storage=storage, dead=["w"])).records == 20
        raise TransientStorageError("lost, as asked")

    def meet(what: str, key: str, done: bool) -> Act | None:
        return ended if done and what == "publish" and key.startswith("pages-w") else None

    options: dict[str, Any] = {"writer_id": "w", "flush_seconds": None}
    with pytest.raises(StorageError):
        async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), **options) as writer:
            await write(writer, RECORDS[:20])
            await writer.commit()
    assert await stored(storage) == RECORDS[:20]


@pytest.mark.parametrize("open_shards", [1, 2])
async def test_writer_with_failed_flush_continues_in_new_log(open_shards: int) -> None:
    """No flush is waiting for a response when its log is ended, and no timer fires."""
    storage = MemoryStorage()
    down = False

    def meet(what: str, key: str, done: bool) -> Act | None:
        if down and key.startswith("_flush/"):
            raise TransientStorageError("down, as asked")
        return None

    options: dict[str, Any] = {"flush_seconds": 100_000, "memory_limit": 8 << 20, "writer_id": "w"}
    options["open_shards"] = open_shards
    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), **options) as writer:
        await write(writer, RECORDS)
        await writer.flush()
        down = True
        await writer.write(b"more")
        assert await writer.flush() == "buffered"
        await on_another_machine(storage)
        await asyncrec.recover("pages", storage=storage, dead=["w"])
        down = False
        with anyio.fail_after(1000):
            for _ in range(20):
                await writer.write(bytes(1 << 20))
    assert writer.stats().committed_records == len(RECORDS) + 21


async def test_ended_idle_writer_continues() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
        await write(writer, RECORDS[:50])
        await writer.flush()
        ticket = await writer.write(RECORDS[50], key=RECORDS[50])
        await writer.flush()
        await on_another_machine(storage)
        await asyncrec.recover("pages", storage=storage, dead=["w"])
        with anyio.fail_after(1000):
            await writer.wait(ticket, "committed")
    assert await stored(storage) == RECORDS[:51]


async def test_publishing_shard_does_not_block_flush_of_other_shards() -> None:
    """Memory is full, and an earlier flush is waiting for the shard that is being published."""
    storage = MemoryStorage(chunk_size=64 << 10)

    async def slow() -> None:
        await anyio.sleep(20)

    def meet(what: str, key: str, done: bool) -> Act | None:
        return slow if what == "publish" and not done and key.startswith("pages") else None

    options: dict[str, Any] = {"flush_seconds": 100_000, "memory_limit": 1 << 20, "open_shards": 2}
    store = Meeting(storage, meet)
    async with asyncrec.open_sharded_writer("pages", storage=store, max_shard_bytes=300_000, **options) as writer:
        with anyio.fail_after(5000):
            for number in range(60):
                await writer.write(bytes(100_000), partition=number // 7)


@pytest.mark.parametrize("fails", ["transient", "taken"])
async def test_failed_start_of_new_log_is_retried(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    left = 0

    def meet(what: str, key: str, done: bool) -> Act | None:
        nonlocal left
        if left and what == "put" and key.endswith("-000000.jsonl") and not done:
            left -= 1
            if fails == "transient":
                raise TransientStorageError("down, as asked")
            raise ObjectExistsError("taken, as asked")
        return None

    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), writer_id="w") as writer:
        await write(writer, RECORDS[:50])
        await writer.flush()
        await on_another_machine(storage)
        await asyncrec.recover("pages", storage=storage, dead=["w"])
        left = 3
        await write(writer, RECORDS[50:])
        await writer.flush()
    assert await stored(storage) == RECORDS


async def test_shard_recovered_during_publish_is_not_rewritten() -> None:
    """The store responds slowly to the publication of one shard; the other shard meets the end of the log."""
    storage = MemoryStorage()

    async def ended() -> None:
        await on_another_machine(storage)
        await asyncrec.recover("pages", storage=storage, dead=["w"])
        await anyio.sleep(300)

    def meet(what: str, key: str, done: bool) -> Act | None:
        return ended if done and what == "publish" and key == "pages-w-000000.tfrecord" else None

    options: dict[str, Any] = {"open_shards": 2, "writer_id": "w", "flush_seconds": 10}
    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), **options) as writer:
        for record in RECORDS[:40]:
            await writer.write(record, key=record, partition=0)
        async with anyio.create_task_group() as group:
            group.start_soon(writer.commit)
            await anyio.sleep(1)
            for record in RECORDS[40:]:
                await writer.write(record, key=record, partition=1)
            await writer.flush()
    assert await stored(storage) == RECORDS
