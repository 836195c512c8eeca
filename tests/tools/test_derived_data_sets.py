"""filter, sample, merge and dedupe write the expected records with keys, schema and metadata, or nothing at all."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tool_data import SCHEMA, change, data_names, example, names, write_pages

import asyncrec
from asyncrec import tools
from asyncrec.errors import DatasetError, FormatError, ObjectExistsError, SchemaError
from asyncrec.integrations.arrow import open_batch_writer, open_batches
from asyncrec.storage._base import Storage
from asyncrec.tools import _keyed_records

pytestmark = pytest.mark.anyio


async def records_of(storage: Storage, path: str) -> list[bytes]:
    async with asyncrec.open_dataset(path, storage=storage) as dataset:
        return await dataset.get_many(range(len(dataset)))


def where(*texts: str) -> list[tools.Where]:
    return [tools.Where.parse(text) for text in texts]


def into(storage: Storage) -> dict[str, Any]:
    return {"storage": storage, "target_storage": storage}


async def test_filter_keeps_matching_records_with_keys(storage: Storage) -> None:
    await write_pages(storage, compression="GZIP")
    report = await tools.filter("pages", "some", where=where("label=1", "emb>=10"), **into(storage))
    assert (report.read, report.records, len(report.shards)) == (30, 7, 1)
    assert await records_of(storage, "some") == [example(n) for n in range(10, 30) if n % 3 == 1]
    manifest = await asyncrec.read_manifest("some", storage=storage)
    assert manifest.schema == SCHEMA.to_json()
    assert manifest.shards[0].compression == "GZIP"
    assert manifest.metadata["made"] == "here"
    assert manifest.metadata["filtered"] == {"source": "pages", "where": ["label = 1", "emb >= 10"]}
    assert (await tools.get_record("some", key="key 13", storage=storage)).data == example(13)
    with pytest.raises(ObjectExistsError):
        await tools.filter("pages", "some", where=where("label=1"), **into(storage))


@pytest.mark.parametrize("condition", ["nobody=1", "label=x"])
async def test_filter_with_impossible_condition_writes_nothing(storage: Storage, condition: str) -> None:
    await write_pages(storage)
    before = await names(storage)
    with pytest.raises(ValueError, match="feature"):
        await tools.filter("pages", "some", where=where(condition), **into(storage))
    assert await names(storage) == before


async def test_damaged_source_writes_no_data(storage: Storage) -> None:
    await write_pages(storage)
    shard = (await asyncrec.read_manifest("pages", storage=storage)).shards[2].path
    await change(storage, shard, 40)
    before = await data_names(storage)
    with pytest.raises(FormatError):
        await tools.filter("pages", "some", where=where("label<9"), **into(storage))
    with pytest.raises(FormatError):
        await tools.merge(["pages", "pages"], "some", **into(storage))
    with pytest.raises(FormatError):
        await tools.dedupe("pages", "some", **into(storage))
    assert await data_names(storage) == before


async def test_target_named_like_record_file_becomes_file(storage: Storage) -> None:
    await write_pages(storage)
    await tools.filter("pages", "some.tfrecord", where=where("label=2"), compression="gzip", **into(storage))
    async with asyncrec.open_reader("some.tfrecord", storage=storage) as reader:
        assert [record async for record in reader] == [example(n) for n in range(30) if n % 3 == 2]
        assert reader.compression == "GZIP"
    with pytest.raises(ObjectExistsError):
        await tools.filter("pages", "some.tfrecord", where=where("label=2"), **into(storage))


async def test_sample_is_reproducible_by_seed_and_ordered(storage: Storage) -> None:
    await write_pages(storage)
    report = await tools.sample("pages", "some", records=7, seed=3, **into(storage))
    assert (report.read, report.records) == (30, 7)
    drawn = await records_of(storage, "some")
    async with tools.open_sample("pages", records=7, seed=3, storage=storage) as stream:
        shown = [found async for records in stream for found in records]
    assert [found.data for found in shown] == drawn
    assert [found.data for found in shown] == [example(found.number) for found in shown]
    assert len({found.number for found in shown}) == 7
    async with tools.open_sample("pages-*.tfrecord", records=7, seed=3, storage=storage) as stream:
        assert [found.data async for records in stream for found in records] == drawn
    await tools.sample("pages", "half", fraction=0.5, **into(storage))
    assert len(await records_of(storage, "half")) == 15
    await tools.sample("pages", "all", records=99, **into(storage))
    assert await records_of(storage, "all") == [example(n) for n in range(30)]
    for wrong in ({}, {"records": 1, "fraction": 0.1}, {"records": -1}, {"fraction": 1.1}):
        with pytest.raises(ValueError, match=r"records=-1: must be at least 0|fraction"):
            await tools.sample("pages", "no", **wrong, **into(storage))


@pytest.mark.slow
async def test_sample_draws_every_record_with_equal_probability(storage: Storage) -> None:
    await write_pages(storage)
    seen: Counter[int] = Counter()
    for seed in range(300):
        async with tools.open_sample("pages", records=3, seed=seed, storage=storage) as stream:
            seen.update([found.number async for records in stream for found in records])
    # 30 are expected of each, with a standard deviation of 5.2.
    assert len(seen) == 30
    assert 9 <= min(seen.values()) <= max(seen.values()) <= 51


async def test_merge_concatenates_sources_and_keeps_keys(storage: Storage) -> None:
    await write_pages(storage, "a", records=12, compression="GZIP")
    await write_pages(storage, "b", records=5)
    await asyncrec.write_records("c.tfrecord", [b"one"], storage=storage)
    report = await tools.merge(["a", "b"], "both", **into(storage))
    assert (report.sources, report.read, report.records) == (["a", "b"], 17, 17)
    assert await records_of(storage, "both") == [example(n) for n in [*range(12), *range(5)]]
    assert (await tools.get_record("both", key="key 11", storage=storage)).data == example(11)
    assert (await asyncrec.read_manifest("both", storage=storage)).shards[0].compression == "GZIP"
    with pytest.raises(DatasetError, match=r"c\.tfrecord has no schema, unlike a"):
        await tools.merge(["a", "c.tfrecord"], "none", **into(storage))
    with pytest.raises(ValueError, match="no source was passed; pass at least one"):
        await tools.merge([], "none", **into(storage))


async def test_merge_progress_covers_all_sources_together(storage: Storage) -> None:
    for name in ("a", "b", "c"):
        await write_pages(storage, name)
    told: list[tuple[int, int | None]] = []
    await tools.merge(["a", "b", "c"], "all", progress=lambda *done: told.append(done), **into(storage))
    sizes = [(await asyncrec.read_manifest(name, storage=storage)).bytes for name in ("a", "b", "c")]
    assert {total for _, total in told} == {sum(sizes)}
    assert told == sorted(told)
    assert {sum(sizes[:1]), sum(sizes[:2]), sum(sizes)} <= {done for done, _ in told}


@pytest.mark.parametrize("limit", [64 << 20, 100])
async def test_dedupe_keeps_single_copy_of_equal_records(
    storage: Storage, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("asyncrec.tools._identity._MEMORY", limit)
    await write_pages(storage, "a", records=12)
    await write_pages(storage, "b", records=20)
    await tools.merge(["a", "b"], "both", **into(storage))
    report = await tools.dedupe("both", "once", **into(storage))
    assert (report.read, report.records) == (32, 20)
    assert await records_of(storage, "once") == [example(n) for n in range(20)]
    await tools.dedupe("both", "keys", by="key", keep="last", **into(storage))
    assert await records_of(storage, "keys") == [example(n) for n in range(20)]
    await tools.dedupe("both", "labels", by="feature:label", **into(storage))
    assert await records_of(storage, "labels") == [example(n) for n in range(3)]
    await tools.dedupe("both", "last", by="feature:label", keep="last", **into(storage))
    assert await records_of(storage, "last") == [example(n) for n in (17, 18, 19)]


async def test_dedupe_names_unusable_identity(storage: Storage) -> None:
    await asyncrec.write_records("x.tfrecord", [example(1), asyncrec.encode_example({"b": 1})] * 2, storage=storage)
    report = await tools.dedupe("x.tfrecord", "once.tfrecord", by="feature:b", **into(storage))
    assert report.records == 3, "a record without the feature is like no other"
    with pytest.raises(DatasetError, match="no keys"):
        await tools.dedupe("x.tfrecord", "no", by="key", **into(storage))
    with pytest.raises(ValueError, match="no feature 'c'; the features are b, emb, label, text"):
        await tools.dedupe("x.tfrecord", "no", by="feature:c", **into(storage))
    with pytest.raises(ValueError, match="'content', 'key' or 'feature:NAME'"):
        await tools.dedupe("x.tfrecord", "no", by="b", **into(storage))


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("command", ["dedupe", "sample"])
async def test_file_changed_between_passes_is_rejected(
    storage: Storage, command: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    await asyncrec.write_records("x.tfrecord", [example(n) for n in range(20)], storage=storage)

    async def write_chosen(*args: Any, **options: Any) -> tools.WriteReport:
        await asyncrec.write_records("x.tfrecord", [example(n) for n in range(count)], storage=storage)
        return await real(*args, **options)

    real = _keyed_records.write_chosen
    monkeypatch.setattr(f"asyncrec.tools._{command}.write_chosen", write_chosen)
    before = await names(storage)
    with pytest.raises(DatasetError, match=r"x\.tfrecord: 20 records were counted first, but (only 3|more) were read"):
        options = {"records": 5} if command == "sample" else {}
        await getattr(tools, command)("x.tfrecord", "out.tfrecord", **options, **into(storage))
    assert await names(storage) == before


async def long_lived(storage: Storage) -> None:
    """Write one record with a writer that opens first and commits last, and one with a writer open in between."""
    schema = asyncrec.Schema({"text": asyncrec.FixedLen((), "str"), "n": asyncrec.FixedLen((), "int64", default=0)})
    names = [{"writer_id": "a"}, {"writer_id": "b"}]
    options: dict[str, Any] = {"storage": storage, "schema": schema}
    async with asyncrec.open_sharded_writer("pages", **options, **names[0]) as first:
        async with asyncrec.open_sharded_writer("pages", **options, **names[1]) as second:
            await second.write({"text": "old", "n": 7}, key="url")
        await first.write({"text": "new", "n": -3}, key="url")


@pytest.mark.parametrize(
    ("keep", "kept"), [("first", "old"), ("last", "new"), ("newest-by=n", "old"), ("newest-by=text", "old")]
)
async def test_dedupe_orders_records_by_commit(storage: Storage, keep: str, kept: str) -> None:
    await long_lived(storage)
    await tools.dedupe("pages", "once", by="key", keep=keep, **into(storage))
    async with asyncrec.open_dataset("once", storage=storage) as dataset:
        assert [example["text"] async for example in dataset.examples()] == [kept]
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert dataset.schema is not None
        assert dataset.schema.decode(await dataset.get_by_key("url"))["text"] == "old"


@pytest.mark.parametrize("values", [[b"2026-01", b"2026-02", b""], [-5, 0, 3], [-1.5, -1.0, 0.0, 2.5]])
async def test_dedupe_keeps_record_with_largest_value(storage: Storage, values: list[Any]) -> None:
    records = [asyncrec.encode_example({"of": b"one", "age": value, "n": n}) for n, value in enumerate(values)]
    newest = records[max(range(len(values)), key=values.__getitem__)]
    await asyncrec.write_records("x.tfrecord", [*records, asyncrec.encode_example({"of": b"one"})], storage=storage)
    await tools.dedupe("x.tfrecord", "y.tfrecord", by="feature:of", keep="newest-by=age", **into(storage))
    assert await asyncrec.read_records("y.tfrecord", storage=storage) == [newest]


async def test_invalid_keep_option_is_rejected(storage: Storage) -> None:
    record = asyncrec.encode_example({"long": b"x" * 33, "two": [1, 2]})
    await asyncrec.write_records("x.tfrecord", [record], storage=storage)
    for keep, said in (
        ("newest", "keep must be"),
        ("newest-by=", "keep must be"),
        ("newest-by=long", "string of 33 bytes"),
    ):
        with pytest.raises(ValueError, match=said):
            await tools.dedupe("x.tfrecord", "y.tfrecord", keep=keep, **into(storage))
    for keep, said in (("newest-by=two", "has 2 values"), ("newest-by=none", "no feature 'none'")):
        with pytest.raises(ValueError, match=said):
            await tools.dedupe("x.tfrecord", "y.tfrecord", keep=keep, **into(storage))
    assert await names(storage) == ["x.tfrecord"]


@pytest.mark.parametrize("command", [tools.filter, tools.sample, tools.merge, tools.dedupe])
@pytest.mark.parametrize("target", ["out/re.warc.gz", "out.jsonl", "out.parquet"])
async def test_target_named_for_another_format_is_rejected(storage: Storage, command: Any, target: str) -> None:
    await write_pages(storage)
    before = await names(storage)
    options = {"where": where("label=1")} if command is tools.filter else {}
    source = ["pages"] if command is tools.merge else "pages"
    with pytest.raises(ValueError, match=r"this is the name of a \w+ file.*convert"):
        await command(source, target, **options, **into(storage))
    assert await names(storage) == before


@pytest.mark.parametrize("tool", ["merge", "filter", "sample", "dedupe", "convert"])
async def test_shard_size_of_zero_is_rejected(storage: Storage, tool: str) -> None:
    await write_pages(storage)
    await storage.put("x.jsonl", b'{"n": 1}\n')
    before = await names(storage)
    options: dict[str, Any] = {"max_shard_bytes": 0, **into(storage)}
    with pytest.raises(ValueError, match="max_shard_bytes must be at least 1, not 0"):
        if tool == "merge":
            await tools.merge(["pages"], "made", **options)
        elif tool == "filter":
            await tools.filter("pages", "made", where=where("label=1"), **options)
        elif tool == "sample":
            await tools.sample("pages", "made", records=3, **options)
        elif tool == "dedupe":
            await tools.dedupe("pages", "made", **options)
        else:
            await tools.convert("x.jsonl", "made", **options)
    assert await names(storage) == before


async def test_data_sets_with_different_labels_are_not_merged(storage: Storage) -> None:
    for name, labels in (("one", ["cat", "dog"]), ("other", ["ant", "cat"]), ("same", ["cat", "dog"])):
        async with asyncrec.open_sharded_writer(name, metadata={"labels": labels}, storage=storage) as writer:
            await writer.write(example(1))
    before = await names(storage)
    with pytest.raises(DatasetError, match="other has other labels than one"):
        await tools.merge(["one", "other"], "both", **into(storage))
    assert await names(storage) == before
    await tools.merge(["one", "same"], "both", **into(storage))
    assert (await asyncrec.read_manifest("both", storage=storage)).metadata["labels"] == ["cat", "dog"]


async def test_data_sets_with_different_units_are_not_merged(storage: Storage) -> None:
    """Data sets with the same units stay mergeable, even if a column has another Arrow type of text."""
    for name, unit, text in (
        ("d/us", "us", pa.string()),
        ("d/ms", "ms", pa.string()),
        ("same", "us", pa.large_string()),
    ):
        table = pa.table({"when": pa.array([5000], pa.timestamp(unit)), "text": pa.array(["x"], text)})
        async with open_batch_writer(name, table.schema, storage=storage) as writer:
            await writer.write(table)
    before = await names(storage)
    with pytest.raises(SchemaError, match=r"column 'when' is timestamp\[us\] in one.*\[ms\] in another; write one"):
        await tools.merge(["d/us", "d/ms"], "both", **into(storage))
    with pytest.raises(SchemaError, match=r"column 'when' is timestamp"):
        await tools.filter("d", "both", where=where("text=x"), **into(storage))
    assert await names(storage) == before
    await tools.merge(["d/us", "same"], "both", **into(storage))
    async with open_batches("both", storage=storage) as reader:
        [batch] = [batch async for batch in reader]
    assert batch.schema.field("when").type == pa.timestamp("us")
    assert batch.num_rows == 2


async def test_records_with_empty_feature_are_never_equal(storage: Storage) -> None:
    """A feature without values counts as absent."""
    lists: list[object] = [np.array([], np.int64), np.array([], np.float32), [], None, [1], [1]]
    records = [{"n": n} if tag is None else {"n": n, "tag": tag} for n, tag in enumerate(lists * 2)]
    await asyncrec.write_records("x.tfrecord", map(asyncrec.encode_example, records), storage=storage)
    report = await tools.dedupe("x.tfrecord", "once.tfrecord", by="feature:tag", **into(storage))
    assert report.records == 4 * 2 + 1
