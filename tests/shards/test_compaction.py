"""`asyncrec.tools.compact`: all readers see the same data set no matter when segments are merged, read and deleted."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.manifest.segment import Segment, format_time
from asyncrec.errors import ArgumentValueError, ManifestError, ObjectNotFoundError
from asyncrec.storage import Storage
from asyncrec.testing._clock import virtual_backend

from .manifest_store import Store, Writer, entry

pytestmark = pytest.mark.anyio

P = "_manifest/pages/"
HOUR = timedelta(hours=1)


async def seen(store: Storage) -> dict[str, Any]:
    manifest = await asyncrec.read_manifest("pages", storage=store)
    found = {field.name: getattr(manifest, field.name) for field in fields(manifest)}
    return {**found, "shards": tuple(manifest.shards)}


async def compact(store: Store, **options: Any) -> tools.CompactReport:
    store.now += timedelta(seconds=1)
    return await tools.compact("pages", storage=store, **options, manifest_only=True)


def key_of(report: tools.CompactReport) -> str:
    assert report.checkpoint is not None
    return P + report.checkpoint.rpartition("/")[2]


async def test_checkpoint_replaces_covered_segments_and_adds_newer_segments() -> None:
    store = Store()
    a, b = Writer(store, "a"), Writer(store, "b", 100)
    await a.commit(5)
    await b.commit(3)
    await b.close(schema={"v": 1}, metadata={"k": 1})
    before = await seen(store)
    done = await compact(store)
    assert (done.merged, done.written, done.deleted) == (9, True, ())
    assert await seen(store) == before
    store.asked.clear()
    await seen(store)
    assert store.asked == [("list", P), ("open", key_of(done))]
    await a.commit(2)
    store.asked.clear()
    after = await seen(store)
    assert len(store.asked) == 2 + 2 * 2  # a get also counts as an open
    assert [shard.path for shard in after["shards"]] == sorted(each.path for each in [*a.entries, *b.entries])
    await a.close()
    assert (await seen(store))["writers"]["a"].shards == 7


async def test_merged_segments_are_deleted_after_one_hour_unless_needed() -> None:
    store = Store()
    a, b = Writer(store, "a"), Writer(store, "b", 100)
    await a.commit(3)
    await b.commit(2)
    await b.close()
    await store.give_up("c")
    before = await seen(store)
    await compact(store)
    store.now += HOUR
    assert not (await compact(store)).written  # nothing is new, and by this machine's clock it is too early to delete
    await a.commit()
    done = await compact(store)
    assert sorted(key.removeprefix(P) for key in done.deleted) == [
        *(f"a-{n:06d}.jsonl" for n in range(1, 4)),
        *(f"b-{n:06d}.jsonl" for n in range(1, 3)),
    ]
    left = await store.keys()
    assert [key for key in left if not key.startswith("~")] == [
        "a-000004.jsonl", "b-000003.jsonl", "c-000001.jsonl",
    ]  # fmt: skip
    assert len(left) == 3 + 4
    now = await seen(store)
    assert now["shards"][:3] == before["shards"][:3]
    # The first checkpoint was superseded an hour ago.
    store.now += HOUR
    await a.commit()
    await compact(store)
    assert [key for key in await store.keys() if key.startswith("~checkpoint-000001")] == []
    assert (await seen(store))["writers"]["a"].shards == 5
    # Deleted segments stay covered.
    await store.put(P + "a-000001.jsonl", Segment(writer="a", time=format_time(1), add=(entry("no", 1),)).encode())
    assert "no" not in [shard.path for shard in (await seen(store))["shards"]]


async def test_second_concurrent_compaction_writes_no_checkpoint() -> None:
    store = Store()
    a = Writer(store, "a")
    await a.commit(3)

    async def strike(what: str, key: str) -> Any:
        """Run a second compaction after the first has listed the segments but before it has written."""
        if what == "list":
            return strike
        await compact(store)
        return _nothing

    store.before = strike
    late = await compact(store)
    assert not late.written
    assert late.checkpoint is not None
    assert len([key for key in await store.keys() if key.endswith(".jsonl.gz")]) == 1
    assert len((await seen(store))["shards"]) == 3


async def test_reader_missing_segment_restarts_with_newer_checkpoint() -> None:
    """All covered objects are deleted between the reader's listing and its first read."""
    store = Store(f"compaction-{uuid4().hex}")
    a = Writer(store, "a")
    await a.commit(4)
    await compact(store)
    await a.commit(4)
    wanted = await seen(store)
    other = Store(store.root.partition("://")[2])
    other.made = store.made

    async def strike(what: str, key: str) -> Any:
        if what != "get" or not key.endswith("a-000005.jsonl"):
            return strike
        other.now = store.now + timedelta(minutes=1)
        await compact(other)
        other.now += 2 * HOUR
        await Writer(other, "z", 50).commit()
        assert len((await compact(other)).deleted) >= 7
        return _nothing

    store.before = strike
    found = await seen(store)
    assert found["shards"][:8] == wanted["shards"]
    assert [shard.path for shard in found["shards"][8:]] == ["pages-z-000000.tfrecord"]


