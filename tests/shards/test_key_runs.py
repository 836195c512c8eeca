"""Runs of keys: look-ups through a checkpoint's runs find the same records as the shards' keys, in few requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from random import Random
from typing import Any
from unittest import mock

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.commit import key_runs
from asyncrec._shards.manifest.key_run import ENTRY_BYTES
from asyncrec.errors import IntegrityError, StorageError
from asyncrec.storage import MemoryStorage

from .keyed_store import PREFIX, Far, expected, looked_up, write
from .manifest_store import Store

pytestmark = pytest.mark.anyio


@pytest.fixture
def small() -> Iterator[None]:
    """Make runs of a few dozen keys merge in the way that runs of millions of keys do."""
    with (
        mock.patch.object(key_runs, "_MOST_AT_ONCE", 64),
        mock.patch.object(key_runs, "_LEAST_ENTRIES", 8),
        mock.patch.object(key_runs, "_LEAST_STEP", 1),
    ):
        yield


async def test_lookup_after_checkpoint_needs_few_requests() -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(3000)], writer="a")
    await tools.compact("pages", storage=storage, manifest_only=True)
    storage.asked.clear()
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.find("k1234") == 1234
        assert len(storage.asked) <= 6, storage.asked
        assert await dataset.find("k77") == 77
        with pytest.raises(KeyError):
            await dataset.find("none")
    assert not [key for key in storage.asked if key.endswith(".keys")]


async def test_skipping_writer_opens_after_checkpoint_in_few_requests() -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(3000)], writer="a")
    await tools.compact("pages", storage=storage, manifest_only=True)
    await write(storage, ["new"], writer="b")
    storage.asked.clear()
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as writer:
        assert len(storage.asked) <= 10, storage.asked
        assert all(map(writer.has, ("k0", "k2999", "new")))
        assert not writer.has("none")


@pytest.mark.slow(but=["-0]"])
@pytest.mark.parametrize("seed", range(3))
async def test_key_run_lookups_match_lookups_in_shard_keys(seed: int, small: None) -> None:
    """Keys repeat within and across shards; some records have no key; some shards are newer than the checkpoint."""
    random, storage = Random(seed), Far()
    names = [f"k{n}" for n in range(150)]
    for turn in range(8):
        keys = [random.choice([None, *random.choices(names, k=4)]) for _ in range(random.choice((5, 20, 90)))]
        await write(storage, keys, writer=random.choice("abcz") + str(turn), per_shard=random.choice((1, 7, 40)))
        if random.random() < 0.8:
            await tools.compact("pages", storage=storage, manifest_only=True)
        assert await looked_up(storage, names) == await expected(storage, names)
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as writer:
        there = await expected(storage, names)
        assert [writer.has(name) for name in names] == [there[name] is not None for name in names]


async def test_local_and_remote_stores_return_same_lookups(small: None) -> None:
    storage = MemoryStorage()
    names = [f"k{n % 70}" for n in range(200)]
    await write(storage, names, writer="b")
    await tools.compact("pages", storage=storage, manifest_only=True)
    await write(storage, ["k3", "k99"], writer="a")
    wanted = [*names, "k99", "no"]
    assert await looked_up(storage, wanted) == await expected(storage, wanted)


async def test_repeated_lookups_read_key_runs_once() -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(500)], writer="a")
    await tools.compact("pages", storage=storage, manifest_only=True)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for n in range(5):
            assert await dataset.find(f"k{n}") == n
        storage.asked.clear()
        for n in range(500):
            assert await dataset.find(f"k{n}") == n
    assert storage.asked == []


async def test_key_run_entries_of_removed_shards_are_ignored() -> None:
    storage = Far()
    await write(storage, ["old", "both"], writer="a")
    await tools.compact("pages", storage=storage, manifest_only=True)
    await write(storage, ["both", "new"], writer="b", mode="replace")
    assert await looked_up(storage, ("old", "both", "new")) == {"old": None, "both": b"b 0", "new": b"b 1"}
    async with asyncrec.open_sharded_writer("pages", storage=storage, on_duplicate="skip") as writer:
        assert [writer.has(key) for key in ("old", "both", "new")] == [False, True, True]
    await tools.compact("pages", storage=storage, manifest_only=True)
    assert await looked_up(storage, ("old", "both", "new")) == {"old": None, "both": b"b 0", "new": b"b 1"}


async def test_earlier_snapshot_finds_own_records() -> None:
    storage = Far()
    await write(storage, ["old"], writer="a")
    await tools.compact("pages", storage=storage, manifest_only=True)
    before = await asyncrec.read_manifest("pages", storage=storage)
    await write(storage, ["new"], writer="b")
    await tools.compact("pages", storage=storage, manifest_only=True)
    then = await asyncrec.read_manifest("pages", at=before.id, storage=storage)
    async with asyncrec.open_dataset(then, storage=storage) as dataset:
        assert await dataset.get_by_key("old") == b"a 0"
        with pytest.raises(KeyError):
            await dataset.find("new")


async def test_key_runs_stay_few_with_few_rewrites(small: None) -> None:
    storage, written = Far(), Counter[str]()
    for turn in range(40):
        await write(storage, [f"{turn}-{n}" for n in range(20)], writer=f"w{turn:02}")
        before = await storage.runs()
        await tools.compact("pages", storage=storage, manifest_only=True)
        after = await storage.runs()
        written.update({key: info.size for key, info in after.items() if key not in before})
        manifest = await asyncrec.read_manifest("pages", storage=storage)
        assert len(manifest.shards.runs) <= 4
        assert sum(run.entries for run in manifest.shards.runs) == 20 * (turn + 1)
        for key in set(after) & set(before):
            assert after[key] == before[key]  # a run is never changed
    assert sum(written.values()) < 16 * 800 * ENTRY_BYTES


async def test_losing_compaction_removes_its_key_runs() -> None:
    storage = Far()
    await write(storage, ["a"], writer="a")

    async def lose(*_: Any, **__: Any) -> None:
        raise asyncrec.ObjectExistsError("it is taken")

    with mock.patch("asyncrec._shards.commit.compaction.create", lose):
        await tools.compact("pages", storage=storage, manifest_only=True)
    assert await storage.runs() == {}


async def test_failed_compaction_removes_its_key_runs() -> None:
    storage = Far()
    await write(storage, ["a"], writer="a")
    with (
        mock.patch("asyncrec._shards.commit.compaction.create", mock.AsyncMock(side_effect=IntegrityError("no"))),
        pytest.raises(IntegrityError),
    ):
        await tools.compact("pages", storage=storage, manifest_only=True)
    assert await storage.runs() == {}


async def test_compaction_removes_key_run_of_dead_compaction() -> None:
    storage = Far()
    await write(storage, ["a"], writer="a")
    with anyio.CancelScope() as scope:

        async def die(*_: Any, **__: Any) -> None:
            scope.cancel()
            await anyio.lowlevel.checkpoint()

        with mock.patch("asyncrec._shards.commit.compaction.create", die):
            await tools.compact("pages", storage=storage, manifest_only=True)
    [leftover] = await storage.runs()
    await tools.compact("pages", storage=storage, manifest_only=True)
    [stays] = await storage.runs()
    assert stays != leftover
    assert (await tools.verify("pages", storage=storage)).orphans == []


async def test_verify_deletes_only_unreferenced_key_runs() -> None:
    storage = Far()
    await write(storage, ["a"], writer="a")
    await tools.compact("pages", storage=storage, manifest_only=True)
    [named] = await storage.runs()
    await storage.put(PREFIX + "~keys-000009~x.run", b"")
    report = await tools.verify("pages", storage=storage, delete=True)
    assert [(orphan.kind, orphan.recent) for orphan in report.orphans] == [("run", True)]
    assert (report.ok, report.deleted) == (True, [])
    report = await tools.verify("pages", storage=storage, delete=True, min_age=0)
    assert [path.rpartition("/")[2] for path in report.deleted] == ["~keys-000009~x.run"]
    assert list(await storage.runs()) == [named]


async def test_truncated_checkpoint_keeps_every_key_run(caplog: pytest.LogCaptureFixture) -> None:
    """The truncated checkpoint may name any of the runs."""
    storage = Far()
    await write(storage, ["a"], writer="a")
    report = await tools.compact("pages", storage=storage, manifest_only=True)
    key = str(report.checkpoint).removeprefix("memory://").lstrip("/")
    cut = (await storage.get(PREFIX + key.rpartition("/")[2]))[:20]
    await storage.put(PREFIX + "~checkpoint-000009~x.jsonl.gz", cut)
    await storage.put(PREFIX + "~keys-000009~x.run", b"")
    report = await tools.verify("pages", storage=storage, delete=True, min_age=0)
    assert (report.ok, report.deleted) == (True, [])
    assert len(await storage.runs()) == 2
    assert [line for line in caplog.records if "no run is deleted" in line.getMessage()]


async def test_key_run_exists_as_long_as_its_checkpoints() -> None:
    store = Store()
    await write(store, ["a"], writer="a")
    names = []
    for turn in range(4):
        await tools.compact("pages", storage=store, manifest_only=True)
        manifest = await asyncrec.read_manifest("pages", storage=store)
        names.append([run.name for run in manifest.shards.runs])
        await write(store, [f"b{turn}"], writer=f"b{turn}")
        store.now += timedelta(hours=2)
    kept = [key for key in await store.keys() if "~keys-" in key]
    checkpoints = [key for key in await store.keys() if key.endswith(".jsonl.gz")]
    assert len(checkpoints) == 2  # the newest and the one before it
    assert sorted(kept) == sorted({*names[-1], *names[-2]})


async def test_shard_with_missing_keys_does_not_fail_compaction(caplog: pytest.LogCaptureFixture) -> None:
    storage = Far()
    await write(storage, [f"k{n}" for n in range(20)], writer="a")
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[0]
    assert shard.keys is not None
    await storage.delete(shard.keys.path)
    assert (await tools.compact("pages", storage=storage, manifest_only=True)).written
    assert [line for line in caplog.records if "left out of the run of keys" in line.getMessage()]
    [run] = (await asyncrec.read_manifest("pages", storage=storage)).shards.runs
    assert (run.shards, run.entries) == (1, 10)


async def test_failed_run_upload_fails_compaction_cleanly() -> None:
    storage = Far()
    await write(storage, ["a"], writer="a")
    with (
        mock.patch.object(key_runs, "check_sent", side_effect=IntegrityError("another")),
        pytest.raises(StorageError),
    ):
        await tools.compact("pages", storage=storage, manifest_only=True)
    assert (await storage.runs(), await looked_up(storage, ["a"])) == ({}, {"a": b"a 0"})


async def test_data_set_without_keys_has_no_runs() -> None:
    storage = Far()
    await write(storage, [None], writer="a")
    with suppress(KeyError):
        await tools.compact("pages", storage=storage, manifest_only=True)
        assert await looked_up(storage, ["a"]) == {"a": None}
    assert await storage.runs() == {}
