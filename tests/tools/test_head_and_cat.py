"""`head` and `cat` return records in order, filtered by content; `get_record` returns one by number or key."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

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


async def test_records_are_returned_in_order_with_positions(storage: Storage) -> None:
    await write_pages(storage, compression="GZIP")
    found = await all_of(storage, "pages")
    assert [each.number for each in found] == [*range(30)]
    assert [each.path for each in found[::10]] == [
        shard.path for shard in (await asyncrec.read_manifest("pages", storage=storage)).shards
    ]


async def test_records_are_filtered_in_thread(storage: Storage) -> None:
    threads = set()

    class Watched(tools.Where):
        def holds_for(self, features: Any) -> bool:
            threads.add(threading.get_ident())
            return super().holds_for(features)

    await write_pages(storage)
    async with tools.open_records("pages", where=[Watched("label", "1")], storage=storage) as stream:
        assert len([found async for records in stream for found in records]) == 10
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize(
    ("conditions", "count"),
    [
        (["label=1"], 10), (["label!=1"], 20), (["text=text 7"], 1), (["emb=3"], 1), (["emb=3.0", "label=0"], 1),
        (["emb=3", "label=1"], 0), (["label<2"], 20), (["label <= 0"], 10), (["label>0.5", "emb>=10"], 14),
        (["label in 0,2"], 20), (["emb in 3, 4.0"], 2), (["text contains 7"], 3), (["text in text 7,text 8"], 2),
        (["text>text 8"], 1), (["label<99999999999999999999"], 30), (["emb<1e39"], 30),
    ],
)  # fmt: skip
@pytest.mark.parametrize("schema", [True, False])
async def test_conditions_select_matching_records(
    storage: Storage, conditions: list[str], count: int, schema: bool
) -> None:
    await write_pages(storage, **({} if schema else {"schema": None}))
    assert len(await all_of(storage, "pages", *conditions)) == count


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("label=x", "the feature 'label' holds whole numbers, but 'x' cannot be parsed as one"),
        ("label=1.5", "the feature 'label' holds whole numbers, but '1.5' cannot be parsed as one"),
        ("label in 1,x", "the feature 'label' holds whole numbers, but 'x' cannot be parsed as one"),
        ("emb>x", "the feature 'emb' holds numbers, but 'x' cannot be parsed as one"),
        ("label contains 1", "'contains' works only on text"),
        ("nobody=1", "no feature 'nobody'; the features are emb, label, text"),
        ("nobody!=1", "no feature 'nobody'; the features are emb, label, text"),
    ],
)
@pytest.mark.parametrize("schema", [True, False])
async def test_impossible_condition_is_rejected(storage: Storage, condition: str, said: str, schema: bool) -> None:
    await write_pages(storage, **({} if schema else {"schema": None}))
    with pytest.raises(ValueError, match=said):
        await all_of(storage, "pages", condition)


async def test_search_stops_early_on_non_example_records(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [b"%d" % n for n in range(5)], storage=storage)
    with pytest.raises(ValueError, match=r"x\.tfrecord: the first 5 records are not Examples"):
        await all_of(storage, "x.tfrecord", "label=1")


async def test_record_lacking_feature_is_accepted_among_others(storage: Storage) -> None:
    records = [asyncrec.encode_example({"a": 1}), asyncrec.encode_example({"b": 2})]
    await asyncrec.write_records("x.tfrecord", records, storage=storage)
    assert [each.number for each in await all_of(storage, "x.tfrecord", "b=2")] == [1]
    assert [each.number for each in await all_of(storage, "x.tfrecord", "b!=2")] == [0]


async def test_record_without_value_matches_only_inequality() -> None:
    for record in (asyncrec.encode_example({"a": 1}), asyncrec.encode_example({"b": 1}), b"no example"):
        assert tools.Where("a", "1").holds(record) == (record == asyncrec.encode_example({"a": 1}))
        assert tools.Where("a", "1", "!=").holds(record) == (record != asyncrec.encode_example({"a": 1}))


@pytest.mark.parametrize("text", ["label", "=3", ""])
async def test_malformed_condition_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="FEATURE=VALUE"):
        tools.Where.parse(text)


async def test_get_record_returns_record_by_number_or_key(storage: Storage) -> None:
    await write_pages(storage)
    await asyncrec.write_records("x.tfrecord", [b"%d" % n for n in range(5)], storage=storage)
    found = await tools.get_record("pages", record=13, storage=storage)
    assert (found.number, b"text 13" in found.data) == (13, True)
    assert (await tools.get_record("pages", record=-1, storage=storage)).number == 29
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


async def test_record_counted_from_end_is_read_in_bounded_memory(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [bytes([n % 256]) * 10_000 for n in range(2500)], storage=storage)
    tracemalloc.start()
    try:
        found = await tools.get_record("x.tfrecord", record=-2400, storage=storage)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.data == bytes([100]) * 10_000
    assert peak < 8 << 20


async def test_records_before_damage_are_returned_first(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [b"12345678"] * 5, storage=storage)
    await change(storage, "x.tfrecord", 3 * 24 + 13)
    seen = 0
    with pytest.raises(CorruptRecordError, match="record 3"):
        async with tools.open_records("x.tfrecord", storage=storage) as stream:
            async for records in stream:
                seen += len(records)
    assert seen == 3


async def test_record_stream_can_be_closed_early(storage: Storage) -> None:
    await write_pages(storage)
    async with tools.open_records("pages", storage=storage) as stream:
        async for _ in stream:
            break
