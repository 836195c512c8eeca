"""`convert` turns other formats into records and back, resumes by source file, and skips and reports bad input."""

from __future__ import annotations

import gzip
import itertools
import json
import threading
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from tool_data import change, data_names, killed, names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec._shards.writing.keys import key_digests
from asyncrec.errors import ConflictError, FormatError, ObjectExistsError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage._base import Storage
from asyncrec.testing import Fault, FlakyStorage
from asyncrec.tools import _convert

pytestmark = pytest.mark.anyio


async def decoded(storage: Storage, path: str) -> list[dict[str, Any]]:
    async with tools.open_records(path, storage=storage) as stream:
        return [asyncrec.decode_example(found.data) async for records in stream for found in records]


async def convert(storage: Storage, source: str, target: str, **options: Any) -> tools.ConvertReport:
    return await tools.convert(source, target, storage=storage, target_storage=storage, **options)


@pytest.mark.parametrize("settled", [True, False])
async def test_file_converted_by_concurrent_process_is_skipped(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, settled: bool
) -> None:
    """The other process may have committed and exited, or may not have cleaned up yet."""
    await storage.put("a.jsonl", b'{"n": 1}\n{"n": 2}\n')
    settle = _convert.settle_dead

    async def settle_late(folder: Storage, name: str, writer: str) -> bool:
        monkeypatch.setattr(_convert, "settle_dead", settle)
        await convert(storage, "a.jsonl", "set")
        return settled

    monkeypatch.setattr(_convert, "settle_dead", settle_late)
    assert (await convert(storage, "a.jsonl", "set")).done_before == ["a.jsonl"]
    assert [each["n"] for each in await decoded(storage, "set")] == [1, 2]