async def _nothing(what: str, key: str) -> Any:
    return _nothing


async def test_deletion_finds_commit_of_merged_and_deleted_segment() -> None:
    """`verify` creates a segment under the number of a commit that it missed and that a compaction has deleted."""
    store = Store()
    a = Writer(store, "a")
    names = [f"pages-a-{number:06d}.tfrecord" for number in (1, 5)]
    for name in names:
        await asyncrec.write_records(name, [b"a record"], storage=store)
    await Writer(store, "b", 50).commit()

    async def strike(what: str, key: str) -> Any:
        if (what, key) != ("put", f"{P}a-000001.jsonl"):
            return strike
        await a.commit(2)
        await compact(store)
        store.now += 2 * HOUR
        await a.commit()
        await compact(store)
        assert "a-000001.jsonl" not in await store.keys()
        return _nothing

    store.before = strike
    report = await tools.verify("pages", storage=store, min_age=-60, delete=True)
    assert store.before is _nothing
    assert report.deleted == names[1:]
    assert names[0] in await store.keys("")
    assert len((await seen(store))["shards"]) == 4


@pytest.mark.parametrize("fails_at", range(1, 40))
async def test_compaction_failing_at_any_request_leaves_reads_unchanged(fails_at: int) -> None:
    store = Store()
    a, b = Writer(store, "a"), Writer(store, "b", 100)
    await a.commit(3)
    await b.commit(2)
    await compact(store)
    store.now += 2 * HOUR
    await a.commit(1)
    await b.close()
    wanted = await seen(store)
    calls = 0

    async def failing(what: str, key: str) -> Any:
        nonlocal calls
        calls += 1
        if calls >= fails_at:
            raise ManifestError("the store is down")
        return failing

    store.before = failing
    failed = False
    try:
        await compact(store)
    except ManifestError:
        failed = True
    store.before = None
    assert await seen(store) == wanted
    store.now += 2 * HOUR
    await Writer(store, "c", 200).commit()
    await compact(store)
    found = await seen(store)
    assert found["shards"][: len(wanted["shards"])] == wanted["shards"]
    columns = [key for key in await store.keys() if key.endswith(".jsonl.gz")]
    assert len(columns) <= 2 + failed


async def test_checkpoint_opens_by_url_without_listing(tmp_path: Path) -> None:
    path = tmp_path / "sets" / "pages"
    async with asyncrec.open_sharded_writer(path, max_shard_records=3) as writer:
        for n in range(10):
            await writer.write(b"record %d" % n, key=str(n))
    report = await tools.compact(path, latest=True, manifest_only=True)
    assert report.checkpoint is not None
    assert report.latest is not None
    for url in (report.checkpoint, report.latest):
        assert (await asyncrec.read_manifest(url)).id == report.id
        async with asyncrec.open_dataset(url) as dataset:
            assert len(dataset) == 10
            assert await dataset.get_by_key("7") == b"record 7"
    store = Store()
    for file in (tmp_path / "sets").rglob("*"):
        if file.is_file():
            await store.put(f"x/{file.relative_to(tmp_path / 'sets')}", file.read_bytes())
    async with asyncrec.open_dataset("x/_manifest/pages/~latest.json", storage=store) as dataset:
        assert await dataset.get(9) == b"record 9"
        assert not [each for each in store.asked if each[0] == "list"]
    with pytest.raises(ObjectNotFoundError):
        await asyncrec.read_manifest(path.parent / "_manifest" / "pages" / "~checkpoint-000009~no.jsonl.gz")


