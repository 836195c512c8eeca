"""A slow listing may lack objects that were merged and deleted while it ran; readers still find their contents."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

import asyncrec
from asyncrec._shards.commit.closing import entomb
from asyncrec._shards.commit.compaction import compact_manifest
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.ownership.marks import put_mark
from asyncrec.errors import ConflictError, ManifestError
from asyncrec.storage import ObjectInfo

from .manifest_store import Store, Writer, entry

pytestmark = pytest.mark.anyio

P = "_manifest/pages/"


class SleepyFolder(Store):
    """A folder in which a listing pauses for hours after it has read the names; objects deleted by then are left out.

    Other processes commit and compact during the pause.
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
        """Let one process commit, one compact, and two hours pass."""
        await Writer(self, f"other{self.now:%d%H}", 100).commit()
        await compact_manifest(self, "pages", path="pages")
        self.now += timedelta(hours=2)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> SleepyFolder:
    store, real = SleepyFolder(), time.time
    monkeypatch.setattr(time, "time", lambda: real() + store.slept)  # the loop's clock does not count the sleep
    return store


async def test_manifest_read_survives_sleep_during_list(store: SleepyFolder) -> None:
    await Writer(store, "a").commit(3)
    store.sleeps_over = 3
    manifest = await asyncrec.read_manifest("pages", storage=store)
    assert store.slept
    assert [key for key in await store.keys() if key.startswith("a-")] == ["a-000003.jsonl"]
    assert [shard.path for shard in manifest.shards][:3] == [f"pages-a-{n:06d}.tfrecord" for n in range(3)]


async def test_tombstone_after_sleep_follows_later_commits(store: SleepyFolder) -> None:
    await Writer(store, "a").commit(1)
    put, a = store.put, Writer(store, "a")

    async def late(key: str, data: Any, *, exclusive: bool = False) -> ObjectInfo:
        """Let the writer continue, while everything it committed earlier is covered by a checkpoint and deleted."""
        if key.endswith("/a-000002.jsonl"):
            store.put = put  # type: ignore[method-assign]
            a.entries.append(entry("pages-a-000000.tfrecord", 1))
            await a.commit(2)
            for _ in range(3):
                await store.goes_on()
            assert [key for key in await store.keys() if key.startswith("a-")] == ["a-000003.jsonl"]
        return await put(key, data, exclusive=exclusive)

    store.put = late  # type: ignore[method-assign]
    assert (await entomb(store, "pages", "a", by="me")).abandoned
    assert [key for key in await store.keys() if key.startswith("a-")][-1] == "a-000004.jsonl"
    manifest = await asyncrec.read_manifest("pages", storage=store)
    assert [shard.path for shard in manifest.shards][:3] == [f"pages-a-{n:06d}.tfrecord" for n in range(3)]
    assert manifest.writers["a"].abandoned


async def test_list_lacking_log_segment_is_repeated() -> None:
    """The listing's first page is read before two commits, and its second page after them."""
    store = Store()
    a = Writer(store, "a")
    await a.commit(3)
    hidden = [P + "a-000002.jsonl"]
    torn = store.list_objects

    async def list_objects(prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        lacks = hidden.pop() if hidden else ""
        async for info in torn(prefix, start_after=start_after):
            if info.key != lacks:
                yield info

    store.list_objects = list_objects  # type: ignore[method-assign]
    manifest = await asyncrec.read_manifest("pages", storage=store)
    assert [shard.path for shard in manifest.shards] == [f"pages-a-{n:06d}.tfrecord" for n in range(3)]
    assert hidden == []


@pytest.mark.virtual_clock
async def test_missing_log_segment_raises_error_naming_segment() -> None:
    store = Store()
    await Writer(store, "a").commit(3)
    await store.delete(P + "a-000002.jsonl")
    with pytest.raises(ManifestError, match=r"pages/a-000002\.jsonl is not listed, but a later one is"):
        await asyncrec.read_manifest("pages", storage=store)


@pytest.mark.virtual_clock
async def test_segment_after_end_of_log_raises_error() -> None:
    store = Store()
    a = Writer(store, "a")
    await a.commit(1)
    await store.give_up("a")
    a.entries.append(entry("pages-a-000001.tfrecord", 5))
    await a.commit(1)
    with pytest.raises(ManifestError, match=r"a-000002\.jsonl ends its log, but a later segment is listed"):
        await asyncrec.read_manifest("pages", storage=store)


async def test_writer_recovered_during_sleep_cannot_commit(store: SleepyFolder) -> None:
    """This holds even if everything committed on its behalf is covered by a checkpoint and deleted."""
    a = ManifestWriter(store, "pages", "a")
    await a.commit(entry("pages-a-000000.tfrecord", 1))
    header = JobHeader(kind="rolling", name="pages", writer="a", url="memory:///pages", metadata={}, life="elsewhere")
    await put_mark(store, header)
    for shard in (1, 2):
        await asyncrec.write_records(f"pages-a-{shard:06d}.tfrecord", [b"published"], storage=store)
    assert (await asyncrec.recover("pages", storage=store, dead=["a"])).records == 2
    for _ in range(3):
        await store.goes_on()
    with pytest.raises(ConflictError, match="a was abandoned"):
        await a.commit(entry("pages-a-000003.tfrecord", 2))
    manifest = await asyncrec.read_manifest("pages", storage=store)
    assert [shard.path for shard in manifest.shards][:3] == [f"pages-a-{n:06d}.tfrecord" for n in range(3)]


async def test_late_commit_of_dead_writer_survives_its_closing() -> None:
    """The writer's last request arrives after the recovering process has listed the log."""
    store = Store()
    await Writer(store, "a").commit(1)
    recovery = ManifestWriter(store, "pages", "a", committed=[entry("pages-a-000000.tfrecord", 1)], last=None)
    late = Writer(store, "a", 2)
    late.entries.append(entry("pages-a-000000.tfrecord", 1))
    await late.commit(1)
    await recovery.close([entry("pages-a-000002.tfrecord", 3)])
    manifest = await asyncrec.read_manifest("pages", storage=store)
    assert [shard.path for shard in manifest.shards] == [f"pages-a-{n:06d}.tfrecord" for n in range(3)]
