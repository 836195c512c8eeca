"""`count` counts records by means of manifests, indexes and frame lengths."""

from __future__ import annotations

import json

import pytest
from tool_data import change, example, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import ArgumentValueError, FormatError
from asyncrec.storage._base import Storage

pytestmark = pytest.mark.anyio


async def test_counts_come_from_manifests_indexes_or_frame_lengths(storage: Storage) -> None:
    await write_pages(storage, "d/pages")
    await asyncrec.write_records("d/a.tfrecord", [b"x"] * 3, storage=storage)
    await asyncrec.write_records("d/z.tfrecord", [b"x"] * 5, compression="ZLIB", storage=storage)
    report = await tools.count("d", storage=storage)
    assert report.records == 38
    assert report.shards[-2:] == [("d/a.tfrecord", 3), ("d/z.tfrecord", 5)]
    assert (await tools.count("d/pages", storage=storage)).records == 30
    await change(storage, "d/a.tfrecord", 0)
    with pytest.raises(FormatError, match=r"a\.tfrecord"):
        await tools.count("d/a.tfrecord", storage=storage)


@pytest.mark.parametrize("jobs", [1, 3])
async def test_records_are_counted_by_feature_value(storage: Storage, jobs: int) -> None:
    await write_pages(storage, records=31)
    report = await tools.count("pages", by="label", jobs=jobs, storage=storage)
    assert report.by == [(0, 11), (1, 10), (2, 10)]
    assert report.records == 31
    assert report.to_json()["by"][0] == {"value": 0, "records": 11}
    where = [tools.Where.parse("label>=1"), tools.Where.parse("text contains 2")]
    chosen = await tools.count("pages", by="text", where=where, jobs=jobs, storage=storage)
    assert set(chosen.by or ()) == {(f"text {n}", 1) for n in range(31) if n % 3 and "2" in str(n)}
    assert chosen.records == len(chosen.by or ())
    assert (await tools.count("pages", where=where, jobs=jobs, storage=storage)).by is None
    with pytest.raises(ArgumentValueError, match="there is no feature 'none'; the features are emb, label, text"):
        await tools.count("pages", by="none", jobs=jobs, storage=storage)


async def test_count_separates_missing_multiple_and_odd_values(storage: Storage) -> None:
    given: list[dict[str, object]] = [{"a": 1}, {"a": [1, 2]}, {"b": 3}, {"a": [1, 2]}, {"a": b"\xff"}]
    given += [{"a": float("nan")}, {"a": float("nan")}]
    records = [asyncrec.encode_example(each) for each in given]
    await asyncrec.write_records("x.tfrecord", [*records, b"no Example \xff"], storage=storage)
    report = await tools.count("x.tfrecord", by="a", storage=storage)
    assert report.by == [(None, 2), ([1, 2], 2), ({"$float": "nan"}, 2), (1, 1), ({"$base64": "/w=="}, 1)]
    with pytest.raises(ArgumentValueError, match="there is no feature 'c'; the features are a, b"):
        await tools.count("x.tfrecord", by="c", storage=storage)


async def test_count_separates_values_that_look_alike(storage: Storage) -> None:
    values: list[object] = [1, 1.0, b"1", b"1.0", b"\xff", b"\\xff", [1, 2], b"[1, 2]", [b"1", b"2"], [1.0, 2.0]]
    values += [0.001, 0.002, 0.0, -0.0, float("nan"), b"nan", b"", b" ", b"a", b"a ", b"null", b'{"$float": "nan"}']
    records = [asyncrec.encode_example({"a": value}) for value in values]
    await asyncrec.write_records("x.tfrecord", records, storage=storage)
    report = await tools.count("x.tfrecord", by="a", storage=storage)
    assert [records for _, records in report.by or ()] == [1] * len(values)
    assert len({json.dumps(row["value"]) for row in report.to_json()["by"]}) == len(values)


async def test_feature_with_too_many_values_is_rejected(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec.tools._count.MOST_VALUES", 20)
    await asyncrec.write_records("x.tfrecord", [example(number) for number in range(21)], storage=storage)
    with pytest.raises(ArgumentValueError, match="'text' has more than 20 different values"):
        await tools.count("x.tfrecord", by="text", storage=storage)
