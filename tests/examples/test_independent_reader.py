"""`examples/independent_reader.py`, written from docs/format.md, reads what asyncrec reads, and refuses the same."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.manifest import names

pytestmark = pytest.mark.anyio

ROOT = Path(__file__).parents[2]
READER = ROOT / "examples" / "independent_reader.py"
PAGE = (ROOT / "docs" / "format.md").read_text("utf-8")
DATASETS = ROOT / "tests" / "vectors" / "datasets"
SCHEMA = {"id": asyncrec.FixedLen((), "int64")}


async def run(*args: object) -> tuple[list[Any], str]:
    """What the reader prints, as a program that finds nothing but Python's own modules; and why it refused."""
    done = await anyio.run_process([sys.executable, "-I", "-S", READER, *map(str, args)], check=False)
    said = done.stderr.decode()
    assert (done.returncode, said[:8]) in ((0, ""), (1, "refused:")), said
    return [json.loads(line) for line in done.stdout.splitlines()], said


async def read(*args: object) -> list[Any]:
    lines, refused = await run(*args)
    assert not refused
    return lines


def records_in(lines: Sequence[Any]) -> list[bytes]:
    return [base64.b64decode(line["record"]) for line in lines]


async def compare(path: Path, keys: Sequence[str] = ()) -> None:
    """Compare all that both read of a data set."""
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


async def write(path: Path, numbers: range, *, keyless: int = -1, **options: Any) -> list[str]:
    """Write examples whose keys are their numbers, but for one; returns the keys."""
    async with asyncrec.open_sharded_writer(path, schema=SCHEMA, **options) as writer:
        for number in numbers:
            await writer.write({"id": number}, key=None if number == keyless else str(number))
    return [str(number) for number in numbers if number != keyless]


# -- it reads the same


@pytest.mark.parametrize("version", sorted(each.name for each in DATASETS.iterdir()))
@pytest.mark.parametrize("name", ["fixed", "rolling"])
async def test_golden_data_sets_hold_what_is_expected(version: str, name: str) -> None:
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


@pytest.mark.parametrize(("kind", "compression"), [("none", ""), ("gzip", "GZIP"), ("zlib", "ZLIB")])
async def test_files_that_tensorflow_wrote(vectors: Path, kind: str, compression: str) -> None:
    told = json.loads((vectors / "manifest.json").read_text())["files"][f"records-{kind}.tfrecord"]
    records = records_in(await read("file", vectors / f"records-{kind}.tfrecord", compression))
    assert [hashlib.sha256(record).hexdigest() for record in records] == told["sha256"]


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
async def test_a_fresh_data_set_reads_the_same(tmp_path: Path, options: dict[str, Any]) -> None:
    await compare(tmp_path / "pages", await write(tmp_path / "pages", range(10), keyless=4, **options))


async def test_a_replaced_data_set_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    await write(path, range(10), num_shards=2)
    keys = await write(path, range(20, 25), num_shards=3, mode="replace")
    await compare(path, keys)
    await tools.compact(path)
    await compare(path, keys)
    await compare(path, await write(path, range(30, 33), num_shards=1, mode="replace"))
    assert (await run("key", path, "20"))[1].startswith("refused")


async def test_an_empty_compressed_data_set_reads_the_same(tmp_path: Path) -> None:
    await write(tmp_path / "pages", range(0), num_shards=2, compression="GZIP")
    await compare(tmp_path / "pages")


