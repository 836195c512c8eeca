"""A writer takes a source while another writer owns it."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.ownership.sources import take_turn
from asyncrec.errors import ConflictError
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

from . import mortal
from .consuming import SOURCE, Consumer
from .messages import stored
from .test_flush_races import Act, Meeting
from .test_lost_sources import messages, progress, write

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def test_living_source_owner_loses_log_and_continues() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, writer_id="w") as writer:
        await take_turn(storage, "pages", "w", SOURCE)
        await writer.write(b"flushed")
        await writer.flush()
        await writer.write(b"in memory")
        other = await Consumer(storage, "a").begin()
        assert await other.take()
        await writer.write(b"later")
        assert await writer.flush() != "buffered"
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert sorted([record async for record in dataset]) == [b"flushed", b"in memory", b"later"]
    assert (await tools.verify("pages", storage=storage)).ok


async def test_living_owner_on_disk_keeps_its_source(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id="w") as writer:
        await take_turn(storage, "pages", "w", SOURCE)
        with pytest.raises(ConflictError, match=r"the writer w .*release"):
            await take_turn(storage, "pages", "a", SOURCE)
        await writer.write(b"more")
        await writer.commit()
    assert (await take_turn(storage, "pages", "a", SOURCE)).turn == 2


async def test_killed_source_owner_on_disk_is_recovered(tmp_path: Path) -> None:
    storage = LocalStorage(str(tmp_path))
    async with mortal.killed(storage, writer_id="w") as writer:
        await take_turn(storage, "pages", "w", SOURCE)
        await writer.write(b"flushed")
        await writer.flush()
    assert (await take_turn(storage, "pages", "a", SOURCE)).turn == 2
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert [record async for record in dataset] == [b"flushed"]


async def test_owner_with_spool_keeps_its_source(tmp_path: Path) -> None:
    """The owner's flushed records may have been acknowledged, and exist only in the spool."""
    storage = MemoryStorage()
    async with mortal.killed(storage, writer_id="w", spool=tmp_path) as writer:
        await take_turn(storage, "pages", "w", SOURCE)
        await writer.write(b"flushed")
        await writer.flush()
    with pytest.raises(ConflictError, match="recover its spool"):
        await take_turn(storage, "pages", "a", SOURCE)
    await asyncrec.recover(tmp_path, to="pages", storage=storage)
    assert (await take_turn(storage, "pages", "a", SOURCE)).turn == 2


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("flushes", [False, True])
async def test_position_stays_whole_if_log_is_ended(compression: Any, flushes: bool) -> None:
    """The log is ended while a position's records are being written, with or without a flush in between."""
    storage = MemoryStorage(chunk_size=1 << 16)
    queued, half_sent = anyio.Event(), anyio.Event()
    armed = False

    async def second_chunk() -> None:
        half_sent.set()
        await anyio.sleep(1)  # meanwhile, the writer learns that its log was ended

    def meet(what: str, key: str, done: bool) -> Act | None:
        if not armed or done or half_sent.is_set():
            return None
        if what == "put" and key.startswith("_flush/"):
            return half_sent.wait
        if what == "send" and key.endswith(".tfrecord"):
            return second_chunk if queued.is_set() else queued.wait
        return None

    filler = random.Random(0).randbytes(100_000)
    records = [b"p 1 %d " % n + random.Random(n).randbytes(10_000) for n in range(900)]
    options: dict[str, Any] = {"compression": compression, "memory_limit": 64 << 20}
    async with asyncrec.open_sharded_writer("pages", storage=Meeting(storage, meet), **options) as first:
        await write(first, "p", 0)
        await write(first, "q", 0)
        await first.flush()
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            await write(second, "q", 0)
        armed = True
        await write(first, "r", 0)
        async with anyio.create_task_group() as group:
            group.start_soon(flush, first)
            await anyio.sleep(0.1)
            await first.write(filler)
            await anyio.sleep(0.1)
            if flushes:
                group.start_soon(flush, first)
                await anyio.sleep(0.1)
            await first.write_many(records, source="p", position=1)
            if flushes:
                group.start_soon(flush, first)
                await anyio.sleep(0.1)
            queued.set()
        assert half_sent.is_set()
        await first.release("q")
    assert await stored(storage) == messages(p=0, q=0, r=0) + Counter([filler, *records])
    counts = []
    for shard in await asyncrec.list_shards("pages", storage=storage):
        found = set(await asyncrec.read_records(shard, storage=storage))
        counts.append(len(found.intersection(records)))
    assert max(counts) == len(records), counts


