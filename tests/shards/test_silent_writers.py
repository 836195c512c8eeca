"""Other processes end a dead writer that flushed to a store, because its lock is free or because it is silent."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import ConflictError
from asyncrec.storage import ObjectInfo
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage

from . import mortal
from .flushing import RECORDS, flush_entries, stored, write
from .manifest_store import Store

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def test_dead_local_writer_is_recovered_at_once() -> None:
    storage = MemoryStorage()
    async with mortal.killed(storage, writer_id="w") as writer:
        await write(writer, RECORDS)
        await writer.flush()
    async with asyncrec.open_sharded_writer("pages", storage=storage):
        await anyio.sleep(61)
        assert await stored(storage) == RECORDS


async def test_late_heartbeat_after_commit_is_removed() -> None:
    """Otherwise the writer, which has an empty log and makes no requests, would be presumed dead."""
    storage = MemoryStorage()
    committed = anyio.Event()

    class Slow(FlakyStorage):
        async def put(self, key: str, data: Any, *, exclusive: bool = False) -> ObjectInfo:
            if key == "_flush/pages/w-000002.frames":
                await committed.wait()
            return await storage.put(key, data, exclusive=exclusive)

    async with asyncrec.open_sharded_writer("pages", storage=Slow(storage), writer_id="w", flush_seconds=1) as writer:
        await write(writer, RECORDS)
        await anyio.sleep(65)  # it sends a heartbeat
        await writer.commit()
        committed.set()
        await anyio.sleep(1)
        assert await flush_entries(storage) == ["_flush/pages/w-000002.frames"]
        await anyio.sleep(110)
        assert await flush_entries(storage) == []


@pytest.mark.parametrize("options", [{}, {"num_shards": 2}], ids=["rolling", "fixed"])
@pytest.mark.parametrize("take_over", [False, True])
async def test_writer_of_same_name_cannot_discard_flushed_records(options: dict[str, Any], take_over: bool) -> None:
    storage = MemoryStorage()
    async with mortal.killed(storage, writer_id="w", mode="new") as writer:
        await write(writer, RECORDS)
        await writer.flush()
    with pytest.raises(ConflictError, match="To keep them, run 'asyncrec recover"):
        async with asyncrec.open_sharded_writer("pages", storage=storage, mode="new", take_over=take_over, **options):
            pass
    assert (await asyncrec.recover("pages", storage=storage)).records == len(RECORDS)
    assert await stored(storage) == RECORDS


class TestSilence:
    @staticmethod
    async def dies(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        """Run a writer on another machine that is killed after it has flushed."""
        with mortal.elsewhere(monkeypatch, tmp_path / "elsewhere"):
            async with mortal.killed(store, writer_id="w", **options) as writer:
                await write(writer, RECORDS)
                await writer.flush()
        assert await flush_entries(store) != []

    async def test_recover_commits_records_of_long_silent_writer(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store()
        await self.dies(store, tmp_path, monkeypatch)
        store.now += timedelta(seconds=100)
        assert (await asyncrec.recover("pages", storage=store)).records == 0
        store.now += timedelta(seconds=100)
        assert (await asyncrec.recover("pages", storage=store)).records == 100
        assert await stored(store) == RECORDS

    async def test_skipping_writer_recovers_silent_writer_before_opening(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store()
        await self.dies(store, tmp_path, monkeypatch, dead_after=20, flush_seconds=5)
        store.now += timedelta(seconds=30)
        async with asyncrec.open_sharded_writer("pages", storage=store, on_duplicate="skip") as writer:
            assert all(writer.has(record) for record in RECORDS)

    async def test_fence_does_not_count_as_sign_of_life(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Another process is ending the writer and has just made a fence when a skipping writer opens."""
        store = Store()
        await self.dies(store, tmp_path, monkeypatch, dead_after=20, flush_seconds=5)
        store.now += timedelta(seconds=30)
        known: list[bool] = []

        async def before(what: str, key: str) -> Any:
            if "put" not in [asked for asked, of in store.asked[:-1] if of == "_flush/pages/w-000002.frames"]:
                return before
            async with asyncrec.open_sharded_writer("pages", storage=store, on_duplicate="skip") as writer:
                known.extend(writer.has(record) for record in RECORDS)
            return ignore

        async def ignore(what: str, key: str) -> Any:
            return None

        store.asked.clear()
        store.before = before
        await asyncrec.recover("pages", storage=store)
        assert known == [True] * len(RECORDS)
        assert await stored(store) == RECORDS

    async def test_another_writer_recovers_silent_writer_after_opening(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store()
        await self.dies(store, tmp_path, monkeypatch)
        store.now += timedelta(seconds=200)
        async with asyncrec.open_sharded_writer("pages", storage=store) as writer:
            assert await asyncrec.list_shards("pages", storage=store) == []
            await anyio.sleep(61)
            assert await stored(store) == RECORDS
            await writer.write(b"more")

    async def test_writer_without_flush_does_not_expire_by_age(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store = Store()
        with mortal.elsewhere(monkeypatch, tmp_path / "elsewhere"):
            async with mortal.killed(store, writer_id="w"):
                pass
        store.now += timedelta(days=3)
        assert [job.id for job in (await asyncrec.recover("pages", storage=store)).unfinished] == ["w"]