async def test_segments_behind_a_checkpoint_read_the_same(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    keys = await write(path, range(5), max_shard_records=2, compression="GZIP")
    async with asyncrec.open_sharded_writer(path, max_shard_records=2, schema=SCHEMA, metadata={"b": 1}) as writer:
        for number in range(10, 12):
            await writer.write({"id": number}, key=str(number))
        await writer.commit()
        await tools.compact(path)
        await compare(path, [*keys, "10"])
        for covered in (path.parent / "_manifest" / "pages").glob("*-0*.jsonl"):  # as compaction does, later
            covered.unlink()
        for number in range(12, 14):
            await writer.write({"id": number}, key=str(number))
        await writer.commit()
        await compare(path, [*keys, "10", "13"])
    await compare(path, [*keys, "10", "13"])
    await tools.compact(path)
    await compare(path, [*keys, "10", "13"])


async def test_of_one_key_the_first_that_was_committed_is_read(tmp_path: Path) -> None:
    for writer, record in (("z", b"first"), ("a", b"second")):
        async with asyncrec.open_sharded_writer(tmp_path / "pages", writer_id=writer, on_duplicate="write") as pages:
            await pages.write(record, key="k")
    assert records_in(await read("key", tmp_path / "pages", "k")) == [b"first"]
    await compare(tmp_path / "pages", ["k"])


@pytest.mark.parametrize("closed", [True, False], ids=["tombstone", "fence"])
async def test_what_an_abandoned_writer_committed_stays(tmp_path: Path, closed: bool) -> None:
    path, folder = tmp_path / "pages", tmp_path / "_manifest" / "pages"
    await write(path, range(4), max_shard_records=2, writer_id="w1")
    given_up = {"version": 2, "writer": "w1", "time": "2026-11-27T00:00:00.000000Z", "shards": 0}
    line = json.dumps({**given_up, "closed": closed, "abandoned": True}) + "\n"
    (folder / "w1-closed.jsonl").unlink()
    (folder / f"w1-{'closed' if closed else '000002'}.jsonl").write_text(line)
    await compare(path, ["0", "3"])
    await tools.compact(path)
    await compare(path, ["0", "3"])


async def test_an_index_that_does_not_fit_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "pages"
    await write(path, range(4), max_shard_records=2)
    first, second = sorted((tmp_path / "_index").iterdir())
    first.unlink()
    second.write_text("0 9999\n")
    await compare(path, ["0", "3"])


# -- it refuses the same


def edit(file: str, old: str, new: str) -> Callable[[Path], None]:
    """Replace a text in the one file that matches a pattern."""

    def apply(folder: Path) -> None:
        (path,) = folder.glob(file)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return apply


def cut(file: str, end: int) -> Callable[[Path], None]:
    """Cut the end off the one file that matches a pattern."""

    def apply(folder: Path) -> None:
        (path,) = folder.glob(file)
        path.write_bytes(path.read_bytes()[:end])

    return apply


def flip(file: str, at: int) -> Callable[[Path], None]:
    """Flip a bit of a byte in the one file that matches a pattern."""

    def apply(folder: Path) -> None:
        (path,) = folder.glob(file)
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return apply


SEGMENT = "_manifest/pages/w1-closed.jsonl"
OUTSIDE = [
    "../x",
    "a/../x",
    "/x",
    "\\\\x",
    "a\\\\..\\\\x",
    "s3://b/x",
    "c:x",
    "a//x",
    "./x",
    "a/",
    "",
    "\\u0000",
    "\\ud800",
]
OF_SEGMENT = {
    "version": edit(SEGMENT, '"version":2', '"version":3'),
    "no-version": edit(SEGMENT, '"version":2,', ""),
    "format": edit(SEGMENT, '"format":1', '"format":2'),
    "not-json": edit(SEGMENT, "{", "["),
    "not-object": edit(SEGMENT, '{"path"', '7\n{"path"'),
    "fewer": edit(SEGMENT, '"shards":1', '"shards":2'),
    "more": edit(SEGMENT, '"shards":1', '"shards":0'),
    "boolean": edit(SEGMENT, '"shards":1', '"shards":true'),
    "cut-off": cut(SEGMENT, -1),
    "compression": edit(SEGMENT, '"compression":""', '"compression":"ZSTD"'),
    "records": edit(SEGMENT, '"records":4', '"records":400'),
    "negative": edit(SEGMENT, '"records":4', '"records":-4'),
    "checksum": edit(SEGMENT, '"crc32c":"', '"crc32c":"X'),
    "no-path": edit(SEGMENT, '"path"', '"paht"'),
    "no-time": edit(SEGMENT, '"committed":"2', '"committed":"never 2'),
    **{f"path-{path}": edit(SEGMENT, '"path":"pages-w1-000000.tfrecord"', f'"path":"{path}"') for path in OUTSIDE},
    "path-of-index": edit(SEGMENT, '"path":"_index/', '"path":"_index/../../'),
    "path-of-keys": edit(SEGMENT, '"path":"_keys/', '"path":"_keys/../../'),
    "path-removed": edit(SEGMENT, '"remove":[]', '"remove":["../x"]'),
}
CHECKPOINT = "_manifest/checked/~checkpoint-000001~*"
OF_CHECKPOINT = {"flipped": flip(CHECKPOINT, 200), "cut-off": cut(CHECKPOINT, -1)}
OF_SHARD = {
    "size": cut("pages-w1-000000.tfrecord", -1),
    "record": flip("pages-w1-000000.tfrecord", 20),
    "length": flip("pages-w1-000000.tfrecord", 0),
    "missing": lambda folder: (folder / "pages-w1-000000.tfrecord").unlink(),
}
OF_KEYS = {"checksum": flip("_keys/pages-w1-*", 3), "size": cut("_keys/pages-w1-*", -1)}


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")

    async def make() -> None:
        for name in ("pages", "checked"):
            await write(folder / name, range(4), writer_id="w1")
        await tools.compact(folder / "checked")

    anyio.run(make)
    return folder


@pytest.fixture
def damaged(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "damaged"))


