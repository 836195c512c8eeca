"""Plugin formats are registered, used by `convert`, rejected if invalid, and suggested if missing."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from plugin_modules import found, plugin

import asyncrec
from asyncrec import tools
from asyncrec.errors import PluginError
from asyncrec.plugins import BadMember, Converted, Format, SourceFile
from asyncrec.plugins._manager import Plugins
from asyncrec.storage._base import Storage
from asyncrec.tools._formats import Formats
from asyncrec.tools._formats.jsonl import _Parser

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_bytes(file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
    """Yield a record for each byte."""

    async def read() -> AsyncIterator[Converted]:
        while block := await file.receive(10):
            yield Converted([bytes([byte]) for byte in block], [BadMember(file.path, "here", "odd")] * (b"!" in block))

    yield read()


class Joined:
    def encode(self, records: Any) -> bytes:
        return b"".join(records)

    def finish(self) -> bytes:
        return b"."


GOOD = Format(name="bytes", suffixes=(".bytes",), open=open_bytes, encoder=lambda name, schema: Joined())


@pytest.fixture
def formats(monkeypatch: pytest.MonkeyPatch) -> Formats:
    formats = Formats(found(plugin("formats", "good", GOOD)))
    monkeypatch.setattr("asyncrec.tools._convert.FORMATS", formats)
    return formats


async def test_plugin_format_is_read_and_written(storage: Storage, formats: Formats) -> None:
    await storage.put("x.bytes", b"abc!" * 5)
    report = await tools.convert("x.bytes", "x.tfrecord", storage=storage, target_storage=storage)
    assert (report.records, report.bad_count) == (20, 2)
    assert await asyncrec.read_records("x.tfrecord", storage=storage) == [b"a", b"b", b"c", b"!"] * 5
    await tools.convert("x.tfrecord", "back.bytes", storage=storage, target_storage=storage)
    assert await storage.get("back.bytes") == b"abc!" * 5 + b"."


async def test_convert_finds_plugin_format_files_in_folder(storage: Storage, formats: Formats) -> None:
    for name in ("in/a.bytes", "in/b.BYTES"):
        await storage.put(name, b"xy")
    assert (await tools.convert("in", "set", storage=storage, target_storage=storage)).records == 4


@pytest.mark.parametrize(("source", "target"), [("x.parquet", "set"), ("x.tfrecord", "x.parquet"), ("in", "set")])
async def test_missing_format_plugin_error_suggests_pip_install(
    storage: Storage, formats: Formats, source: str, target: str
) -> None:
    for name in ("x.parquet", "in/a.warc.gz"):
        await storage.put(name, b"")
    await asyncrec.write_records("x.tfrecord", [b"x"], storage=storage)
    with pytest.raises(PluginError, match="pip install asyncrec-formats"):
        await tools.convert(source, target, storage=storage, target_storage=storage)


@pytest.mark.parametrize("target", ["x.tfrecord", "folder/set"])
async def test_json_lines_need_no_plugin(storage: Storage, monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    plugins = Plugins()
    monkeypatch.setattr("asyncrec.tools._convert.FORMATS", Formats(plugins))
    await storage.put("x.jsonl", b'{"a": 1}\n')
    await tools.convert("x.jsonl", target, storage=storage, target_storage=storage)
    await tools.convert(target, "back.jsonl.gz", storage=storage, target_storage=storage)
    assert not plugins.loaded


@pytest.mark.parametrize(
    ("source", "option", "named"),
    [("in/x.txt", "source_format", "jsonl"), ("in", "source_format", "jsonl"), ("in", "target_format", "tfrecord")],
)
async def test_data_set_name_may_contain_dot(storage: Storage, source: str, option: str, named: str) -> None:
    await storage.put("in/x.txt" if source.endswith("txt") else "in/x.jsonl", b'{"a": 1}\n')
    options: dict[str, Any] = {option: named}
    report = await tools.convert(source, "out/set.v2", storage=storage, target_storage=storage, **options)
    assert report.records == (await asyncrec.read_manifest("out/set.v2", storage=storage)).records == 1


@pytest.mark.parametrize("side", ["storage_options", "target_storage_options"])
@pytest.mark.parametrize(("source", "target"), [("x.tfrecord", "x.jsonl"), ("x.jsonl", "set")])
async def test_convert_passes_storage_options_to_matching_side(
    tmp_path: Path, source: str, target: str, side: str
) -> None:
    await asyncrec.write_records(tmp_path / "x.tfrecord", [asyncrec.encode_example({"a": 1})])
    (tmp_path / "x.jsonl").write_text('{"a": 1}\n')
    options: dict[str, Any] = {side: {"nothing": 1}}
    with pytest.raises(TypeError, match="nothing"):
        await tools.convert(tmp_path / source, tmp_path / target, **options)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("bytes", "is not a Format"),
        (Format(name="jsonl", suffixes=(".j",), open=open_bytes), "built in"),
        (Format(name="tfrecord", suffixes=(".j",), open=open_bytes), "built in"),
        (Format(name="mine", suffixes=(".jsonl.gz",), open=open_bytes), "built in"),
        (Format(name="mine", suffixes=(".tfrecord",), open=open_bytes), "built in"),
        (Format(name="Mine", suffixes=(".j",), open=open_bytes), "lower-case"),
        (Format(name="mine", suffixes=".j", open=open_bytes), "a tuple"),  # type: ignore[arg-type]  # the point of it
        (Format(name="mine", suffixes=("j",), open=open_bytes), "with its dot"),
        (Format(name="mine", suffixes=(".j",)), "neither be read nor written"),
    ],
)
async def test_invalid_format_is_named_without_blocking_others(given: object, says: str) -> None:
    plugins = found(plugin("formats", "odd", given), plugin("formats", "good", GOOD))
    formats = Formats(plugins)
    await formats.look_for("bytes")
    assert formats.get("bytes") is GOOD
    assert says in str(plugins.broken["odd"])
    with pytest.raises(ValueError, match=r"'nothing' is not a format; .*The plugin 'odd' cannot be used"):
        formats.get("nothing")


async def test_first_plugin_wins_format_name_conflict() -> None:
    other = Format(name="bytes", suffixes=(".other",), open=open_bytes)
    plugins = found(plugin("formats", "b", other), plugin("formats", "a", GOOD))
    formats = Formats(plugins)
    await formats.look_for("bytes")
    assert formats.get("bytes") is GOOD
    assert formats.of("x.other") == "tfrecord"
    assert "another plugin already has" in str(plugins.broken["b"])


async def test_one_way_format_is_rejected_in_other_direction(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = Format(name="sink", suffixes=(".sink",), encoder=lambda name, schema: Joined())
    well = Format(name="well", suffixes=(".well",), open=open_bytes)
    monkeypatch.setattr("asyncrec.tools._convert.FORMATS", Formats(found(plugin("formats", "both", sink, well))))
    await storage.put("x.sink", b"")
    await asyncrec.write_records("x.tfrecord", [b"x"], storage=storage)
    with pytest.raises(ValueError, match="can be written but not read"):
        await tools.convert("x.sink", "set", storage=storage, target_storage=storage)
    with pytest.raises(ValueError, match="can be read but not written"):
        await tools.convert("x.tfrecord", "x.well", storage=storage, target_storage=storage)


@pytest.mark.parametrize("value", ["[]", "{}", '{"a":[0,0,0,0]}', "0"])
def test_line_values_are_counted_before_parsing(value: str) -> None:
    """``[],`` takes three bytes of text, but the list takes 64 once parsed."""
    many = f'{{"a":[{",".join([value] * 200_000)}]}}\n'.encode()
    parser = _Parser("x", max_record_bytes=1 << 20)
    tracemalloc.start()
    try:
        found = parser.feed(b'{"a":1}\n' + many + b'{"a":2}\n')
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found.records) == 2
    assert [bad.where for bad in found.bad] == ["line 2"]
    assert "$base64" in found.bad[0].reason
    assert peak < 4 * len(many)


def test_line_with_most_allowed_values_is_read() -> None:
    numbers = ",".join(["0.5"] * 16_000)
    assert len(_Parser("x", max_record_bytes=1 << 20).feed(f'{{"a":[{numbers}]}}\n'.encode()).records) == 1


@pytest.mark.parametrize("names", [["$record"], ["$context", "$lists"], ["$lists", "a"], ["$record", "a"]])
async def test_reserved_names_become_columns(storage: Storage, names: list[str]) -> None:
    await asyncrec.write_records("x.tfrecord", [asyncrec.encode_example(dict.fromkeys(names, 7))], storage=storage)
    await tools.convert("x.tfrecord", "x.csv", storage=storage, target_storage=storage)
    rows = (await storage.get("x.csv")).decode().splitlines()
    assert rows == [",".join(names), ",".join("7" for _ in names)]
