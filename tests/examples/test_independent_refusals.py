"""Both `examples/independent_reader.py` and asyncrec reject everything that docs/format-reading.md says to reject."""

from __future__ import annotations

import gzip
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import anyio
import independent_reader
import pytest
from read_independently import DATASETS, list_files, read, records_in, run, write

import asyncrec
from asyncrec import tools

pytestmark = pytest.mark.anyio


def edit(file: str, old: str, new: str) -> Callable[[Path], None]:
    """Return a function that replaces a text in the only file that matches a pattern."""

    def apply(folder: Path) -> None:
        (path,) = folder.glob(file)
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))

    return apply


def cut(file: str, end: int) -> Callable[[Path], None]:
    """Return a function that truncates the only file that matches a pattern."""

    def apply(folder: Path) -> None:
        (path,) = folder.glob(file)
        path.write_bytes(path.read_bytes()[:end])

    return apply


def flip(file: str, at: int) -> Callable[[Path], None]:
    """Return a function that flips a bit in the only file that matches a pattern."""

    def apply(folder: Path) -> None:
        (path,) = folder.glob(file)
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)

    return apply


def edit_lines(old: str, new: str) -> Callable[[Path], None]:
    """Return a function that replaces a text in the checkpoint and compresses its lines again."""

    def apply(folder: Path) -> None:
        (path,) = folder.glob(CHECKPOINT)
        text = gzip.decompress(path.read_bytes()).decode()
        assert old in text
        path.write_bytes(b"".join(map(gzip.compress, text.replace(old, new, 1).encode().splitlines(keepends=True))))

    return apply


CHECKPOINT = "_manifest/checked/~checkpoint-000001~*"
SEGMENT = "_manifest/pages/w1-000002.jsonl"
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
    "version": edit(SEGMENT, '"version":1', '"version":2'),
    "version-true": edit(SEGMENT, '"version":1', '"version":true'),
    "no-version": edit(SEGMENT, '"version":1,', ""),
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
OF_CHECKPOINT = {
    "flipped": flip(CHECKPOINT, -20),
    "cut-off": cut(CHECKPOINT, -1),
    "version": edit_lines('"version":1', '"version":2'),
    "version-true": edit_lines('"version":1', '"version":true'),
    "number": edit_lines('"number":1', '"number":2'),
    "path": edit_lines('"path":["checked-', '"path":["../checked-'),
    "rows": edit_lines('"writers":1', '"writers":2'),
    "row": edit_lines('"writer":[0]', '"writer":[7]'),
    "negative": edit_lines('"writer":[0]', '"writer":[-1]'),
    "no-end": edit_lines('{"kind":"end"', '{"kind":"shards"'),
}
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
        await tools.compact(folder / "checked", manifest_only=True)

    anyio.run(make)
    return folder


@pytest.fixture
def damaged(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "damaged"))


async def refuse(path: Path) -> None:
    """Check that neither the independent reader nor asyncrec reads a manifest."""
    with pytest.raises((ValueError, LookupError, zlib.error)):
        independent_reader.read_manifest(path.parent, path.name)
    with pytest.raises(asyncrec.errors.ManifestError):
        await asyncrec.read_manifest(path)


@pytest.mark.parametrize("damage", OF_SEGMENT.values(), ids=OF_SEGMENT)
async def test_invalid_segment_is_rejected(damaged: Path, damage: Callable[[Path], None]) -> None:
    damage(damaged)
    await refuse(damaged / "pages")


@pytest.mark.parametrize("damage", OF_CHECKPOINT.values(), ids=OF_CHECKPOINT)
async def test_invalid_checkpoint_is_rejected(damaged: Path, damage: Callable[[Path], None]) -> None:
    damage(damaged)
    await refuse(damaged / "checked")


@pytest.mark.parametrize("damage", OF_SHARD.values(), ids=OF_SHARD)
async def test_invalid_shard_is_rejected(damaged: Path, damage: Callable[[Path], None]) -> None:
    assert len(await read("number", damaged / "pages", 0)) == 1
    damage(damaged)
    for command in (["records", damaged / "pages"], ["number", damaged / "pages", 0]):
        lines, refused = await run(*command)
        assert (lines, refused != "") == ([], True)


@pytest.mark.parametrize("damage", OF_KEYS.values(), ids=OF_KEYS)
async def test_invalid_keys_are_rejected(damaged: Path, damage: Callable[[Path], None]) -> None:
    damage(damaged)
    assert (await run("key", damaged / "pages", "1"))[1].startswith("refused")
    assert records_in(await read("number", damaged / "pages", 1))


@pytest.mark.parametrize("kind", ["none", "gzip", "zlib"])
@pytest.mark.parametrize("damage", ["end", "begin", "more", "hole"])
async def test_invalid_file_is_rejected(vectors: Path, tmp_path: Path, kind: str, damage: str) -> None:
    whole = (vectors / f"records-{kind}.tfrecord").read_bytes()
    damaged = {"end": whole[:-1], "begin": whole[:1000], "more": whole + b"more", "hole": whole[:500] + whole[600:]}
    compression = "" if kind == "none" else kind.upper()
    path = list_files(tmp_path, {"x.tfrecord": (damaged[damage], 206, compression)})
    lines, refused = await run("records", path)
    assert (lines, refused != "") == ([], True)
    with pytest.raises(asyncrec.errors.FormatError):
        await asyncrec.read_records(tmp_path / "x.tfrecord", compression=compression)  # type: ignore[arg-type]


async def test_rejection_names_version_and_prints_no_records(damaged: Path) -> None:
    OF_SEGMENT["version"](damaged)
    OF_CHECKPOINT["version"](damaged)
    for name in ("pages", "checked"):
        lines, refused = await run("records", damaged / name)
        assert lines == []
        assert "version" in refused


async def test_data_set_without_manifest_is_rejected() -> None:
    assert (await run("snapshot", DATASETS / "1" / "dead"))[1].startswith("refused")
