"""diff counts the records that two paths do not share, and identifies them by the numbers that `get_record` accepts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tool_data import example, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.storage import MemoryStorage
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio


async def keyed(storage: Storage, name: str, records: Sequence[tuple[str, bytes]]) -> None:
    async with asyncrec.open_sharded_writer(name, storage=storage, max_shard_records=3) as writer:
        for key, record in records:
            await writer.write(record, key=key)


async def test_reordered_data_sets_with_same_records_are_equal(storage: Storage) -> None:
    await write_pages(storage)
    await tools.reshard("pages", "other", shuffle=True, compression="gzip", storage=storage, target_storage=storage)
    report = await tools.diff("pages", "other", storage=storage)
    assert (report.same, report.by, report.first_records, report.second_records) == (True, "key", 30, 30)
    assert (await tools.diff("pages", "other", by="content", storage=storage)).same
    assert (await tools.diff("pages", "other", by="feature:text", storage=storage)).same


async def test_diff_lists_missing_new_and_changed_records(storage: Storage) -> None:
    await keyed(storage, "a", [("one", b"1"), ("two", b"2"), ("three", b"3"), ("four", b"4")])
    await keyed(storage, "b", [("four", b"4"), ("three", b"33"), ("five", b"5"), ("six", b"6")])
    report = await tools.diff("a", "b", storage=storage)
    assert not report.same
    assert (report.only_first, report.only_first_numbers) == (2, [0, 1])
    assert (report.only_second, report.only_second_numbers) == (2, [2, 3])
    assert (report.changed, report.changed_numbers) == (1, [(2, 1)])
    assert report.to_json()["changed_numbers"] == [(2, 1)]


async def test_different_schema_counts_as_difference(storage: Storage) -> None:
    await write_pages(storage)
    await write_pages(storage, "bare", schema=None)
    report = await tools.diff("pages", "bare", storage=storage)
    assert (report.only_first, report.only_second, report.changed) == (0, 0, 0)
    assert not report.same_schema
    assert not report.same


async def test_unusable_diff_criterion_is_rejected(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [example(1)], storage=storage)
    assert (await tools.diff("x.tfrecord", "x.tfrecord", storage=storage)).by == "content"
    with pytest.raises(ValueError, match="no keys"):
        await tools.diff("x.tfrecord", "x.tfrecord", by="key", storage=storage)
    with pytest.raises(ValueError, match="no feature 'x'"):
        await tools.diff("x.tfrecord", "x.tfrecord", by="feature:x", storage=storage)


_RECORDS = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=6)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(first=_RECORDS, second=_RECORDS)
async def test_diff_by_content_equals_multiset_difference(first: list[bytes], second: list[bytes]) -> None:
    storage = MemoryStorage()
    await asyncrec.write_records("a.tfrecord", first, storage=storage)
    await asyncrec.write_records("b.tfrecord", second, storage=storage)
    report = await tools.diff("a.tfrecord", "b.tfrecord", storage=storage)
    gone, new = Counter(first) - Counter(second), Counter(second) - Counter(first)
    assert (report.only_first, report.only_second) == (gone.total(), new.total())
    assert Counter(first[number] for number in report.only_first_numbers) == gone
    assert Counter(second[number] for number in report.only_second_numbers) == new


async def pages(storage: Storage, name: str, **dates: str) -> None:
    schema = asyncrec.Schema({"url": asyncrec.FixedLen((), "str"), "date": asyncrec.FixedLen((), "str")})
    async with asyncrec.open_sharded_writer(name, storage=storage, schema=schema, key_feature="url") as writer:
        for url, date in dates.items():
            await writer.write({"url": url, "date": date})


async def test_diff_ignores_given_feature_and_reports_keys(storage: Storage) -> None:
    await pages(storage, "monday", a="1", b="1", gone="1")
    await pages(storage, "sunday", b="2", a="1", new="2")
    report = await tools.diff("monday", "sunday", storage=storage)
    assert report.keys == {"only_first": ["gone"], "only_second": ["new"], "changed": ["b"]}
    report = await tools.diff("monday", "sunday", by="feature:url", ignore=["date"], storage=storage)
    assert (report.changed, report.keys["only_second"], report.keys["changed"]) == (0, ["new"], [])
    assert (await tools.diff("monday", "sunday", by="content", ignore=["date"], storage=storage)).only_first == 1
    with pytest.raises(ValueError, match="no feature 'dat'"):
        await tools.diff("monday", "sunday", ignore=["dat"], storage=storage)