@pytest.mark.parametrize(
    "anyio_backend", [virtual_backend(loop) for loop in ("asyncio", "trio")], ids=("asyncio", "trio")
)
async def test_compaction_obstacles_are_reported_with_specific_errors() -> None:
    """Missing objects are retried for several seconds, so the clock is virtual."""
    store = Store()
    with pytest.raises(ObjectNotFoundError, match="no manifest"):
        await compact(store)
    await Writer(store, "a").commit()
    with pytest.raises(ArgumentValueError, match="at least 60 seconds"):
        await compact(store, grace=5.0)
    await compact(store)
    (columns,) = [key for key in await store.keys() if key.endswith(".jsonl.gz")]
    content = bytearray(await store.get(P + columns))
    content[-30] ^= 1
    await store.put(P + columns, bytes(content))
    with pytest.raises(ManifestError, match=r"damaged|does not"):
        await seen(store)
    await store.delete(P + columns)
    with pytest.raises(ManifestError, match=r"part of the manifest is missing: .*the object does not exist"):
        await seen(store)


async def test_writers_and_tools_work_on_compacted_data_set(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    async with asyncrec.open_sharded_writer(path, max_shard_records=2) as writer:
        await writer.write_many([b"a"] * 5)
    await tools.compact(path, manifest_only=True)
    async with asyncrec.open_sharded_writer(path, max_shard_records=2) as writer:
        await writer.write_many([b"b"] * 5)
    assert (await tools.verify(path)).ok
    await tools.compact(path, manifest_only=True)
    async with asyncrec.open_sharded_writer(path, mode="replace") as writer:
        await writer.write_many([b"c"] * 4)
    report = await tools.verify(path)
    assert (report.ok, report.records, report.orphans) == (True, 4, [])
    again = await tools.compact(path, manifest_only=True)
    assert (again.written, again.records) == (True, 4)
    assert not (await tools.compact(path, manifest_only=True)).written
    await tools.reshard(path, tmp_path / "other", num_shards=2)
    (tmp_path / "pages-dead-000000.tfrecord").touch()  # it was never committed, so it is ignored
    async with asyncrec.open_dataset(path) as dataset:
        assert [record async for record in dataset] == [b"c"] * 4


async def test_deletion_follows_newest_checkpoint_despite_stale_listing() -> None:
    """A listing made while the disk changed may have shown the losing checkpoint instead of the winning one."""
    store, elsewhere = Store(), Store()
    a = Writer(store, "a")
    await a.commit(3)
    await compact(store)
    for key in await store.keys(""):
        await elsewhere.put(key, await store.get(key))
    for each in (store, elsewhere):
        await Writer(each, "c", 50).commit()
    loser = await compact(elsewhere)
    await a.commit(2)
    wanted = await seen(store)
    assert (await compact(store)).written
    store.now += 2 * HOUR
    await Writer(store, "b", 100).commit()
    pointer, columns = f"{P}~checkpoint-000002.json", key_of(loser)
    await store.put(columns, await elsewhere.get(columns))
    winner, hidden = await store.get(pointer), [f"{P}a-{number:06d}.jsonl" for number in (4, 5)]
    kept = {key: await store.get(key) for key in hidden}
    for key in hidden:
        await store.delete(key)
    await store.put(pointer, await elsewhere.get(pointer))
    show_all = iter([*kept.items(), (pointer, winner)])

    async def strike(what: str, key: str) -> Any:
        """Show the losing checkpoint in the first listing and read, and the winning one after the first change."""
        if what != "put":
            return strike
        for shown, content in show_all:
            await store.put(shown, content)
        return _nothing

    store.before = strike
    done = await compact(store)
    assert done.written
    shards = (await seen(store))["shards"]
    assert [shard for shard in shards if shard in wanted["shards"]] == list(wanted["shards"])


async def test_checkpoint_under_wrong_number_raises() -> None:
    """Otherwise the next checkpoint would take a wrong number, and segments it covers might be deleted too early."""
    store = Store()
    await Writer(store, "a").commit(2)
    done = await compact(store)
    content = await store.get(key_of(done))
    pointer = {"version": 1, "checkpoint": "~checkpoint-000007~x.jsonl.gz"}
    await store.put(f"{P}~checkpoint-000007.json", json.dumps(pointer).encode())
    await store.put(f"{P}~checkpoint-000007~x.jsonl.gz", content)
    with pytest.raises(ManifestError, match="the file contains checkpoint 1"):
        await seen(store)
