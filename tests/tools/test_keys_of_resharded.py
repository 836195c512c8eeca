"""`reshard` keeps each record with its key, wherever shards begin and end, and never invents a key."""

from __future__ import annotations

from typing import Any

import pytest
from tool_data import data_names, example, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import DatasetError
from asyncrec.storage import Storage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]

COUNT = 23


async def write(storage: Storage, **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=10, **options) as writer:
        for number in range(COUNT):
            await writer.write(b"record %d" % number, key=f"key {number}")


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("limits", [{"max_shard_records": 7}, {"num_shards": 4}, {"max_shard_bytes": 150}], ids=str)
async def test_resharded_records_keep_keys(storage: Storage, limits: dict[str, Any], compression: str) -> None:
    await write(storage, compression=compression)
    await tools.reshard("pages", "new", storage=storage, target_storage=storage, **limits)
    assert (await tools.verify("new", storage=storage)).ok
    async with asyncrec.open_dataset("new", storage=storage) as dataset:
        found = {f"key {number}": await dataset.get_by_key(f"key {number}") for number in range(COUNT)}
    assert found == {f"key {number}": b"record %d" % number for number in range(COUNT)}


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_truncated_keys_file_is_rejected_rather_than_padded(storage: Storage, compression: str) -> None:
    await write(storage, compression=compression)
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[1]
    assert shard.keys is not None
    await storage.put(shard.keys.path, (await storage.get(shard.keys.path))[:-16])
    before = await data_names(storage)
    with pytest.raises(DatasetError, match="keys"):
        await tools.reshard("pages", "new", max_shard_records=7, storage=storage, target_storage=storage)
    assert await data_names(storage) == before


@pytest.mark.parametrize("tool", ["filter", "merge", "reshard", "dedupe", "sample"])
async def test_records_selected_by_pattern_keep_keys(storage: Storage, tool: str) -> None:
    await write_pages(storage, "pages")
    options: dict[str, Any] = {"storage": storage, "target_storage": storage}
    if tool == "merge":
        await tools.merge(["pages-*"], "some", **options)
    else:
        chosen = {
            "filter": {"where": [tools.Where.parse("label<9")]},
            "reshard": {"num_shards": 2},
            "dedupe": {},
            "sample": {"records": 30},
        }
        await getattr(tools, tool)("pages-*", "some", **chosen[tool], **options)
    async with asyncrec.open_dataset("some", storage=storage) as dataset:
        assert [await dataset.get_by_key(f"key {number}") for number in range(30)] == [example(n) for n in range(30)]


@pytest.mark.parametrize("lost", ["_manifest/pages/", "_keys/pages-"])
async def test_pattern_reads_remaining_shards(storage: Storage, lost: str, caplog: pytest.LogCaptureFixture) -> None:
    await write_pages(storage, "pages")
    for key in [info.key async for info in storage.list_objects(lost)]:
        if "manifest" in lost:
            await storage.put(key, b"damaged")
        else:
            await storage.delete(key)
    report = await tools.merge(["pages-*"], "saved", storage=storage, target_storage=storage)
    assert report.records == 30
    assert "the records are read without their keys" in caplog.text
