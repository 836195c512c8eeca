"""A real writer that owns a source, while another writer takes the source."""

from __future__ import annotations

from pathlib import Path

import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.ownership.sources import take_turn
from asyncrec.errors import ConflictError
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage

from . import mortal
from .consuming import SOURCE, Consumer

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
    """Its flushed records may have been acknowledged, and are only in the spool."""
    storage = MemoryStorage()
    async with mortal.killed(storage, writer_id="w", spool=tmp_path) as writer:
        await take_turn(storage, "pages", "w", SOURCE)
        await writer.write(b"flushed")
        await writer.flush()
    with pytest.raises(ConflictError, match="recover its spool"):
        await take_turn(storage, "pages", "a", SOURCE)
    await asyncrec.recover(tmp_path, to="pages", storage=storage)
    assert (await take_turn(storage, "pages", "a", SOURCE)).turn == 2
