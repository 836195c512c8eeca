"""`convert` into a data set that already contains some of the files, known by their name and version."""

from __future__ import annotations

from typing import Any

import pytest
from tool_data import data_names, names

import asyncrec
from asyncrec import tools
from asyncrec.errors import DatasetError, ObjectChangedError, ObjectExistsError, RecordKeyError
from asyncrec.storage._base import Storage
from asyncrec.tools import _convert

pytestmark = pytest.mark.anyio


async def decoded(storage: Storage, path: str) -> list[dict[str, Any]]:
    async with tools.open_records(path, storage=storage) as stream:
        return [asyncrec.decode_example(found.data) async for records in stream for found in records]


async def convert(storage: Storage, source: str, target: str) -> tools.ConvertReport:
    return await tools.convert(source, target, storage=storage, target_storage=storage)


@pytest.mark.parametrize("now", [b'{"a": 1}\n' * 4, b'{"a": 2}\n' * 3])
async def test_changed_file_is_rejected_before_any_write(storage: Storage, now: bytes) -> None:
    """This holds whether or not its size differs, and nothing is written from the files before it either."""
    await storage.put("in/b.jsonl", b'{"a": 1}\n' * 3)
    await convert(storage, "in", "set")
    before = await names(storage)
    await storage.put("in/b.jsonl", now)
    await storage.put("in/a.jsonl", b'{"a": 0}\n')
    with pytest.raises(DatasetError, match=r"b\.jsonl has changed .* set: it had 27 bytes.* 3 records .*new data set"):
        await convert(storage, "in", "set")
    assert await names(storage) == sorted([*before, "in/a.jsonl"])
    assert (await convert(storage, "in/a.jsonl", "set")).records == 1
    assert (await convert(storage, "in", "other")).records == 1 + now.count(b"a")


async def test_changed_file_with_only_bad_lines_is_detected(storage: Storage) -> None:
    await storage.put("a.jsonl", b"no\n" * 3)
    assert (await convert(storage, "a.jsonl", "set")).records == 0
    await storage.put("a.jsonl", b"{}\n" * 3)
    with pytest.raises(DatasetError, match="had 9 bytes, and now has the same size"):
        await convert(storage, "a.jsonl", "set")


async def test_unknown_key_error_explains_keys_made_by_convert(storage: Storage) -> None:
    await storage.put("a.jsonl", b'{"id": "r1"}\n')
    await convert(storage, "a.jsonl", "set")
    with pytest.raises(RecordKeyError) as caught:
        await tools.get_record("set", key="r1", storage=storage)
    assert "<file>#<number>" in str(caught.value.__notes__)
    assert (await tools.get_record("set", key="a.jsonl#0", storage=storage)).number == 0


async def test_error_counts_other_changed_files(storage: Storage) -> None:
    for content in (b'{"a": 1}\n', b'{"a": 10}\n'):
        for name in ("a", "b", "c"):
            await storage.put(f"in/{name}.jsonl", content)
        if content == b'{"a": 1}\n':
            await convert(storage, "in", "set")
    with pytest.raises(DatasetError, match=r"a\.jsonl has changed.*2 other files"):
        await convert(storage, "in", "set")


async def test_earlier_bad_lines_are_reported_again(storage: Storage) -> None:
    await storage.put("in/a.jsonl", b'{"a": 1}\nno\n[1]\n')
    await storage.put("in/b.jsonl", b'{"a": 1}\n')
    assert (await convert(storage, "in", "set")).bad_before == {}
    report = await convert(storage, "in", "set")
    assert (report.done_before, report.bad_before, report.bad_count) == (["a.jsonl", "b.jsonl"], {"a.jsonl": 2}, 0)
    assert report.to_json()["bad_before"] == {"a.jsonl": 2}


async def test_file_changing_during_lookup_is_detected(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    await storage.put("a.jsonl", b'{"a": 1}\n')
    settle = _convert.settle_dead

    async def settle_and_change(folder: Storage, name: str, writer: str) -> bool:
        await storage.put("a.jsonl", b'{"a": 2}\n')
        return await settle(folder, name, writer)

    monkeypatch.setattr(_convert, "settle_dead", settle_and_change)
    with pytest.raises(ObjectChangedError):
        await convert(storage, "a.jsonl", "set")
    assert await data_names(storage) == ["a.jsonl"]


async def test_concurrent_conversions_write_one_version_of_file(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await storage.put("a.jsonl", b'{"n": 1}\n')
    settle = _convert.settle_dead

    async def settle_late(folder: Storage, name: str, writer: str) -> bool:
        monkeypatch.setattr(_convert, "settle_dead", settle)
        await storage.put("a.jsonl", b'{"n": 2}\n')
        await convert(storage, "a.jsonl", "set")
        return await settle(folder, name, writer)

    monkeypatch.setattr(_convert, "settle_dead", settle_late)
    with pytest.raises(DatasetError, match="has changed"):
        await convert(storage, "a.jsonl", "set")
    assert [each["n"] for each in await decoded(storage, "set")] == [2]


@pytest.mark.parametrize("target", ["out.jsonl", "out.csv", "out.tfrecord"])
async def test_existing_file_is_not_overwritten(storage: Storage, target: str) -> None:
    await storage.put("a.jsonl", b'{"a": 1}\n')
    await convert(storage, "a.jsonl", "set")
    source = "a.jsonl" if target == "out.tfrecord" else "set"
    await convert(storage, source, target)
    content = await storage.get(target)
    with pytest.raises(ObjectExistsError, match=f"{target} exists already; choose another name"):
        await convert(storage, source, target)
    assert await storage.get(target) == content
