"""Sorting joined shards by a feature keeps the first record of each key first, and followers see no record twice."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asyncrec
from asyncrec import tools
from asyncrec.errors import ArgumentValueError, DatasetError, FormatError
from asyncrec.storage import MemoryStorage
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio

Later = Callable[[float], None]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Later:
    """Return a function that moves the clock of `compact` forward by some hours."""
    gone = 0.0

    def go(hours: float) -> None:
        nonlocal gone
        gone += 3600 * hours
        monkeypatch.setattr("asyncrec.tools._compact.time", SimpleNamespace(time=lambda: time.time() + gone))

    return go


def record(number: int, **features: Any) -> bytes:
    return asyncrec.encode_example({"n": number, **features})


NUMBER, TEXT = asyncrec.FixedLen((), "int64"), asyncrec.FixedLen((), "str")
SCHEMA = asyncrec.Schema({"n": NUMBER, "url": TEXT, "date": NUMBER})


async def write(storage: Storage, writer: str, records: list[tuple[str | None, bytes]], **options: Any) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, max_shard_records=2, on_duplicate="write", writer_id=writer, **options
    ) as opened:
        for key, data in records:
            await opened.write(data, key=key)


async def compact(storage: Storage, sort_by: str = "url", **options: Any) -> tools.CompactReport:
    return await tools.compact("pages", sort_by=sort_by, storage=storage, **{"drop_duplicates": True, **options})


async def numbers(storage: Storage) -> list[int]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return [int(asyncrec.decode_example(each)["n"][0]) async for each in dataset]


LONG = "http://a-name-of-more-than-thirty-two-characters.example/"


async def test_records_of_joined_shard_are_sorted(storage: Storage, later: Later) -> None:
    urls = ["c", "a", LONG + "2", None, "b", LONG + "1", "a"]
    records = [
        (f"key {at}" if at % 2 else None, record(at, **({} if url is None else {"url": url})))
        for at, url in enumerate(urls)
    ]
    await write(storage, "w", records)
    later(2)
    report = await compact(storage)
    assert (report.joined, report.into, report.commits, report.duplicates) == (4, 1, 1, 0)
    assert await numbers(storage) == [3, 1, 6, 4, 0, 5, 2]
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        for at in (1, 3, 5):
            assert await dataset.get_by_key(f"key {at}") == records[at][1]
    assert (await tools.verify("pages", storage=storage)).ok
    assert (await compact(storage)).commits == 0
    report = await compact(storage, sort_by="n")
    assert (report.joined, report.into) == (1, 1)
    assert await numbers(storage) == [0, 1, 2, 3, 4, 5, 6]


async def test_young_shards_are_not_sorted(storage: Storage, later: Later) -> None:
    await write(storage, "a", [(None, record(1, url="b")), (None, record(2, url="a"))])
    assert (await compact(storage)).commits == 0
    later(0.9)
    assert (await compact(storage)).commits == 0
    later(0.2)
    assert (await compact(storage)).commits == 1
    assert await numbers(storage) == [2, 1]


async def test_each_shard_is_sorted_separately(storage: Storage, later: Later) -> None:
    await write(storage, "w", [(None, record(at, url=f"{9 - at}")) for at in range(8)])
    later(2)
    size = (await asyncrec.read_manifest("pages", storage=storage)).shards[0].bytes
    report = await compact(storage, max_shard_bytes=2 * size)
    assert (report.joined, report.into) == (4, 2)
    assert await numbers(storage) == [3, 2, 1, 0, 7, 6, 5, 4]


async def test_deletion_keeps_shard_sorted(storage: Storage, later: Later) -> None:
    await write(storage, "w", [(f"{at}", record(at, url=f"{at * 3 % 8}")) for at in range(8)])
    later(2)
    await compact(storage)
    await tools.delete("pages", keys=["3"], storage=storage)
    assert await numbers(storage) == [0, 6, 1, 4, 7, 2, 5]
    assert (await compact(storage)).commits == 0


@pytest.mark.parametrize("newest", [None, "date"], ids=["first", "newest"])
async def test_kept_version_is_version_returned_by_readers(
    monkeypatch: pytest.MonkeyPatch, later: Later, newest: str | None
) -> None:
    """A damaged shard stops the compaction, so both versions of a key stay: readers still find the same one.

    The schema says that no record is a revisit, so not all records need to be read.
    """
    monkeypatch.setattr("asyncrec.tools._joining._PIECE_SHARDS", 2)
    storage = MemoryStorage()
    first, second = record(1, url="z", date=1), record(2, url="a", date=1)
    others = [(f"other {at}", record(10 + at, url="m", date=1)) for at in range(3)]
    if newest is None:
        await write(storage, "a", [("k", first)], schema=SCHEMA)
        await write(storage, "c", [("k", second), others[0]], schema=SCHEMA)
        await write(storage, "b", [others[1]], schema=SCHEMA)
    else:
        await write(storage, "a", [others[1]], schema=SCHEMA)
        await write(storage, "c", [("k", first), others[0]], schema=SCHEMA)
        await write(storage, "b", [("k", second)], schema=SCHEMA)
    path = (await asyncrec.read_manifest("pages", storage=storage)).shards[2].path
    content = bytearray(await storage.get(path))
    content[-6] ^= 1
    await storage.put(path, bytes(content))
    later(2)
    with pytest.raises(FormatError):
        await compact(storage, newest=newest)
    async with asyncrec.open_dataset("pages", storage=storage, newest=newest) as dataset:
        assert len(dataset.manifest.shards) == 2
        assert await dataset.get_by_key("k") == (first if newest is None else second)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from("vwxyz"), min_size=1, max_size=5)),
            st.tuples(st.just("sort"), st.sampled_from([["n"], ["m"]])),
            st.tuples(st.just("join"), st.just(["n"])),
        ),
        min_size=2,
        max_size=8,
    )
)
async def test_first_record_of_key_stays_first_after_sorting(
    anyio_backend: str, later: Later, steps: list[Any]
) -> None:
    """This holds whatever is sorted, joined and written later, even by writers whose names sort earlier."""
    storage = MemoryStorage()
    first: dict[str, bytes] = {}
    for number, (what, words) in enumerate(steps):
        if what in ("sort", "join"):
            later(2)
            if first and what == "sort":
                await compact(storage, sort_by=words[0], max_shard_bytes=300)
            elif first:
                await tools.compact("pages", storage=storage)
        else:
            records = [(word, record(10 * number + at, m=hash((number, at)) % 9 - 4)) for at, word in enumerate(words)]
            await write(storage, f"{what}{100 - number}", records)
            for key, data in records:
                first.setdefault(key, data)
    if first:
        async with asyncrec.open_dataset("pages", storage=storage) as dataset:
            assert {key: await dataset.get_by_key(key) for key in first} == first


@pytest.mark.virtual_clock
async def test_follower_receives_each_record_once(storage: Storage, later: Later) -> None:
    await write(storage, "a", [("1", record(1)), ("2", record(2)), ("3", record(3))])
    async with tools.open_tail("pages", records=1, follow=True, storage=storage) as tail:
        await anext(tail)
        later(2)
        await compact(storage, sort_by="n")
        await write(storage, "b", [("4", record(4))])
        await tools.compact("pages", storage=storage)  # this joins sorted shards with unsorted ones
        await write(storage, "c", [("5", record(5))])
        found: list[bytes] = []
        while record(5) not in found:
            found += [each.data for each in await anext(tail)]
        assert found == [record(4), record(5)]


@pytest.mark.virtual_clock
async def test_late_follower_gets_error(storage: Storage, later: Later) -> None:
    await write(storage, "a", [("1", record(1)), ("2", record(2)), ("3", record(3))])
    async with tools.open_tail("pages", records=1, follow=True, storage=storage) as tail:
        await anext(tail)
        await write(storage, "b", [("4", record(4))])
        later(2)
        await compact(storage, sort_by="n")
        with pytest.raises(DatasetError, match="open it again"):
            await anext(tail)


async def test_invalid_input_is_rejected_without_changes(storage: Storage, later: Later) -> None:
    await write(storage, "a", [("x", record(1, url=["a", "b"])), ("y", record(2, url="c"))])
    later(2)
    before = {info.key async for info in storage.list_objects()}
    for options, message in (
        ({"drop_duplicates": False}, "sort_by loses the order"),
        ({"sort_by": ""}, "sort_by is empty; to sort records"),
        ({"sort_by": "dote"}, "dote"),
        ({"sort_by": "url"}, "has 2 values in a record; to sort records"),
        ({"manifest_only": True}, "cannot be combined"),
    ):
        with pytest.raises(ArgumentValueError, match=message):
            await compact(storage, **options)
    assert {key for key in before if key.startswith("pages")} == {
        info.key async for info in storage.list_objects() if info.key.startswith("pages")
    }
    assert await numbers(storage) == [1, 2]
