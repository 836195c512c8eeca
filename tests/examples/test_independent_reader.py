"""`examples/independent_reader.py`, which was written from docs/format*.md, reads the same as asyncrec."""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from read_independently import DATASETS, NOW, READER, SCHEMA, list_files, read, records_in, run, write

import asyncrec
from asyncrec import pages, tools
from asyncrec._shards.manifest.segment import Segment, format_time

pytestmark = pytest.mark.anyio


async def compare(path: Path, keys: Sequence[str] = ()) -> None:
    """Compare everything that both readers read from a data set."""
    manifest = await asyncrec.read_manifest(path)
    (snapshot,) = await read("snapshot", path)
    for name in ("id", "schema", "metadata"):
        assert snapshot[name] == getattr(manifest, name)
    told = [[shard[name] for name in ("path", "records", "bytes", "compression")] for shard in snapshot["shards"]]
    assert told == [[each.path, each.records, each.bytes, each.compression] for each in manifest.shards]
    async with asyncrec.open_dataset(path) as dataset:
        records = [await dataset.get(number) for number in range(len(dataset))]
        assert records_in(await read("records", path)) == records
        assert records_in(await read("number", path, *range(len(records)))) == records
        assert records_in(await read("key", path, *keys)) == [await dataset.get_by_key(key) for key in keys]


@pytest.mark.parametrize("version", sorted(each.name for each in DATASETS.iterdir()))
@pytest.mark.parametrize("name", ["fixed", "rolling", "seen"])
async def test_golden_data_sets_have_expected_contents(version: str, name: str) -> None:
    expected = json.loads((DATASETS / version / "expected.json").read_text())[name]
    (snapshot,) = await read("snapshot", DATASETS / version / name)
    assert [snapshot[each] for each in ("id", "schema", "metadata")] == [
        expected[each] for each in ("id", "schema", "metadata")
    ]
    lines = await read("records", DATASETS / version / name)
    assert expected["records"] == [
        {"shard": line["shard"], "key": line["key"], "sha256": hashlib.sha256(record).hexdigest()}
        for line, record in zip(lines, records_in(lines), strict=True)
    ]
    await compare(DATASETS / version / name)


async def test_tensorflow_files_are_read(vectors: Path, tmp_path: Path) -> None:
    told, files = json.loads((vectors / "manifest.json").read_text())["files"], {}
    for kind, compression in (("gzip", "GZIP"), ("none", ""), ("zlib", "ZLIB")):
        name = f"records-{kind}.tfrecord"
        files[name] = (vectors / name).read_bytes(), told[name]["records"], compression
    records = records_in(await read("records", list_files(tmp_path, files)))
    assert [hashlib.sha256(record).hexdigest() for record in records] == [
        each for name in files for each in told[name]["sha256"]
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"max_shard_records": 3},
        {"max_shard_records": 3, "index": False},
        {"num_shards": 3, "metadata": {"made": ["by", None]}},
        {"max_shard_records": 3, "compression": "ZLIB"},
        {"num_shards": 2, "compression": asyncrec.CompressionOptions(type="GZIP", member_bytes=60)},
    ],
    ids=["rolling", "without-index", "fixed", "zlib", "members"],
)
async def test_fresh_data_set_is_read_identically(tmp_path: Path, options: dict[str, Any]) -> None:
    await compare(tmp_path / "pages", await write(tmp_path / "pages", range(10), keyless=4, **options))


