"""`ManifestFollower`: repeated loads of a manifest return what any other reader sees, but read only new objects."""

from __future__ import annotations

from datetime import timedelta

import pytest

import asyncrec
from asyncrec._shards.commit.compaction import compact_manifest
from asyncrec._shards.manifest.names import manifest_prefix
from asyncrec._shards.manifest.snapshot import ManifestFollower

from .manifest_store import Store, Writer

pytestmark = pytest.mark.anyio

P = manifest_prefix("pages")


async def test_follower_reads_only_new_checkpoints_and_segments() -> None:
    store = Store()
    a = Writer(store, "a")
    follower = ManifestFollower(store, "pages", path="pages")
    assert await follower.load() is None
    await a.commit(3)

    async def look() -> list[str]:
        """Load the manifest, check that any other reader sees the same, and return the objects that were read."""
        store.asked.clear()
        manifest = await follower.load()
        asked = sorted(key.removeprefix(P) for what, key in store.asked if what == "open")
        assert manifest is not None
        assert await follower.load() is manifest
        assert manifest == await asyncrec.read_manifest("pages", storage=store)
        return asked

    assert await look() == [f"a-{n:06d}.jsonl" for n in range(1, 4)]
    assert await look() == []
    done = await compact_manifest(store, "pages", path="pages")
    assert [done.checkpoint] == [P + key for key in await look()]
    await a.commit()
    assert await look() == ["a-000004.jsonl"]
    store.now += timedelta(hours=2)
    assert (await compact_manifest(store, "pages", path="pages")).deleted
    assert len(await look()) == 1
    await a.close()
    assert await look() == ["a-000005.jsonl"]


async def test_follower_of_recreated_data_set_forgets_old_one() -> None:
    store = Store()
    follower = ManifestFollower(store, "pages", path="pages")
    await Writer(store, "a").commit(2)
    first = await follower.load()
    for key in await store.keys():
        await store.delete(P + key)
    assert await follower.load() is None
    await Writer(store, "b").commit(1)
    await follower.load()
    for key in await store.keys():
        await store.delete(P + key)
    await Writer(store, "b", 7).commit(1)  # a new data set with the same name
    now = await follower.load()
    assert now == await asyncrec.read_manifest("pages", storage=store)
    assert first != now
