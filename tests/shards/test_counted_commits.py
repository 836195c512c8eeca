"""The history of a data set is right for any writer ids, and in the right order even if a writer's clock is slow."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any

import pytest

import asyncrec
from asyncrec.storage import MemoryStorage, Storage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


def opened(storage: Storage, **options: Any) -> Any:
    return asyncrec.open_sharded_writer("pages", storage=storage, **options)


async def records(storage: Storage, at: datetime | None = None) -> list[bytes]:
    found: list[bytes] = []
    for shard in (await asyncrec.read_manifest("pages", at, storage=storage)).shards:
        async with asyncrec.open_reader(shard.path, storage=storage) as reader:
            found += [record async for record in reader]
    return sorted(found)


async def test_closing_segment_does_not_hide_commits_of_longer_ids() -> None:
    storage = MemoryStorage()
    async with opened(storage, writer_id="ab") as longer:
        await longer.write(b"ab")
        await longer.commit()
        async with opened(storage, writer_id="a") as shorter:
            await shorter.write(b"a")
        async with opened(storage, writer_id="b") as end:
            await end.write(b"b")
        assert await records(storage) == [b"a", b"ab", b"b"]


async def test_slow_clock_does_not_reorder_history(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    async with opened(storage) as writer:
        await writer.write(b"old")
    (old,) = (await asyncrec.read_manifest("pages", storage=storage)).shards
    behind = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: behind)
    async with opened(storage, mode="replace") as writer:
        await writer.write(b"new")
    assert await records(storage) == [b"new"]
    assert (await asyncrec.read_manifest("pages", storage=storage)).shards[0].committed > old.committed
    then = datetime.fromisoformat(old.committed)
    assert list((await asyncrec.read_manifest("pages", then, storage=storage)).shards) == [old]
    assert await records(storage, then + timedelta(hours=1)) == [b"new"]