async def test_replaced_data_set_is_read_identically(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    await write(path, range(10), num_shards=2)
    keys = await write(path, range(20, 25), num_shards=3, mode="replace")
    await compare(path, keys)
    await tools.compact(path, manifest_only=True)
    await compare(path, keys)
    await compare(path, await write(path, range(30, 33), num_shards=1, mode="replace"))
    assert (await run("key", path, "20"))[1].startswith("refused")


async def test_empty_compressed_data_set_is_read_identically(tmp_path: Path) -> None:
    await write(tmp_path / "pages", range(0), num_shards=2, compression="GZIP")
    await compare(tmp_path / "pages")


async def test_segments_after_checkpoint_are_read_identically(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    first = "first"
    keys = await write(path, range(5), max_shard_records=2, compression="GZIP", writer_id=first)
    async with asyncrec.open_sharded_writer(path, max_shard_records=2, schema=SCHEMA, metadata={"b": 1}) as writer:
        for number in range(10, 12):
            await writer.write({"id": number}, key=str(number))
        await writer.commit()
        await tools.compact(path, manifest_only=True)
        await compare(path, [*keys, "10"])
        (path.parent / "_manifest" / "pages" / f"{first}-000001.jsonl").unlink()  # as a later compaction does
        for number in range(12, 14):
            await writer.write({"id": number}, key=str(number))
        await writer.commit()
        await compare(path, [*keys, "10", "13"])
    await compare(path, [*keys, "10", "13"])
    await tools.compact(path, manifest_only=True)
    await compare(path, [*keys, "10", "13"])


async def test_data_set_with_sources_is_read_identically(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    keys = await write(path, range(5), max_shard_records=2)
    progress = {"topic/3": (2, 917), "topic/4": (1, -1)}
    segment = Segment(writer="w1", time=format_time(1_700_000_000), closed=True, progress=progress)
    (path.parent / "_manifest" / "pages" / "w1-000001.jsonl").write_bytes(segment.encode())
    await compare(path, keys)
    await tools.compact(path, manifest_only=True)
    await compare(path, keys)
    assert (await asyncrec.read_manifest(path)).progress == {"topic/3": 917}


async def test_data_set_with_content_digests_is_read_identically(tmp_path: Path) -> None:
    path, options = tmp_path / "pages", {"schema": pages.PAGE, "key_feature": "url", "seen": "digest"}
    async with asyncrec.open_sharded_writer(path, max_shard_records=3, **options) as writer:
        for number in range(8):
            await writer.write(pages.page(f"http://{number}", b"%d" % (number % 3)))
    await compare(path, ["http://0", "http://7"])
    await tools.compact(path)
    await compare(path, ["http://0", "http://7"])


async def test_first_committed_record_of_key_is_read(tmp_path: Path) -> None:
    for writer, record in (("z", b"first"), ("a", b"second")):
        async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id=writer, on_duplicate="write") as pages:
            await pages.write(record, key="k")
    assert records_in(await read("key", tmp_path / "pages", "k")) == [b"first"]
    await compare(tmp_path / "pages", ["k"])


async def test_data_set_with_deleted_records_is_read_identically(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    for writer, key in (("z", "first"), ("a", "second")):
        async with asyncrec.open_sharded_writer(path, writer_id=writer, on_duplicate="write") as pages:
            for record in ("k", key, f"{key}'s other"):
                await pages.write(f"{record} of {writer}".encode(), key=record)
    await tools.delete(path, keys=["first"])
    assert records_in(await read("key", path, "k")) == [b"k of z"]
    await compare(path, ["k", "second"])
    await tools.compact(path, manifest_only=True)
    await tools.delete(path, keys=["second"])
    await compare(path, ["k", "first's other"])
    assert (await run("key", path, "second"))[1].startswith("refused")


async def test_data_set_with_joined_shards_is_read_identically(tmp_path: Path) -> None:
    """The first committed record of a key is in the middle, in a shard that is not joined."""
    path = tmp_path / "pages"
    for writer, size, records in (("c", 40, 3), ("b", 400, 1), ("a", 40, 3)):
        async with asyncrec.open_sharded_writer(
            path, writer_id=writer, on_duplicate="write", max_shard_records=1
        ) as pages:
            for number in range(records):
                await pages.write(f"{writer} {number}".encode().ljust(size), key=f"{number}" if number else "k")
    await write(path, range(10, 14), max_shard_records=2, writer_id="d")
    await tools.compact(path, max_shard_bytes=500)
    assert len((await asyncrec.read_manifest(path)).shards) == 3
    assert records_in(await read("key", path, "k", "1")) == [b"c 0".ljust(40), b"c 1".ljust(40)]
    await compare(path, ["k", "1", "2", "13"])
    await tools.delete(path, keys=["1"])
    await compare(path, ["k", "2", "13"])


@pytest.mark.parametrize("closed", [True, False], ids=["tombstone", "void"])
async def test_abandoned_writer_keeps_its_committed_records(tmp_path: Path, closed: bool) -> None:
    path, folder = tmp_path / "pages", tmp_path / "_manifest" / "pages"
    await write(path, range(4), max_shard_records=2, writer_id="w1")
    last = {"version": 1, "writer": "w1", "time": NOW, "shards": 0}
    last |= {"closed": True, "abandoned": True} if closed else {"remove": ["pages-w1-000002.tfrecord"]}
    (folder / "w1-000003.jsonl").write_text(json.dumps(last) + "\n")
    await compare(path, ["0", "3"])
    await tools.compact(path, manifest_only=True)
    await compare(path, ["0", "3"])


async def test_mismatching_index_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    await write(path, range(4), max_shard_records=2)
    first, second = sorted((tmp_path / "_index").iterdir())
    first.unlink()
    second.write_text("0 9999\n")
    await compare(path, ["0", "3"])


def test_reader_is_short_and_imports_only_standard_library() -> None:
    text = READER.read_text("utf-8")
    assert len(text.splitlines()) <= 250
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in imported if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names
