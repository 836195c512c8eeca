"""The object with the fixed name `~latest.json`: its contents, and the checkpoints that it protects from deletion."""

from __future__ import annotations

import json
from datetime import timedelta
from unittest import mock

import pytest

from asyncrec._shards.commit.compaction import compact_manifest
from asyncrec._shards.manifest import loading
from asyncrec._shards.manifest.listed import list_manifest
from asyncrec._shards.manifest.names import manifest_prefix

from .manifest_store import Store, Writer

pytestmark = pytest.mark.anyio

P = manifest_prefix("pages")
HOUR = timedelta(hours=1)


async def test_compaction_keeps_checkpoint_named_by_latest() -> None:
    store = Store()
    a = Writer(store, "a")
    await a.commit()
    pinned = (await compact_manifest(store, "pages", path="pages", latest=True)).checkpoint
    for _ in range(3):
        store.now += 2 * HOUR
        await a.commit()
        await compact_manifest(store, "pages", path="pages")
    columns = [P + key for key in await store.keys() if key.endswith(".jsonl.gz")]
    assert len(columns) == 3
    assert pinned in columns
    assert json.loads(await store.get(P + "~latest.json"))["records"] == 1


async def test_latest_describes_checkpoint_of_winning_compaction() -> None:
    store = Store()
    a = Writer(store, "a")
    await a.commit(3)
    listed = await list_manifest(store, "pages")
    await a.commit(2)
    winner = await compact_manifest(store, "pages", path="pages")
    # This compaction has listed only three of the five commits, so it is too late.
    with mock.patch.object(loading, "list_manifest", mock.AsyncMock(return_value=listed)):
        late = await compact_manifest(store, "pages", path="pages", latest=True)
    assert (late.written, late.checkpoint) == (False, winner.checkpoint)
    named = json.loads(await store.get(P + "~latest.json"))
    assert (named["id"], named["shards"]) == (winner.manifest.id, 5)
