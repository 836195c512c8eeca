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


@pytest.mark.parametrize("layout", ["tfrecord", "dali"])
async def test_shards_of_any_name_have_separate_indexes(storage: Storage, layout: str) -> None:
    """The number of a shard may follow the suffix, as in names of TFDS."""
    shards = [f"d/mnist.tfrecord-{n:05}-of-00003" for n in range(3)] + ["d/a.b.tfrecords", "d/events.tfevents.1.host"]
    for size, shard in enumerate(shards):
        await asyncrec.write_records(shard, [b"x" * size], storage=storage)
    report = await tools.index("d", layout=layout, storage=storage)
    indexes = [
        f"{shard}.idx" if layout == "dali" else f"{shard.removesuffix('.tfrecords')}.tfindex" for shard in shards
    ]
    assert report.made == sorted(indexes)
    for size, key in enumerate(indexes):
        assert await storage.get(key) == b"0 %d\n" % (16 + size)


@pytest.mark.parametrize("layout", ["tfrecord", "dali"])
async def test_indexes_of_other_tools_are_not_shards(storage: Storage, layout: str) -> None:
    await write_pages(storage, "d/pages", records=20)
    await asyncrec.write_records("d/more.tfrecord", [b"x"], storage=storage)
    await tools.index("d", layout=layout, storage=storage)
    for path in ("d", "d/*", "d/more*"):
        assert (await tools.count(path, storage=storage)).records == (1 if "more" in path else 21)
        assert (await tools.verify(path, storage=storage)).ok
    assert len(await asyncrec.list_shards("d/*", storage=storage)) == 3
    await storage.delete("d/more.tfrecord")
    for key in await names(storage, "d/_"):
        await storage.delete(key)
    assert len(await asyncrec.list_shards("d/pages", storage=storage)) == 2
    assert (await tools.count("d/pages", storage=storage)).records == 20


async def test_common_index_of_two_shards_is_refused(storage: Storage) -> None:
    for name in ("a.tfrecord", "b.tfrec", "b.tfrecord"):
        await asyncrec.write_records(f"d/{name}", [b"x"], storage=storage)
    with pytest.raises(ValueError, match=r"d/b\.tfrecord: its index for tfrecord would be b\.tfindex.*d/b\.tfrec "):
        await tools.index("d", layout="tfrecord", storage=storage)
    assert await names(storage) == ["d/a.tfrecord", "d/b.tfrec", "d/b.tfrecord"]


@pytest.mark.parametrize("rewritten", ["", "GZIP"])
async def test_rewritten_shard_is_reported_as_changed_not_damaged(storage: Storage, rewritten: str) -> None:
    await write_pages(storage, compression="GZIP" if not rewritten else "")
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[1].path
    await asyncrec.write_records(shard, [b"x"] * 3, compression=rewritten, storage=storage)
    with pytest.raises(ObjectChangedError, match="the data set was rewritten"):
        await tools.index("pages", force=True, storage=storage)
