"""`compact` joins small shards without losing or moving a record, and without disturbing open readers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import anyio
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from met_storage import MetStorage
from tool_data import SCHEMA, example, write_pages

import asyncrec
from asyncrec import blocking, tools
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, DatasetError, FormatError, ObjectNotFoundError
from asyncrec.storage import MemoryStorage
from asyncrec.storage._base import Storage
from asyncrec.tools import CompactReport

pytestmark = pytest.mark.anyio


async def compact(storage: Storage, path: str = "pages", **options: Any) -> CompactReport:
    return await tools.compact(path, storage=storage, **options)


async def write(storage: Storage, writer: str, records: Sequence[tuple[str | None, bytes]], **options: Any) -> None:
    given = {"max_shard_records": 2, "on_duplicate": "write", "writer_id": writer, **options}
    async with asyncrec.open_sharded_writer("pages", storage=storage, **given) as opened:
        for key, record in records:
            await opened.write(record, key=key)


async def stored(storage: Storage, path: str = "pages") -> list[bytes]:
    async with asyncrec.open_dataset(path, storage=storage) as dataset:
        return [record async for record in dataset]


async def objects(storage: Storage) -> dict[str, bytes]:
    return {info.key: await storage.get(info.key) async for info in storage.list_objects()}


async def shards(storage: Storage) -> list[asyncrec.ShardEntry]:
    return list((await asyncrec.read_manifest("pages", storage=storage)).shards)


async def test_joined_records_keep_order_and_keys(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    report = await compact(storage)
    assert (report.joined, report.into, report.commits, report.shards, report.records) == (15, 1, 1, 1, 30)
    assert await stored(storage) == [example(number) for number in range(30)]
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get(17) == example(17)
        assert [await dataset.get_by_key(f"key {number}") for number in (0, 11, 29)] == [
            example(number) for number in (0, 11, 29)
        ]
    assert (await tools.verify("pages", storage=storage)).ok


async def test_compact_data_set_is_not_rewritten(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    await compact(storage)
    before = await objects(storage)
    report = await compact(storage)
    assert (report.joined, report.commits, report.written) == (0, 0, False)
    assert await objects(storage) == before


@pytest.mark.parametrize("options", [{}, {"compression": "GZIP"}, {"compression": "ZLIB"}, {"index": False}], ids=str)
async def test_compaction_keeps_schema_metadata_and_shard_properties(storage: Storage, options: dict[str, Any]) -> None:
    await write_pages(storage, max_shard_records=3, **options)
    before = await asyncrec.read_manifest("pages", storage=storage)
    await compact(storage)
    after = await asyncrec.read_manifest("pages", storage=storage)
    assert (after.schema, after.metadata, after.conflicts) == (SCHEMA.to_json(), {"made": "here"}, ())
    [joined] = after.shards
    assert joined.compression == before.shards[0].compression
    assert (joined.first, joined.last) == (before.shards[0].first, before.shards[-1].last)
    assert (joined.index is None, joined.keys is None) == (options.get("index") is False, False)
    assert await stored(storage) == [example(number) for number in range(30)]


async def test_size_of_joined_shards_is_bounded(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=1)
    size = max(shard.bytes for shard in await shards(storage))
    await compact(storage, max_shard_bytes=10 * size)
    assert [shard.records for shard in await shards(storage)] == [10, 10, 10]
    assert all(shard.bytes <= 10 * size for shard in await shards(storage))
    assert await stored(storage) == [example(number) for number in range(30)]


async def test_compaction_changes_compression_of_all_shards(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2, writer_id="a")
    await write_pages(storage, max_shard_records=2, writer_id="b", records=4, compression="ZLIB", on_duplicate="write")
    await compact(storage, compression="GZIP")
    assert {shard.compression for shard in await shards(storage)} == {"GZIP"}
    assert await stored(storage) == [example(number) for number in (*range(30), *range(4))]
    assert (await compact(storage, compression="GZIP")).joined == 0


async def test_later_duplicates_are_dropped(storage: Storage) -> None:
    """The record committed first is kept, although its shard is the last in order and is not joined."""
    await write(storage, "b", [("twice", b"first".ljust(90)), (None, b"no key"), ("once", b"once")])
    await write(storage, "a", [("twice", b"second"), ("other", b"other"), (None, b"no key"), ("twice", b"third")])
    report = await compact(storage, drop_duplicates=True, max_shard_bytes=150, dry_run=True)
    assert (report.duplicates, report.joined) == (2, 2)
    report = await compact(storage, drop_duplicates=True, max_shard_bytes=150)
    assert (report.duplicates, report.joined, report.records) == (2, 2, 5)
    assert await stored(storage) == [b"other", b"no key", b"first".ljust(90), b"no key", b"once"]
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("twice") == b"first".ljust(90)
    assert (await compact(storage, drop_duplicates=True, max_shard_bytes=150)).commits == 0


async def test_shards_with_and_without_keys_are_joined(storage: Storage) -> None:
    await write(storage, "a", [(None, b"1"), (None, b"2")])
    await write(storage, "b", [("three", b"3"), (None, b"4")])
    await write(storage, "c", [(None, b"5")])
    await compact(storage)
    assert len(await shards(storage)) == 1
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("three") == b"3"
    assert await stored(storage) == [b"1", b"2", b"3", b"4", b"5"]


async def test_manifest_only_option_leaves_shards_unchanged(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    before = await shards(storage)
    report = await compact(storage, manifest_only=True)
    assert (report.joined, report.written) == (0, True)
    assert await shards(storage) == before


async def test_dry_run_counts_without_changes(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    before = await objects(storage)
    report = await compact(storage, dry_run=True)
    assert (report.joined, report.into, report.commits, report.dry_run) == (15, 1, 1, True)
    assert report.bytes == sum(shard.bytes for shard in await shards(storage))
    assert await objects(storage) == before


async def test_invalid_input_is_rejected_without_changes(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    await asyncrec.write_records("alone.tfrecord", [b"1"], storage=storage)
    before = await objects(storage)
    refused: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("pages", {"max_shard_bytes": 0}, ArgumentValueError, "at least 1"),
        ("pages", {"max_shard_bytes": "much"}, ArgumentValueError, "max_shard_bytes"),
        ("pages", {"compression": "LZ4"}, ArgumentValueError, "LZ4"),
        ("pages", {"grace": 1.0}, ArgumentValueError, "at least 60"),
        ("pages", {"jobs": 0}, ArgumentValueError, "jobs"),
        ("pages", {"jobs": "2"}, ArgumentTypeError, "jobs"),
        ("pages", {"manifest_only": True, "dry_run": True}, ArgumentValueError, "cannot be combined"),
        ("pages", {"manifest_only": True, "drop_duplicates": True}, ArgumentValueError, "cannot be combined"),
        ("pages", {"manifest_only": True, "compression": "GZIP"}, ArgumentValueError, "cannot be combined"),
        ("alone.tfrecord", {}, DatasetError, "with a manifest"),
        ("nowhere", {}, ObjectNotFoundError, "nowhere"),
    ]
    for path, options, error, message in refused:
        with pytest.raises(error, match=message):
            await compact(storage, path, **options)
    assert await objects(storage) == before


async def test_damaged_shard_is_kept_and_others_are_joined(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.tools._joining._PIECE_SHARDS", 5)
    await write_pages(storage, max_shard_records=2)
    damaged = (await shards(storage))[7].path
    content = bytearray(await storage.get(damaged))
    content[30] ^= 1
    await storage.put(damaged, bytes(content))
    with pytest.raises(FormatError, match=damaged):
        await compact(storage)
    assert [shard.records for shard in await shards(storage)] == [10, 2, 2, 2, 2, 2, 10]
    assert await storage.get(damaged) == content


def _paths(report: CompactReport, storage: Storage) -> set[str]:
    return {path.removeprefix(storage.root).lstrip("/") for path in report.removed}


async def test_open_readers_continue_during_grace() -> None:
    storage = MemoryStorage()
    await write_pages(storage, max_shard_records=2)
    old = {path for shard in await shards(storage) for path in shard.objects}
    async with asyncrec.open_dataset("pages", storage=storage) as dataset, dataset.shuffled(seed=1) as stream:
        first = await anext(stream)
        report = await compact(storage)
        assert report.removed == ()
        assert old < set(await objects(storage))
        assert sorted([first, *[each async for each in stream]]) == sorted(example(each) for each in range(30))
        assert await dataset.get_by_key("key 20") == example(20)
        assert (await compact(storage, grace=60)).removed == ()


async def test_old_shards_are_deleted_after_grace() -> None:
    storage = MetStorage(MemoryStorage())
    await write_pages(storage, max_shard_records=2)
    old = {path for shard in await shards(storage) for path in shard.objects}
    await compact(storage)
    await storage.age(hours=0.9)
    assert (await compact(storage)).removed == ()
    await storage.age(hours=0.1)
    report = await compact(storage)
    assert _paths(report, storage) == old
    assert old.isdisjoint(await objects(storage))
    assert await stored(storage) == [example(number) for number in range(30)]


async def test_verify_deletes_compacted_shards_only_past_min_age(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    old = {shard.path for shard in await shards(storage)}
    await compact(storage)
    assert (await tools.verify("pages", storage=storage)).orphans == []
    assert (await tools.verify("pages", storage=storage, delete=True)).deleted == []
    found = await tools.verify("pages", storage=storage, delete=True, min_age=0)
    assert {orphan.key for orphan in found.orphans} == old
    assert len(found.deleted) == len(old)
    assert old.isdisjoint(await objects(storage))


async def test_old_shards_are_hidden_from_patterns_and_folders(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    await compact(storage)
    for path in ("pages-*.tfrecord", ""):
        assert (await tools.count(path, storage=storage)).records == 30
        assert len(await asyncrec.list_shards(path, storage=storage)) == 1
    async with asyncrec.open_dataset("pages-*.tfrecord", storage=storage) as dataset:
        assert len(dataset) == 30


async def test_deletion_removes_records_from_old_shards(storage: Storage) -> None:
    canary = b"a canary that is in one record alone"
    await write(storage, "a", [("one", b"1"), ("canary", canary), ("two", 2 * canary[:20])], max_shard_records=1)
    await compact(storage, max_shard_bytes=150)
    assert sum(canary in content for content in (await objects(storage)).values()) == 2
    report = await tools.delete("pages", keys=["canary"], storage=storage)
    assert (report.records, report.unfinished, report.uncommitted) == (1, [], [])
    assert not any(canary in content for content in (await objects(storage)).values())
    assert await stored(storage) == [b"1", 2 * canary[:20]]


@pytest.mark.virtual_clock
@pytest.mark.parametrize("deletes", [False, True], ids=["", "records are deleted"])
async def test_follower_receives_each_record_once(storage: Storage, deletes: bool) -> None:
    await write(storage, "a", [("1", b"1"), ("2", b"2"), ("3", b"3")])
    async with tools.open_tail("pages", records=1, follow=True, storage=storage) as tail:
        assert [each.data for each in await anext(tail)] == [b"3"]
        await write(storage, "b", [("4", b"4"), ("5", b"5"), ("6", b"6")])
        await compact(storage)
        if deletes:
            await tools.delete("pages", keys=["2", "5"], storage=storage)
        await write(storage, "c", [("7", b"7")])
        await compact(storage)
        found: list[bytes] = []
        while b"7" not in found:
            found += [each.data for each in await anext(tail)]
        assert found == ([b"4", b"6", b"7"] if deletes else [b"4", b"5", b"6", b"7"])


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from("abc"), st.lists(st.sampled_from("xyz"), min_size=1, max_size=5)),
        st.tuples(st.just("compact"), st.sampled_from([40, 80, 1 << 20]), st.just(None)),
        st.tuples(st.just("delete"), st.sampled_from("xyz"), st.just(None)),
        st.tuples(st.just("merge"), st.just(None), st.just(None)),
    ),
    min_size=2,
    max_size=9,
)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(deadline=None)
@given(STEPS)
async def test_first_committed_record_of_key_stays_first(anyio_backend: str, given: list[Any]) -> None:
    """This holds whatever is joined and however often: records are in the order of shard names, not of commits."""
    storage = MemoryStorage()
    first: dict[str, bytes] = {}
    everything: list[tuple[str, bytes]] = []
    for number, (what, argument, keys) in enumerate(given):
        if what == "write":
            # Writers opened later get names that sort earlier.
            records = [(key, b"%d %d" % (number, at)) for at, key in enumerate(keys)]
            await write(storage, f"{argument}{100 - number}", records)
            everything += records
            for key, record in records:
                first.setdefault(key, record)
        elif not everything:
            continue
        elif what == "compact":
            await compact(storage, max_shard_bytes=argument)
        elif what == "merge":
            await compact(storage, manifest_only=True)
        else:
            await tools.delete("pages", keys=[argument], storage=storage)
            everything = [(key, record) for key, record in everything if key != argument]
            first.pop(argument, None)
    if not everything:
        return
    assert sorted(await stored(storage)) == sorted(record for _, record in everything)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert {key: await dataset.get_by_key(key) for key in first} == first
    await tools.dedupe("pages", "once", by="key", storage=storage, target_storage=storage)
    assert sorted(await stored(storage, "once")) == sorted(first.values())
    await tools.copy("pages", "copied", storage=storage, target_storage=storage)
    async with asyncrec.open_dataset("copied", storage=storage) as dataset:
        assert {key: await dataset.get_by_key(key) for key in first} == first


async def test_compaction_reports_progress_to_full_size(storage: Storage) -> None:
    await write_pages(storage, max_shard_records=2)
    told: list[tuple[int, int | None]] = []
    report = await compact(storage, progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (report.bytes, report.bytes)


def test_blocking_call_returns_same_report(tmp_path: Any) -> None:
    path = str(tmp_path / "pages")
    anyio.run(_write_at, path)
    report = blocking.compact(path)
    assert (report.joined, report.into, report.records) == (4, 1, 4)


async def _write_at(path: str) -> None:
    async with asyncrec.open_sharded_writer(path, max_shard_records=1) as writer:
        await writer.write_many([np.int64(number).tobytes() for number in range(4)])
