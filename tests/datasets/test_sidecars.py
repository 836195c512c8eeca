"""datum's two JSON files are derived from the manifests, so that no writer loses the entries of another."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import asyncrec
from asyncrec._datasets.sidecars import SHARD_INFO, TABLE, read_shard_info, read_table, update
from asyncrec.storage._base import ByteSink, Storage
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

INT = {"type": "int", "shape": [], "dense": True}


async def committed(storage: Storage, split: str, **features: Any) -> None:
    """Write a split with a manifest, as `DatasetWriter` leaves it just before it writes the JSON files."""
    async with asyncrec.open_sharded_writer(
        split, storage=storage, num_shards=1, metadata={"split": split, "features": features}
    ) as writer:
        await writer.write_many([b"a", b"b"])


async def test_sidecars_describe_all_manifests(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    await committed(storage, "train", x=INT, tags={"type": "string", "shape": [2], "dense": True})
    await committed(storage, "test", y=INT, tags={"type": "string", "shape": [3], "dense": True})
    async with asyncrec.open_sharded_writer("crawl", storage=storage, num_shards=1) as writer:
        await writer.write(b"no split")
    await update(storage, {})
    assert await read_shard_info(storage) == {
        "test": {"test-00000-of-00001.tfrecord": 2},
        "train": {"train-00000-of-00001.tfrecord": 2},
    }
    assert await read_table(storage) == {"tags": {"type": "string", "shape": [-1], "dense": False}, "x": INT, "y": INT}
    assert not caplog.records, "nothing changed under way"


async def test_table_follows_last_written_of_contradicting_splits(caplog: pytest.LogCaptureFixture) -> None:
    storage = MemoryStorage()
    await committed(storage, "train", x=INT)
    await committed(storage, "test", x={"type": "float", "shape": [], "dense": True})
    await update(storage, {}, "train")
    assert (await read_table(storage))["x"]["type"] == "int"
    await update(storage, {}, "test")
    assert (await read_table(storage))["x"]["type"] == "float"
    assert "feature 'x' is int in one split and float in another" in caplog.text


async def test_sidecars_are_not_rewritten_while_current() -> None:
    storage = MemoryStorage()
    await committed(storage, "train", x=INT)
    await update(storage, {})
    before = await storage.head(SHARD_INFO), await storage.head(TABLE)
    await update(storage, {})
    assert (await storage.head(SHARD_INFO), await storage.head(TABLE)) == before


async def test_concurrent_sidecar_update_is_not_lost() -> None:
    """Another split is committed while the files are being written, so they are updated once more."""

    class Interrupted(MemoryStorage):
        def open_sink(self, key: str, *, exclusive: bool = False) -> Any:
            return self._then_interrupt(key) if key == SHARD_INFO else super().open_sink(key, exclusive=exclusive)

        @asynccontextmanager
        async def _then_interrupt(self, key: str) -> AsyncIterator[ByteSink]:
            if self.interruptions:
                split = self.interruptions.pop()
                await committed(self, split, **{split: INT})
            async with super().open_sink(key) as sink:
                yield sink

        interruptions: list[str]

    storage = Interrupted()
    storage.interruptions = ["c", "b"]
    await committed(storage, "a", a=INT)
    await update(storage, {}, "a")
    assert (await read_shard_info(storage)).keys() == {"a", "b", "c"}
    assert (await read_table(storage)).keys() == {"a", "b", "c"}


async def test_splits_without_manifest_are_kept() -> None:
    storage = MemoryStorage()
    await storage.put(SHARD_INFO, json.dumps({"old": {"old-00000-of-00001.tfrecord": 3}}).encode())
    await storage.put(TABLE, json.dumps({"old": INT}).encode())
    await committed(storage, "train", x=INT)
    await update(storage, {"more": {"more-00000-of-00001.tfrecord": 4}}, "train")
    assert (await read_shard_info(storage)).keys() == {"more", "old", "train"}
    assert await read_table(storage) == {"old": INT, "x": INT}