async def flush(writer: asyncrec.ShardedWriter) -> None:
    with suppress(ConflictError):  # the writer has lost a source
        await writer.flush()


async def test_ticket_of_known_key_covers_its_record() -> None:
    """The record with the key may be in a different shard, which is flushed later."""
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip", open_shards=2) as writer:
        first = await writer.write(b"p 0", key="0")
        ticket = await writer.write(b"p 0", key="0", source="p", position=0)
        assert (ticket, writer.stats().duplicates) == (first, 1)


async def test_unreachable_level_is_refused_with_remedy() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, flush_seconds=None) as writer:
        with pytest.raises(ValueError, match="do not pass flush_seconds=None, or pass spool="):
            await writer.flush(require="spooled")
        with pytest.raises(ValueError, match="must be 'buffered', 'spooled' or 'committed', not 'safe'"):
            await writer.flush(require="safe")  # type: ignore[arg-type]


async def test_single_record_is_refused_as_list() -> None:
    async with asyncrec.open_sharded_writer("pages", storage=MemoryStorage()) as writer:
        for record in (b"", b"abc", "abc"):
            with pytest.raises(TypeError, match="write_many needs a list of records"):
                await writer.write_many(record, source="p", position=0)  # type: ignore[arg-type]
        assert writer.progress == {}


async def test_closed_writer_accepts_no_position(tmp_path: Path) -> None:
    async with asyncrec.open_sharded_writer(tmp_path / "pages", on_duplicate="skip") as writer:
        await writer.write(b"p 0", key="0", source="p", position=0)
    for call in (writer.advance("p", 1), writer.take("p"), writer.write(b"p 0", key="0")):
        with pytest.raises(anyio.ClosedResourceError):
            await call


@pytest.mark.parametrize("early", [True, False])
async def test_position_without_record_is_committed_after_loss(early: bool) -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as first:
        await write(first, "p", 0)
        await write(first, "q", 0)
        await first.commit()
        if early:
            await first.advance("p", 5)
        async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
            await second.take("q")
        await write(first, "r", 0)
        with pytest.raises(ConflictError):
            await first.flush()
        await first.release("q")
        if not early:
            await first.advance("p", 5)
        await first.commit()
        assert await progress(storage) == first.progress | {"q": 0} == {"p": 5, "q": 0, "r": 0}


async def test_position_without_record_is_committed_after_retaking() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await write(writer, "p", 0)
        await writer.release("p")
        await writer.advance("p", 5)
        await writer.commit()
        assert await progress(storage) == {"p": 5}


@pytest.mark.parametrize("open_shards", [1, 3])
async def test_failed_writer_does_not_report_dropped_records(open_shards: int) -> None:
    storage = MemoryStorage()
    with pytest.raises(KeyError) as raised:
        async with asyncrec.open_sharded_writer("pages", storage=storage, open_shards=open_shards) as first:
            await write(first, "p", 0, 1)
            await write(first, "q", 0)
            await first.commit()
            await write(first, "p", 2, 3, 4)
            await write(first, "q", 1)
            async with asyncrec.open_sharded_writer("pages", storage=storage) as second:
                await second.take("p")
            await flush(first)
            await first.release("p")
            await first.commit()
            raise KeyError
    assert not hasattr(raised.value, "__notes__")
    assert await stored(storage) == messages(p=1, q=1)
