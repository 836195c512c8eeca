"""Records of any path, in order, chosen by what they hold; and one by its number or key."""

from __future__ import annotations

import threading
import tracemalloc

import pytest
from tool_data import change, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import CorruptRecordError, DatasetError
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio


async def all_of(storage: Storage, path: str, *conditions: str) -> list[tools.FoundRecord]:
    where = [tools.Where.parse(text) for text in conditions]
    async with tools.open_records(path, where=where, storage=storage) as stream:
        return [found async for records in stream for found in records]


async def test_they_come_in_order_with_their_places(storage: Storage) -> None:
    await write_pages(storage, compression="GZIP")
    found = await all_of(storage, "pages")
    assert [each.number for each in found] == [*range(10)] * 3
    assert [each.path for each in found[::10]] == [
        shard.path for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards
    ]


async def test_records_are_looked_through_in_a_thread(storage: Storage) -> None:
    threads = set()

    class Watched(tools.Where):
        def holds(self, record: bytes) -> bool:
            threads.add(threading.get_ident())
            return super().holds(record)

    await write_pages(storage)
    async with tools.open_records("pages", where=[Watched("label", "1")], storage=storage) as stream:
        assert len([found async for records in stream for found in records]) == 10
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        (["label=1"], 10),
        (["label!=1"], 20),
        (["text=text 7"], 1),
        (["emb=3"], 1),
        (["emb=3.0", "label=0"], 1),
        (["emb=3", "label=1"], 0),
        (["label=x"], 0),
        (["nobody=1"], 0),
        (["nobody!=1"], 30),
    ],
)
async def test_conditions_choose(storage: Storage, conditions: list[str], count: int) -> None:
    await write_pages(storage)
    assert len(await all_of(storage, "pages", *conditions)) == count


@pytest.mark.parametrize("text", ["label", "=3", ""])
async def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="FEATURE=VALUE"):
        tools.Where.parse(text)


async def test_one_record_by_number_or_key(storage: Storage) -> None:
    await write_pages(storage)
    await asyncrec.write_records("x.tfrecord", [b"%d" % n for n in range(5)], storage=storage)
    found = await tools.get_record("pages", record=13, storage=storage)
    assert (found.number, b"text 13" in found.data) == (3, True)
    assert (await tools.get_record("pages", record=-1, storage=storage)).number == 9
    assert b"text 4" in (await tools.get_record("pages", key="key 4", storage=storage)).data
    assert (await tools.get_record("x.tfrecord", record=3, storage=storage)).data == b"3"
    assert (await tools.get_record("x.tfrecord", record=-5, storage=storage)).data == b"0"
    for record in (5, -6):
        with pytest.raises(IndexError, match="5 records"):
            await tools.get_record("x.tfrecord", record=record, storage=storage)
    with pytest.raises(KeyError):
        await tools.get_record("pages", key="nobody", storage=storage)
    with pytest.raises(DatasetError, match="only a data set has keys"):
        await tools.get_record("x.tfrecord", key="x", storage=storage)


async def test_one_from_the_end_is_read_in_little_memory(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [bytes([n % 256]) * 10_000 for n in range(2500)], storage=storage)
    tracemalloc.start()
    try:
        found = await tools.get_record("x.tfrecord", record=-2400, storage=storage)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.data == bytes([100]) * 10_000
    assert peak < 8 << 20


async def test_what_is_before_damage_comes_first(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [b"12345678"] * 5, storage=storage)
    await change(storage, "x.tfrecord", 3 * 24 + 13)
    seen = 0
    with pytest.raises(CorruptRecordError, match="record 3"):
        async with tools.open_records("x.tfrecord", storage=storage) as stream:
            async for records in stream:
                seen += len(records)
    assert seen == 3


async def test_leaving_early_is_clean(storage: Storage) -> None:
    await write_pages(storage)
    async with tools.open_records("pages", storage=storage) as stream:
        async for _ in stream:
            break