async def refuse(path: Path) -> None:
    """See that neither the reader nor asyncrec reads a manifest."""
    lines, refused = await run("snapshot", path)
    assert (lines, refused != "") == ([], True)
    with pytest.raises(asyncrec.errors.ManifestError):
        await asyncrec.read_manifest(path)


@pytest.mark.parametrize("damage", OF_SEGMENT.values(), ids=OF_SEGMENT)
async def test_a_segment_that_must_be_refused_is(damaged: Path, damage: Callable[[Path], None]) -> None:
    damage(damaged)
    await refuse(damaged / "pages")


@pytest.mark.parametrize("damage", OF_CHECKPOINT.values(), ids=OF_CHECKPOINT)
async def test_a_checkpoint_that_must_be_refused_is(damaged: Path, damage: Callable[[Path], None]) -> None:
    damage(damaged)
    await refuse(damaged / "checked")


@pytest.mark.parametrize("damage", OF_SHARD.values(), ids=OF_SHARD)
async def test_a_shard_that_must_be_refused_is(damaged: Path, damage: Callable[[Path], None]) -> None:
    assert len(await read("number", damaged / "pages", 0)) == 1
    damage(damaged)
    for command in (["records", damaged / "pages"], ["number", damaged / "pages", 0]):
        lines, refused = await run(*command)
        assert (lines, refused != "") == ([], True)


@pytest.mark.parametrize("damage", OF_KEYS.values(), ids=OF_KEYS)
async def test_keys_that_must_be_refused_are(damaged: Path, damage: Callable[[Path], None]) -> None:
    damage(damaged)
    assert (await run("key", damaged / "pages", "1"))[1].startswith("refused")
    assert records_in(await read("number", damaged / "pages", 1))


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
async def test_compressed_data_that_must_be_refused_is(vectors: Path, tmp_path: Path, compression: str) -> None:
    whole = (vectors / f"records-{compression.lower()}.tfrecord").read_bytes()
    for damage in (whole[:-1], whole[:1000], whole + b"more", whole[:500] + whole[600:]):
        (tmp_path / "file").write_bytes(damage)
        assert (await run("file", tmp_path / "file", compression))[1].startswith("refused")


@pytest.mark.parametrize("end", [-1, -5, 5, 11])
async def test_a_file_that_is_cut_short_is_refused(vectors: Path, tmp_path: Path, end: int) -> None:
    whole = (vectors / "records-none.tfrecord").read_bytes()
    (tmp_path / "file").write_bytes(whole[:end] if end < 0 else whole + whole[:end])
    assert (await run("file", tmp_path / "file"))[1].startswith("refused")


async def test_a_data_set_without_a_manifest_is_refused() -> None:
    assert (await run("snapshot", DATASETS / "1" / "dead"))[1].startswith("refused")


# -- it is short, and the page is whole


def test_the_reader_is_short_and_imports_only_the_standard_library() -> None:
    text = READER.read_text("utf-8")
    assert len(text.splitlines()) <= 250
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    modules |= {str(node.module) for node in imported if isinstance(node, ast.ImportFrom)}
    assert {module.partition(".")[0] for module in modules} <= sys.stdlib_module_names


def test_the_page_has_each_pattern_of_a_name() -> None:
    patterns = re.findall(r"^    (\S+)  ", names.__doc__ or "", re.MULTILINE)
    assert len(patterns) > 10
    assert [pattern for pattern in patterns if f"`{pattern}`" not in PAGE] == []


def test_the_page_has_each_member_of_what_is_stored() -> None:
    folder = DATASETS / "1"
    lines = [line for path in folder.glob("_manifest/*/*.json*") for line in path.read_bytes().splitlines()]
    lines.append((folder / ".dead.w5.partial").read_bytes().splitlines()[1])
    found: set[str] = set()
    for line in map(json.loads, lines):
        for each in (line, line.get("index") or {}, line.get("compression") or {}):
            found.update(each if isinstance(each, dict) else ())
    assert {"end_crc32c", "removal", "stems", "member_bytes"} < found
    assert [member for member in sorted(found) if f"`{member}`" not in PAGE] == []
