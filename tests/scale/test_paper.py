"""What `paper` computes is what real writers ask of a store: every request, by its kind."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest

import asyncrec
from asyncrec import tools

from .check import NAME, check
from .paper import Crawl, watching
from .store import CountingBucket

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def test_writers_ask_for_what_was_computed() -> None:
    """Shards that end by the time, of several parts; opened on nothing, on closing segments and on a checkpoint."""
    crawl = Crawl(writers=10, rate=0.1, shard_seconds=61, part_bytes=32 << 10, put_seconds=0)
    steps = await check(crawl, seconds=321)
    assert [step.asked for step in steps] == [step.computed for step in steps]
    assert all(step.asked["UploadPart"] for step in steps if step.what != "compaction")


async def test_writers_of_full_shards_ask_for_what_was_computed() -> None:
    """Shards that end by their size, of one request each, by writers that do not say how they get on."""
    crawl = Crawl(writers=3, rate=2, record_bytes=1000, shard_bytes=10_000, status_seconds=0, put_seconds=0)
    steps = await check(crawl, seconds=100)
    assert [step.asked for step in steps] == [step.computed for step in steps]


async def test_who_watches_asks_for_what_was_computed() -> None:
    store = CountingBucket()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(asyncrec.open_sharded_writer(NAME, storage=store))
        await anyio.sleep(31)
        before = store.requests.copy()
        assert len((await tools.watch(NAME, storage=store)).writers) == 3
        assert store.requests - before == watching(3, 0)
