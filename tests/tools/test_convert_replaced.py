"""`convert` converts a file again if, and only if, the data set has been replaced since its first conversion."""

from __future__ import annotations

from typing import Any

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import DatasetError
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio

FILE = b'{"n": 1}\n{"n": 2}\n'


async def numbers(storage: Storage, path: str) -> list[int]:
    async with tools.open_records(path, storage=storage) as stream:
        return [asyncrec.decode_example(found.data)["n"][0] async for records in stream for found in records]


async def convert(storage: Storage, source: str = "in", target: str = "set") -> tools.ConvertReport:
    return await tools.convert(source, target, storage=storage, target_storage=storage)


async def replace(storage: Storage, path: str = "set", *, records: tuple[int, ...] = (9,), **options: Any) -> None:
    async with asyncrec.open_sharded_writer(
        path, storage=storage, mode="replace", **{"max_shard_records": 10, **options}
    ) as writer:
        for number in records:
            await writer.write(asyncrec.encode_example({"n": number}))


@pytest.mark.parametrize("rewrite", ["", "compact", "delete", "compacted before and after"])
@pytest.mark.parametrize("records", [(9,), ()])
async def test_files_of_replaced_data_set_are_converted_again(
    storage: Storage, rewrite: str, records: tuple[int, ...]
) -> None:
    """This holds even if `compact` or `delete` had rewritten their shards under other names before that."""
    await storage.put("in/a.jsonl", FILE)
    await storage.put("in/b.jsonl", b'{"n": 3}\n')
    await convert(storage)
    if rewrite.startswith("compact"):
        await tools.compact("set", storage=storage)
    elif rewrite == "delete":
        await tools.delete("set", keys=["a.jsonl#0"], storage=storage)
    await replace(storage, records=records)
    if rewrite.endswith("after"):
        await tools.compact("set", storage=storage)
    report = await convert(storage)
    assert (report.files, report.done_before, report.records) == (["a.jsonl", "b.jsonl"], [], 3)
    assert sorted(await numbers(storage, "set")) == [1, 2, 3, *records]
    again = await convert(storage)
    assert (again.files, again.done_before) == ([], ["a.jsonl", "b.jsonl"])
    await tools.compact("set", storage=storage)
    assert (await convert(storage)).records == 0
    await replace(storage)
    assert (await convert(storage)).records == 3  # a third generation


async def test_files_are_done_after_compacting_and_deleting(storage: Storage) -> None:
    """Records that were deleted are not added again, even if no record is left."""
    await storage.put("in/a.jsonl", FILE)
    await convert(storage)
    await tools.compact("set", compression="GZIP", storage=storage)
    assert (await convert(storage)).done_before == ["a.jsonl"]
    await tools.delete("set", keys=["a.jsonl#0"], storage=storage)
    assert (await convert(storage)).done_before == ["a.jsonl"]
    await tools.delete("set", keys=["a.jsonl#1"], storage=storage)
    assert (await convert(storage)).done_before == ["a.jsonl"]
    assert await numbers(storage, "set") == []


async def test_file_converted_while_another_writer_replaces_is_done(storage: Storage) -> None:
    """The replacing writer removes only what was there when it began."""
    await storage.put("in/a.jsonl", FILE)
    await replace(storage, records=(7,))
    async with asyncrec.open_sharded_writer("set", storage=storage, mode="replace", max_shard_records=10) as writer:
        await convert(storage)
        await writer.write(asyncrec.encode_example({"n": 8}))
    assert sorted(await numbers(storage, "set")) == [1, 2, 8]
    assert (await convert(storage)).done_before == ["a.jsonl"]


async def test_changed_file_is_converted_after_replacement(storage: Storage) -> None:
    await storage.put("in/a.jsonl", FILE)
    await convert(storage)
    await replace(storage)
    await storage.put("in/a.jsonl", FILE + b'{"n": 3}\n')
    assert (await convert(storage)).records == 3
    await storage.put("in/a.jsonl", FILE)
    with pytest.raises(DatasetError, match=r"a\.jsonl has changed"):
        await convert(storage)


@pytest.mark.parametrize("tool", ["copy", "reshard", "merge"])
async def test_derived_data_set_lacks_files_that_were_replaced(storage: Storage, tool: str) -> None:
    await storage.put("in/a.jsonl", FILE)
    await storage.put("more/b.jsonl", b'{"n": 3}\n')
    await convert(storage)
    await replace(storage)
    await convert(storage, "more")
    options: dict[str, Any] = {"storage": storage, "target_storage": storage}
    if tool == "merge":
        await tools.merge(["set"], "other", **options)
    else:
        await getattr(tools, tool)("set", "other", **options)
    assert (await convert(storage, "more", "other")).done_before == ["b.jsonl"]
    assert (await convert(storage, "in", "other")).records == 2
    await replace(storage, "other")
    assert (await convert(storage, "more", "other")).records == 1