async def test_keys_of_many_short_lines_are_hashed_in_thread(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set()

    def digests(keys: Iterable[str]) -> list[bytes]:
        threads.add(threading.get_ident())
        return key_digests(keys)

    monkeypatch.setattr(_convert, "key_digests", digests)
    await storage.put("x.jsonl", b"{}\n" * 1000)
    assert (await convert(storage, "x.jsonl", "set")).records == 1000
    assert threads
    assert threading.get_ident() not in threads
    async with asyncrec.open_dataset("set", storage=storage) as dataset:
        assert await dataset.find("x.jsonl#999") == 999


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
async def test_json_lines_round_trip(storage: Storage, name: str) -> None:
    await write_pages(storage)
    assert (await convert(storage, "pages", name)).records == 30
    content = await storage.get(name)
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    assert json.loads(text.splitlines()[4]) == {"emb": [4.0] * 4, "label": 1, "text": "text 4"}
    assert (await convert(storage, name, "back")).records == 30
    before, after = await decoded(storage, "pages"), await decoded(storage, "back")
    assert [str(each) for each in before] == [str(each) for each in after]
    found = await tools.get_record("back", key=f"{name}#7", storage=storage)
    assert b"text 7" in found.data


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
async def test_overlong_line_is_reported_without_affecting_other_files(storage: Storage, name: str) -> None:
    content = b'{"a": 1}\n' + b"x" * (8 << 20)
    await storage.put(f"in/{name}", gzip.compress(content) if name.endswith("gz") else content)
    await storage.put("in/y.jsonl", b'{"a": 2}\n')
    report = await convert(storage, "in", "set", max_record_bytes=3 << 20)
    assert (report.records, [bad.where for bad in report.bad]) == (2, ["line 2"])


async def test_long_line_in_many_blocks_is_read(storage: Storage) -> None:
    await storage.put("x.jsonl", b'{"a": 1}\n{"a": "' + b"x" * (5 << 20) + b'"}\n{"a": 3}')
    assert (await convert(storage, "x.jsonl", "set")).records == 3
    assert [len(str(each["a"][0])) > 1000 for each in await decoded(storage, "set")] == [False, True, False]


async def test_bad_line_reason_is_shortened(storage: Storage) -> None:
    await storage.put("x.jsonl", b'{"' + b"n" * 100_000 + b'": {}}\n')
    (bad,) = (await convert(storage, "x.jsonl", "set")).bad
    assert len(bad.reason) < 1000


async def test_json_lines_error_names_invalid_line(storage: Storage) -> None:
    await storage.put("x.jsonl", b'{"a": 1}\n\nno\n[1]\n{"a": 2}')
    report = await convert(storage, "x.jsonl", "set")
    assert report.records == 2
    assert [bad.where for bad in report.bad] == ["line 3", "line 4"]


async def test_json_number_beyond_float32_does_not_become_infinity(storage: Storage) -> None:
    lines = [b'{"a": 1e400}', b'{"a": [-1e400, 1]}', b'{"a": 1e39}', b'{"a": [Infinity, -Infinity]}', b'{"a": NaN}']
    await storage.put("x.jsonl", b"\n".join(lines))
    report = await convert(storage, "x.jsonl", "set")
    assert [bad.where for bad in report.bad] == ["line 1", "line 2", "line 3"]
    values = [each["a"].tolist() for each in await decoded(storage, "set")]
    assert str(values) == "[[inf, -inf], [nan]]"


async def test_json_lines_end_at_damaged_compression(storage: Storage) -> None:
    content = gzip.compress(b'{"a": 1}\n' * 100_000)
    await storage.put("x.jsonl.gz", content[: len(content) // 2])
    report = await convert(storage, "x.jsonl.gz", "set")
    assert 0 < report.records < 100_000
    assert report.bad_count == 1
    assert "compressed" in report.bad[0].reason


async def test_converted_files_are_skipped(storage: Storage) -> None:
    await storage.put("in/a.jsonl", b'{"a": 1}\n' * 3)
    assert (await convert(storage, "in", "set")).files == ["a.jsonl"]
    await storage.put("in/b.jsonl", b'{"a": 2}\n' * 4)
    report = await convert(storage, "in", "set")
    assert (report.files, report.done_before, report.records) == (["b.jsonl"], ["a.jsonl"], 4)
    assert (await asyncrec.read_manifest("set", storage=storage)).records == 7


@pytest.mark.slow(but=["before"])
@pytest.mark.parametrize("recovered", ["never", "before", "after"])
async def test_interrupted_file_is_converted_again_from_start(tmp_path: Path, recovered: str) -> None:
    """Some of its shards were published before the process was killed; none is in the data set or left over."""
    async with asyncrec.open_storage(str(tmp_path)) as storage:
        await storage.put("in/a.jsonl", b"".join(b'{"n": %d}\n' % number for number in range(100)))
        await storage.put("in/b.jsonl", b"".join(b'{"n": %d}\n' % number for number in range(100, 300)))
        await killed(tmp_path, "tools.convert('in', 'out/set', max_shard_bytes=1000, jobs=1)", shards=9)
        assert (await asyncrec.read_manifest("out/set", storage=storage)).records == 100
        assert len([key for key in await data_names(storage, "out/") if key.startswith("out/set-")]) == 9
        if recovered == "before":
            found = await asyncrec.recover(tmp_path / "out/set")
            assert (len(found.abandoned), found.records) == (1, 0)
        report = await convert(storage, "in", "out/set", max_shard_bytes=1000)
        assert (report.files, report.done_before, report.records) == (["b.jsonl"], ["a.jsonl"], 200)
        if recovered == "after":
            await asyncrec.recover(tmp_path / "out/set")
        assert sorted(int(each["n"][0]) for each in await decoded(storage, "out/set")) == list(range(300))
        verified = await tools.verify("out/set", storage=storage)
        assert verified.ok
        assert verified.orphans == []
        assert not list(tmp_path.rglob("*.partial"))
        assert (await convert(storage, "in", "out/set")).done_before == ["a.jsonl", "b.jsonl"]


@pytest.mark.slow
@pytest.mark.usefixtures("no_waiting")
async def test_conversion_of_dead_store_reruns_without_duplicates(
    tmp_path: Path,
) -> None:
    """The store may fail for good during any operation of the conversion."""
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as storage:
        for name in ("a", "b"):
            await storage.put(f"in/{name}.jsonl", b"".join(b'{"%s": %d}\n' % (name.encode(), n) for n in range(20)))
        calm = FlakyStorage(storage)
        await tools.convert("in", "calm/set", storage=storage, target_storage=calm)
        for k, when in itertools.product(range(len(calm.operations)), ("before", "after")):
            target, about = f"{when}{k}/set", f"{when} {calm.operations[k]} (number {k})"
            down = FlakyStorage(storage, {k: Fault("error", when, for_good=True)})  # type: ignore[arg-type]  # literals
            with suppress(TransientStorageError):  # the last requests only remove the mark
                await tools.convert("in", target, storage=storage, target_storage=down)
            await convert(storage, "in", target)
            await asyncrec.recover(target, storage=storage)
            found = await decoded(storage, target)
            values = sorted((name, int(value[0])) for each in found for name, value in each.items())
            assert values == [(name, n) for name in "ab" for n in range(20)], about
            report = await tools.verify(target, storage=storage)
            assert report.ok, about
            assert report.orphans == [], about
            assert [key for key in await names(storage, f"{when}{k}/") if key.endswith("-000000.jsonl")] == [], about


async def test_concurrent_conversions_write_each_file_once(storage: Storage) -> None:
    """A process gets an error for a file that another is converting; no file is lost, and a rerun continues."""
    for name in ("a", "b", "c"):
        await storage.put(f"in/{name}.jsonl", b'{"x": 1}\n' * 5)
    told: list[BaseException] = []

    class Meanwhile(FlakyStorage):
        async def perform(self, operation, key, call, *, short=None):  # type: ignore[no-untyped-def]  # as inherited
            result = await call()
            if operation == "publish" and key.endswith(".tfrecord") and not told:
                with pytest.raises((ConflictError, ObjectExistsError)) as caught:
                    await convert(storage, "in", "set")
                told.append(caught.value)
            return result

    report = await tools.convert("in", "set", jobs=1, storage=storage, target_storage=Meanwhile(storage))
    assert len(told) == 1
    assert report.files == ["a.jsonl", "b.jsonl", "c.jsonl"]
    assert (await asyncrec.read_manifest("set", storage=storage)).records == 15
    assert (await convert(storage, "in", "set")).done_before == ["a.jsonl", "b.jsonl", "c.jsonl"]
    # Started at the same moment, they do not see each other: each file is converted by one of them; the others may
    # raise.
    reports: list[tools.ConvertReport] = []

    async def one() -> None:
        with suppress(ConflictError, ObjectExistsError):
            reports.append(await convert(storage, "in", "other"))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(one)
    reports.append(await convert(storage, "in", "other"))
    assert (await asyncrec.read_manifest("other", storage=storage)).records == 15
    assert (await tools.verify("other", storage=storage)).orphans == []


async def test_single_file_may_be_target(storage: Storage) -> None:
    await storage.put("a.jsonl", b'{"a": 1}\n{"a": 2}\n')
    await convert(storage, "a.jsonl", "out.tfrecord", compression="GZIP")
    assert [each["a"] for each in await decoded(storage, "out.tfrecord")] == [1, 2]


async def test_damaged_records_are_not_exported(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [b"12345678"] * 3, storage=storage)
    await change(storage, "x.tfrecord", 24 + 13)
    with pytest.raises(FormatError):
        await convert(storage, "x.tfrecord", "x.jsonl")
    assert "x.jsonl" not in await names(storage)


@pytest.mark.parametrize(
    ("source", "target", "error"),
    [
        ("x.jsonl", "x.parquet", ValueError),
        ("x.tfrecord", "set", ValueError),
        ("x.jsonl", "x.warc", ValueError),
        ("in", "set", ValueError),
        ("none.jsonl", "set", ObjectNotFoundError),
        ("none", "set", ObjectNotFoundError),
    ],
)
async def test_invalid_conversion_is_rejected(storage: Storage, source: str, target: str, error: type) -> None:
    for name in ("x.jsonl", "x.tfrecord", "in/a.jsonl", "in/b.warc"):
        await storage.put(name, b"")
    with pytest.raises(error):
        await convert(storage, source, target)


async def test_format_option_replaces_missing_suffix(storage: Storage) -> None:
    await storage.put("lines.txt", b'{"a": 1}\n')
    assert (await convert(storage, "lines.txt", "set", source_format="jsonl")).records == 1
    with pytest.raises(ValueError, match="xml"):
        await convert(storage, "lines.txt", "set", source_format="xml")
