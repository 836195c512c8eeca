"""The requests for opening a data set while a thousand writers flush to the store, and after many commits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta, tzinfo

import anyio
import pytest

import asyncrec
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.names import begin_key, flush_key, manifest_prefix, segment_of

from .paper import PAGE
from .store import CountingBucket

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

WRITERS, ENTRIES = 1000, 3


async def open_to_read(store: CountingBucket) -> None:
    async with asyncrec.open_dataset("pages", storage=store):
        pass


async def open_to_write(store: CountingBucket) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=store):
        pass


async def open_to_skip(store: CountingBucket) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=store, on_duplicate="skip"):
        pass


async def stay_open(store: CountingBucket) -> None:
    """Keep a writer open until it has looked twice for silent writers."""
    async with asyncrec.open_sharded_writer("pages", storage=store):
        await anyio.sleep(200)


# One look at all flush logs, and one request for the store's time.
LOOK = WRITERS * ENTRIES // PAGE + 1


@pytest.mark.parametrize(
    ("opening", "looks"), [(open_to_read, 0), (open_to_write, 0), (open_to_skip, 1), (stay_open, 2)]
)
async def test_opening_beside_flushing_writers_adds_no_listings(
    opening: Callable[[CountingBucket], Awaitable[None]], looks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the look for silent writers, at a later time, lists all flush logs and asks for the store's time."""
    monkeypatch.setattr("secrets.randbelow", lambda most: most - 1)  # so that no look happens at once
    asked = []
    for flush in (False, True):
        store = CountingBucket()
        async with asyncrec.open_sharded_writer("pages", storage=store) as writer:
            await writer.write(b"record")
        for number in range(WRITERS):
            header = JobHeader(
                kind="rolling",
                name="pages",
                writer=f"w{number:04}",
                url="memory://pages",
                metadata={},
                host="elsewhere",
                silent_after=120.0 if flush else 0.0,
            )
            await store.put(begin_key("pages", header.writer), header.encode())
            for entry in range(1, ENTRIES + 1) if flush else ():
                await store.put(flush_key("pages", header.writer, entry), b"flushed")
        before = store.requests["ListObjectsV2"]
        await opening(store)
        asked.append(store.requests["ListObjectsV2"] - before)
    assert asked[1] <= asked[0] + looks * LOOK, asked


# A day of 1,000 writers has 100,000 commits, which take minutes, and about 100 looks. This one has 2,000 and 20.
DAY_WRITERS, DAY_COMMITS, SHARDS_FOR_A_LOOK = 20, 100, 100


class VirtualTime(datetime):
    """The time of the event loop's clock, so that what was merged an hour ago may be deleted."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> VirtualTime:
        return cls(2026, 11, 28, tzinfo=tz) + timedelta(seconds=anyio.current_time())


@pytest.mark.slow
async def test_day_of_commits_opens_in_15_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writers make the checkpoints. The last commits, which no checkpoint covers, take additional requests."""
    monkeypatch.setattr("asyncrec._shards.writing.checkpoints.SHARDS_FOR_A_LOOK", SHARDS_FOR_A_LOOK)
    monkeypatch.setattr("asyncrec.storage._memory.datetime", VirtualTime)
    store = CountingBucket()
    over = anyio.Event()

    async def crawl(number: int) -> None:
        await anyio.sleep(86_400 / DAY_COMMITS * number / DAY_WRITERS)
        async with asyncrec.open_sharded_writer("pages", storage=store) as writer:
            for _ in range(DAY_COMMITS):
                await writer.write(b"record")
                await writer.commit()
                await anyio.sleep(86_400 / DAY_COMMITS)
            await over.wait()

    async with anyio.create_task_group() as crawls:
        for number in range(DAY_WRITERS):
            crawls.start_soon(crawl, number)
        await anyio.sleep(2 * 86_400)
        before, read_before = store.requests.copy(), len(store.read)
        async with asyncrec.open_dataset("pages", storage=store) as dataset:
            assert len(dataset) == DAY_WRITERS * DAY_COMMITS
        asked, read = store.requests - before, store.read[read_before:]
        over.set()
    segments = sum(segment_of(key.removeprefix(manifest_prefix("pages"))) is not None for key in read)
    # Half a day without a look happens once in 20,000 days.
    assert segments < DAY_WRITERS * DAY_COMMITS / 2
    assert asked.total() - segments <= 15
