"""A list of a manifest that takes long may lack what was merged and deleted meanwhile; readers find it nevertheless."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

import asyncrec
from asyncrec._shards.commit.closing import fence
from asyncrec._shards.commit.compaction import compact_manifest
from asyncrec._shards.journal.header import JobHeader
from asyncrec.storage import ObjectInfo

from .manifest_store import Store, Writer

pytestmark = pytest.mark.anyio


class SleepyFolder(Store):
    """A folder in which a list begins, and goes on hours later: names were read before, and what is gone is left out.

    Meanwhile others commit and compact.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sleeps_over = 0
        self.slept = 0.0

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        infos = [info async for info in super().list_objects(prefix, start_after=start_after)]
        compactions, self.sleeps_over = self.sleeps_over, 0
        for _ in range(compactions):
            await self.goes_on()
            self.slept += 2 * 3600.0
        there = {info.key async for info in super().list_objects(prefix)}
        for info in infos:
            if info.key in there:
                yield info

    async def goes_on(self) -> None:
        """Somebody commits, somebody compacts, and two hours go by."""
        await Writer(self, f"other{self.now:%d%H}", 100).commit()
        await compact_manifest(self, "pages", path="pages")
        self.now += timedelta(hours=2)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SleepyFolder:
    store, real = SleepyFolder(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + store.slept)  # the loop's clock does not tell that it slept
    return store


async def test_a_machine_that_sleeps_in_the_middle_of_a_list_reads_all_there_is(store: SleepyFolder) -> None:
    await Writer(store, "a").commit(3)
    store.sleeps_over = 3
    manifest = await asyncrec.read_manifest("pages", storage=store)
    assert store.slept
    assert not [key for key in await store.keys() if key.startswith("a-")]
    assert [shard.path for shard in manifest.shards][:3] == [f"pages-a-{n:06d}.tfrecord" for n in range(3)]


async def test_a_machine_that_sleeps_while_it_fences_a_shard_finds_its_commit(store: SleepyFolder) -> None:
    header = JobHeader(kind="rolling", name="pages", writer="a", url="pages", metadata={})
    await Writer(store, "a").commit(1)
    for _ in range(3):
        await store.goes_on()
    assert "a-000000.jsonl" not in await store.keys()
    store.sleeps_over = 3
    assert not await fence(store, header.name, header.writer, 0, by="me", since=1)
    assert store.slept
