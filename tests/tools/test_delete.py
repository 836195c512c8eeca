"""`delete` removes every byte of the given records, so that they cannot be found, and leaves all others alone."""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import anyio
import pytest
from tool_data import SCHEMA, example, write_pages

import asyncrec
from asyncrec import blocking, tools
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, DatasetError, FormatError, ObjectNotFoundError
from asyncrec.storage import MemoryStorage
from asyncrec.storage._base import Storage
from asyncrec.tools import DeleteReport, Where

pytestmark = pytest.mark.anyio

CANARY = "a canary that is in one record alone"


async def delete(storage: Storage, *keys: str | bytes, **options: Any) -> DeleteReport:
    return await tools.delete("pages", keys=keys, storage=storage, **options)


async def write(storage: Storage, records: Sequence[tuple[str | None, bytes]], **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        for key, record in records:
            await writer.write(record, key=key)


async def stored(storage: Storage) -> list[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return [record async for record in dataset]


async def objects(storage: Storage) -> dict[str, bytes]:
    """Return the content of every object, and also the decompressed content of compressed ones."""
    found = {}
    async for info in storage.list_objects():
        content = await storage.get(info.key)
        found[info.key] = content
        with suppress(OSError, EOFError, zlib.error):
            found[f"{info.key}, decompressed"] = gzip.decompress(content)
        with suppress(zlib.error):
            found[f"{info.key}, inflated"] = zlib.decompressobj().decompress(content)
    return found


async def traces(storage: Storage, key: str, record: bytes) -> list[str]:
    """Return the names of the objects that still contain a record or the digest of its key."""
    digest = hashlib.blake2b(key.encode(), digest_size=16).digest()
    return [name for name, content in (await objects(storage)).items() if record in content or digest in content]


async def test_remaining_records_keep_order_after_deletion(storage: Storage) -> None:
    await write_pages(storage)
    report = await delete(storage, "key 3", "key 10", "key 29", "no such key")
    assert (report.records, report.shards, report.keys, report.keys_found) == (3, 3, 4, 3)
    assert await stored(storage) == [example(number) for number in range(30) if number not in (3, 10, 29)]
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("key 11") == example(11)
        assert await dataset.get(3) == example(4)
        for key in ("key 3", "key 10", "key 29"):
            with pytest.raises(KeyError):
                await dataset.find(key)
    verified = await tools.verify("pages", storage=storage)
    assert verified.ok
    assert not verified.orphans


async def test_every_reader_returns_remaining_records_only(storage: Storage) -> None:
    await write_pages(storage)
    await delete(storage, "key 3", "key 15")
    left = sorted(example(number) for number in range(30) if number not in (3, 15))
    async with asyncrec.interleave(await asyncrec.list_shards("pages", storage=storage), storage=storage) as stream:
        assert sorted([record async for record in stream]) == left
    async with asyncrec.open_dataset("pages", storage=storage) as dataset, dataset.shuffled(seed=1) as shuffled:
        assert sorted([record async for record in shuffled]) == left
    async with tools.open_records("pages", storage=storage) as records:
        assert sorted([each.data async for some in records for each in some]) == left
    assert (await tools.count("pages", storage=storage)).records == 28


async def test_all_records_of_key_are_deleted(storage: Storage) -> None:
    await write(storage, [("a", b"a 1"), ("b", b"b 1"), ("a", b"a 2")], on_duplicate="write", writer_id="a")
    await write(storage, [("a", b"a 3"), (None, b"a without its key")], writer_id="b")
    report = await delete(storage, "a")
    assert (report.records, report.keys_found) == (3, 1)
    assert await stored(storage) == [b"b 1", b"a without its key"]


@pytest.mark.parametrize("compacted", [False, True], ids=["", "compacted"])
@pytest.mark.parametrize("options", [{}, {"compression": "GZIP"}, {"compression": "ZLIB"}, {"num_shards": 3}], ids=str)
async def test_delete_leaves_no_byte_of_record_or_key(
    storage: Storage, options: dict[str, Any], compacted: bool
) -> None:
    limit = {} if "num_shards" in options else {"max_shard_records": 10}
    records: list[tuple[str | None, bytes]] = [(f"key {number}", b"record %d" % number) for number in range(30)]
    await write(storage, [*records[:15], ("canary", CANARY.encode()), *records[15:]], **limit, **options)
    if compacted:
        await tools.compact("pages", storage=storage, manifest_only=True)
    before = await stored(storage)
    found = await traces(storage, "canary", CANARY.encode())
    assert any("pages-" in each for each in found)
    assert any("_keys/" in each for each in found)
    assert any("~keys-" in each for each in found) == compacted
    report = await delete(storage, "canary")
    assert await traces(storage, "canary", CANARY.encode()) == []
    assert await stored(storage) == [record for record in before if record != CANARY.encode()]
    assert not {name async for name in _names(storage)}.intersection(report.objects)
    assert any("~keys-" in each for each in report.objects) == compacted
    assert "canary" not in str(report.to_json())
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("key 20") == b"record 20"


async def _names(storage: Storage) -> Any:
    async for info in storage.list_objects():
        yield f"{storage.root}/{info.key}"


async def test_earlier_checkpoint_still_opens_after_deletion(storage: Storage) -> None:
    await write_pages(storage)
    before = await tools.compact("pages", storage=storage, manifest_only=True)
    assert before.checkpoint is not None
    await delete(storage, "key 3")
    checkpoint = before.checkpoint.removeprefix(storage.root).lstrip("/")
    async with asyncrec.open_dataset(checkpoint, storage=storage) as dataset:
        assert len(dataset) == 30
        assert await dataset.get(15) == example(15)
        with pytest.raises(ObjectNotFoundError, match="open it again"):
            await dataset.get_by_key("key 15")


async def test_first_committed_record_of_key_stays_first(storage: Storage) -> None:
    await write(storage, [("twice", b"old"), ("gone", b"gone")], on_duplicate="write", writer_id="b")
    await write(storage, [("twice", b"new")], on_duplicate="write", writer_id="a")
    for _ in range(2):
        await delete(storage, "gone")
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            assert await dataset.get_by_key("twice") == b"old"
        await tools.compact("pages", storage=storage, manifest_only=True)
    await tools.dedupe("pages", "once", by="key", storage=storage, target_storage=storage)
    async with asyncrec.open_dataset("once", storage=storage) as dataset:
        assert [record async for record in dataset] == [b"old"]
    await tools.copy("pages", "copied", storage=storage, target_storage=storage)
    async with asyncrec.open_dataset("copied", storage=storage) as dataset:
        assert await dataset.get_by_key("twice") == b"old"


async def test_rewritten_shard_can_be_rewritten_again(storage: Storage) -> None:
    await write_pages(storage, records=10)
    for number in range(9):
        await delete(storage, f"key {number}")
        assert await stored(storage) == [example(each) for each in range(number + 1, 10)]
    [shard] = (await asyncrec.read_manifest("pages", storage=storage)).shards
    assert shard.path.count(".") == 2, "the name says who rewrote it last, and not who did before"


async def test_records_matching_conditions_are_deleted(storage: Storage) -> None:
    await write_pages(storage)
    report = await tools.delete("pages", where=[Where("label", "1"), Where("text", "2", "contains")], storage=storage)
    chosen = [number for number in range(30) if number % 3 == 1 and "2" in str(number)]
    assert (report.records, report.where) == (len(chosen), ["label = 1", "text contains 2"])
    assert await stored(storage) == [example(number) for number in range(30) if number not in chosen]
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("key 20") == example(20)


async def test_delete_keeps_schema_metadata_and_shard_properties(storage: Storage) -> None:
    await write_pages(storage, compression="GZIP", writer_id="a")
    await write_pages(storage, records=5, index=False, writer_id="b")
    before = await asyncrec.read_manifest("pages", storage=storage)
    await delete(storage, *(f"key {number}" for number in (0, 10, 20)))
    after = await asyncrec.read_manifest("pages", storage=storage)
    assert (after.schema, after.metadata, after.conflicts) == (before.schema, before.metadata, ())
    assert (after.schema, after.metadata) == (SCHEMA.to_json(), {"made": "here"})
    assert [shard.records for shard in after.shards] == [9, 9, 9, 4]
    for old, new in zip(before.shards, after.shards, strict=True):
        assert (new.first, new.last, new.compression) == (old.first, old.last, old.compression)
        assert (new.index is None, new.keys is None) == (old.index is None, old.keys is None)
    assert [shard.index is None for shard in after.shards] == [False, False, False, True]


async def test_empty_shard_is_removed_after_deletion(storage: Storage) -> None:
    await write_pages(storage)
    await delete(storage, *(f"key {number}" for number in range(10, 20)))
    assert await stored(storage) == [example(number) for number in (*range(10), *range(20, 30))]
    await delete(storage, *(f"key {number}" for number in range(30)))
    assert await stored(storage) == []
    assert not [name for name in await objects(storage) if not name.startswith("_manifest/")]


async def test_deleted_key_can_be_written_again(storage: Storage) -> None:
    await write_pages(storage, schema=None)
    await tools.compact("pages", storage=storage, manifest_only=True)
    await delete(storage, "key 3")
    await write(storage, [("key 3", b"written again"), ("key 4", b"a duplicate")], on_duplicate="skip")
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_by_key("key 3") == b"written again"
        assert len(dataset) == 30


async def test_dry_run_counts_without_changes(storage: Storage) -> None:
    await write_pages(storage)
    before = await objects(storage)
    report = await delete(storage, "key 3", "key 4", "key 15", dry_run=True)
    assert (report.records, report.shards, report.dry_run, report.deletions) == (3, 2, True, [])
    report = await tools.delete("pages", where=[Where("label", "1")], dry_run=True, storage=storage)
    assert (report.records, report.shards) == (10, 3)
    assert await objects(storage) == before


async def test_invalid_input_is_rejected_without_changes(storage: Storage) -> None:
    await write_pages(storage)
    await asyncrec.write_records("alone.tfrecord", [b"1"], storage=storage)
    await asyncrec.write_records("plain-00000-of-00001.tfrecord", [b"1"], storage=storage)
    before = await objects(storage)
    condition = Where("label", "1")
    refused: list[tuple[str, dict[str, Any], type[Exception], str]] = [
        ("pages", {}, ArgumentValueError, "nothing to delete"),
        ("pages", {"keys": []}, ArgumentValueError, "no key was passed"),
        ("pages", {"keys": "key 3"}, ArgumentTypeError, r"pass \[key\]"),
        ("pages", {"keys": b"key 3"}, ArgumentTypeError, r"pass \[key\]"),
        ("pages", {"keys": ["key 3", 4]}, ArgumentTypeError, "not int"),
        ("pages", {"keys": ["key 3", ""]}, ArgumentValueError, "empty"),
        ("pages", {"keys": ["key 3"], "where": [condition]}, ArgumentValueError, "cannot be combined"),
        ("pages", {"where": [Where("nothing", "1")]}, ArgumentValueError, "no feature"),
        ("pages", {"keys": ["key 3"], "jobs": 0}, ArgumentValueError, "jobs"),
        ("alone.tfrecord", {"keys": ["key 3"]}, DatasetError, "with a manifest"),
        ("plain", {"keys": ["key 3"]}, DatasetError, "with a manifest"),
        ("nowhere", {"keys": ["key 3"]}, ObjectNotFoundError, "nowhere"),
    ]
    for path, options, error, message in refused:
        with pytest.raises(error, match=message):
            await tools.delete(path, storage=storage, **options)
    assert await objects(storage) == before


async def test_damaged_shard_is_kept_and_named(storage: Storage) -> None:
    await write_pages(storage, records=20)
    damaged = (await asyncrec.read_manifest("pages", storage=storage)).shards[1].path
    content = bytearray(await storage.get(damaged))
    content[30] ^= 1
    await storage.put(damaged, bytes(content))
    with pytest.raises(FormatError, match=damaged):
        await delete(storage, "key 15")
    assert await storage.get(damaged) == content
    await delete(storage, "key 3")
    assert (await tools.count("pages", storage=storage)).records == 19


async def test_damaged_keys_raise(storage: Storage) -> None:
    await write_pages(storage, records=10)
    keys = (await asyncrec.read_manifest("pages", storage=storage)).shards[0].keys
    assert keys is not None
    content = bytearray(await storage.get(keys.path))
    content[3] ^= 1
    await storage.put(keys.path, bytes(content))
    with pytest.raises(DatasetError, match="the keys do not match"):
        await delete(storage, "key 3")
    assert len(await stored(storage)) == 10


async def test_deletion_is_committed_in_pieces(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.tools._delete._PIECE_SHARDS", 2)
    await write_pages(storage, records=60)
    report = await delete(storage, *(f"key {number}" for number in range(0, 50, 5)))
    assert [(len(each.shards), each.records) for each in report.deletions] == [(2, 4), (2, 4), (1, 2)]
    assert await stored(storage) == [example(number) for number in range(60) if number % 5 or number >= 50]


async def test_uncommitted_records_are_kept_and_writer_is_named(storage: Storage) -> None:
    await write_pages(storage, records=10, schema=None)
    others = [example(number) for number in range(10) if number != 3]
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, on_duplicate="write", max_shard_records=9, writer_id="z"
    ) as writer:
        await writer.write(b"other", key="other")
        await writer.write(b"the same key", key="key 3")
        await writer.flush()
        report = await delete(storage, "key 3")
        assert report.records == 1
        assert [job.id for job in report.unfinished] == ["z"]
        assert "run the deletion again" in report.out_of_reach[-1]
    assert await stored(storage) == [*others, b"other", b"the same key"]
    report = await delete(storage, "key 3")
    assert (report.records, report.unfinished) == (1, [])
    assert await stored(storage) == [*others, b"other"]


async def test_open_data_set_keeps_length_and_advises_reopening() -> None:
    storage = MemoryStorage()
    await write_pages(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        await delete(storage, "key 3")
        assert len(dataset) == 30
        assert await dataset.get(15) == example(15)
        with pytest.raises(
            ObjectNotFoundError, match="records were deleted after the data set was opened, open it again"
        ):
            await dataset.get(3)


@pytest.mark.virtual_clock
async def test_follower_receives_no_rewritten_records_again(storage: Storage) -> None:
    await write_pages(storage, records=20)
    async with tools.open_tail("pages", records=1, follow=True, storage=storage) as tail:
        assert [each.data for each in await anext(tail)] == [example(19)]
        await delete(storage, "key 3")
        await delete(storage, "key 4")
        await write(storage, [("new", example(99))])
        assert [each.data for each in await anext(tail)] == [example(99)]


async def test_tail_shows_last_records_after_deletion(storage: Storage) -> None:
    await write_pages(storage, records=30)
    await delete(storage, "key 3")
    async with tools.open_tail("pages", records=2, storage=storage) as tail:
        assert [each.data async for some in tail for each in some] == [example(28), example(29)]


def test_blocking_call_returns_same_report(tmp_path: Any) -> None:
    path = str(tmp_path / "pages")
    anyio.run(_write_at, path)
    report = blocking.delete(path, keys=["key 3"])
    assert (report.records, report.shards) == (1, 1)


async def _write_at(path: str) -> None:
    async with asyncrec.open_sharded_writer(path) as writer:
        await writer.write(b"record", key="key 3")
