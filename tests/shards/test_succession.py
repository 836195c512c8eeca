"""A writer that lives, and whose log another process has ended, goes on in a new log; nothing is lost or twice."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError, StorageError, TransientStorageError
from asyncrec.storage._memory import MemoryStorage

from . import mortal
from .flushing import RECORDS, flush_entries, stored, write
from .test_flush_races import Act, Meeting, on_another_machine

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("open_shards", [1, 3])
async def test_a_writer_that_was_ended_goes_on(
    compression: Any, open_shards: int, caplog: pytest.LogCaptureFixture
) -> None:
    storage = MemoryStorage()
    options: dict[str, Any] = {"compression": compression, "open_shards": open_shards, "writer_id": "w"}
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        await write(writer, RECORDS[:40])
        assert await writer.flush() == "spooled"
        await write(writer, RECORDS[40:60])  # in its memory alone
        await on_another_machine(storage)
        assert (await asyncrec.recover("pages", storage=storage, dead=["w"])).records == 40
        await write(writer, RECORDS[60:80])
        assert await writer.flush() in ("spooled", "committed")
        ticket = await writer.write(RECORDS[80], key=RECORDS[80])
        await writer.wait(ticket, "spooled")
        await write(writer, RECORDS[81:])
        assert writer.stats().committed_records >= 40
    assert writer.stats().committed_records == len(RECORDS)
    assert "it goes on as" in caplog.text
    assert await stored(storage) == RECORDS
    assert await asyncrec.recover("pages", storage=storage) == asyncrec.Recovery()
    assert len(await flush_entries(storage)) == 1  # the fence
    assert (await tools.verify("pages", storage=storage)).orphans == []


@pytest.mark.parametrize("place", range(40))
@pytest.mark.parametrize("done", [False, True])
async def test_a_writer_goes_on_wherever_it_is_ended(place: int, done: bool) -> None:
    """Another process ends it before, or behind, each of its own requests in turn."""
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
        return ended if seen == place + 3 else None  # it has opened

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


async def test_a_writer_may_be_ended_again_and_again() -> None:
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


async def test_an_entry_without_an_answer_is_not_written_twice() -> None:
    """It took effect, another process has adopted its records and deleted it."""
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


async def test_a_writer_that_a_person_gave_up_fails() -> None:
    """Its caller was told that records are safe which the person has had deleted."""
    storage = MemoryStorage()
    with pytest.raises(ConflictError) as caught:
        async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
            await write(writer, RECORDS[:50])
            await writer.flush()
            await on_another_machine(storage)
            await asyncrec.recover("pages", storage=storage, abandon=["w"])
            await write(writer, RECORDS[50:])
            await writer.flush()
    assert "first record that is not stored has the ticket 1" in "".join(getattr(caught.value, "__notes__", ()))
    assert await flush_entries(storage) != []
    async with asyncrec.open_sharded_writer("pages", storage=storage):
        pass
    assert await asyncrec.list_shards("pages", storage=storage) == []


async def test_a_fence_without_an_end_is_waited_for() -> None:
    """The process that made it died; another one ends the log a minute later."""
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
