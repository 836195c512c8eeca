"""`index` writes indexes where asyncrec, tfrecord and DALI look for them, and keeps the ones that are valid."""

from __future__ import annotations

import pytest
from tool_data import change, names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectChangedError
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_rebuilt_index_equals_index_of_writer(storage: Storage, compression: str) -> None:
    await write_pages(storage, compression=compression)
    before = {key: await storage.get(key) for key in await names(storage, "_index/")}
    assert len(before) == 3
    for key in before:
        await storage.delete(key)
    report = await tools.index("pages", storage=storage)
    assert len(report.made) == 3
    assert {key: await storage.get(key) for key in await names(storage, "_index/")} == before
    assert (await tools.verify("pages", storage=storage)).ok


async def test_valid_index_is_kept_and_invalid_index_rebuilt(storage: Storage) -> None:
    await write_pages(storage)
    key = (await names(storage, "_index/"))[1]
    await change(storage, key, 0, ord("7"))
    report = await tools.index("pages", storage=storage)
    assert (report.made, len(report.kept)) == ([key], 2)
    assert (await tools.verify("pages", storage=storage)).ok
    assert len((await tools.index("pages", force=True, storage=storage)).made) == 3


async def test_index_can_use_layouts_of_other_tools(storage: Storage) -> None:
    await asyncrec.write_records("d/a.tfrecord", [b"x" * n for n in range(4)], storage=storage)
    await asyncrec.write_records("d/z.tfrecord", [b"x"], compression="GZIP", storage=storage)
    report = await tools.index("d", layout="tfrecord", storage=storage)
    assert report.made == ["d/a.tfindex"]
    assert report.refused[0][0] == "d/z.tfrecord"
    assert await storage.get("d/a.tfindex") == b"0 16\n16 17\n33 18\n51 19\n"
    assert (await tools.index("d/a.tfrecord", layout="dali", storage=storage)).made == ["d/a.tfrecord.idx"]
    assert (await tools.index("d/a.tfrecord", layout="dali", storage=storage)).kept == ["d/a.tfrecord.idx"]
    with pytest.raises(ValueError, match="asyncrec, tfrecord, dali"):
        await tools.index("d", layout="mine", storage=storage)


@pytest.mark.parametrize("rewritten", ["", "GZIP"])
async def test_rewritten_shard_is_reported_as_changed_not_damaged(storage: Storage, rewritten: str) -> None:
    await write_pages(storage, compression="GZIP" if not rewritten else "")
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[1].path
    await asyncrec.write_records(shard, [b"x"] * 3, compression=rewritten, storage=storage)
    with pytest.raises(ObjectChangedError, match="the data set was rewritten"):
        await tools.index("pages", force=True, storage=storage)
