"""A page describes any kind of data set: its records, shards, features, classes and writers."""

from __future__ import annotations

import numpy as np
import pytest
from asyncrec_report import report
from report_pages import page_of, png, written

import asyncrec
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


async def test_page_lists_records_shards_features_classes_and_writers() -> None:
    rows = [{"label": i % 4, "text": f"row {i}", "emb": np.full(8, i, np.float32)} for i in range(400)]
    schema = asyncrec.Schema(
        {
            "label": asyncrec.FixedLen((), "int64"),
            "text": asyncrec.FixedLen((), "str"),
            "emb": asyncrec.VarLen("float32"),
        }
    )
    options = {"max_shard_records": 100, "compression": "GZIP", "schema": schema, "writer_id": "crawler_7"}
    storage = await written(rows, **options, metadata={"source": "a test"})
    page = await page_of("pages", storage)
    for told in (
        "400 records in 4 shards",
        "All records were read, and every checksum holds.",
        "described by a schema",
        "4 classes",
        "equally large",
        "schema: VarLen, float32",
        "8 values per record",
        "pages-crawler_7-000003.tfrecord",
        "crawler_7",
        "closed",
        "a test",
        "none in 400 records read",
    ):
        assert told in page, told
    assert page.bars > 50
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    assert manifest.id in page


@pytest.mark.parametrize("how", ["no shard", "no record"])
async def test_page_reports_empty_dataset(how: str) -> None:
    storage = MemoryStorage()
    if how == "no shard":
        async with asyncrec.open_sharded_writer("pages", storage=storage):
            pass
    else:
        await asyncrec.write_records("pages", [], storage=storage)
    page = await page_of("pages", storage)
    assert f"0 records in {0 if how == 'no shard' else 1} shard" in page
    assert "nothing was read" in page


async def test_page_reports_open_writer() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=5) as writer:
        for i in range(10):
            await writer.write(asyncrec.encode_example({"i": i}))
        await writer.commit()
        assert "10 records in 2 shards" in await page_of("pages", storage)
        assert "1 writer not closed yet." in await page_of("pages", storage)
    assert "not closed yet" not in await page_of("pages", storage)


async def test_page_shows_non_example_records_by_kind() -> None:
    storage = MemoryStorage()
    await asyncrec.write_records("a", [b'{"url": "https://example.org"}', b"<html><p>hi", b"\xff\x00"], storage=storage)
    page = await page_of("a", storage)
    assert "The records are not Examples: JSON 33 %, HTML 33 %, binary 33 %." in page
    assert '{"url": "https://example.org"}' in page
    assert "ff 00" in page


async def test_folder_of_several_data_sets_makes_one_page() -> None:
    storage = MemoryStorage()
    for split in ("train", "eval"):
        async with asyncrec.open_sharded_writer(f"data/{split}", storage=storage, num_shards=2) as writer:
            for i in range(10):
                await writer.write(asyncrec.encode_example({"i": i}))
    page = await page_of("data", storage)
    assert "20 records in 4 shards" in page
    assert "Data set" in page


async def test_report_accepts_class_feature_and_rejects_unknown_name() -> None:
    storage = await written([{"shape": ["disc", "square"][i % 2], "i": i} for i in range(10)])
    assert "2 classes" not in await page_of("pages", storage)
    assert "2 classes" in await page_of("pages", storage, class_feature="shape")
    problem = "none of the records that were read has the feature 'colour'; their features are i, shape"
    with pytest.raises(ValueError, match=problem):
        await report("pages", storage=storage, class_feature="colour")


async def test_page_draws_all_classes_and_lists_largest() -> None:
    storage = await written([{"label": i % (1 + i % 40)} for i in range(800)])
    page = await page_of("pages", storage)
    assert "40 classes, by the feature label" in page
    assert "all 40 classes, from the largest to the smallest" in page


async def test_page_names_numeric_classes_from_manifest() -> None:
    rows = [{"label": i % 3, "image": png(2)} for i in range(12)]
    page = await page_of("pages", await written(rows, metadata={"labels": ["disc", "square"]}))
    assert {image["alt"] for image in page.images} == {"disc", "square", "2"}
    assert "disc 4 33 %" in page


async def test_features_follow_schema_order_with_empty_features_last() -> None:
    features = {name: asyncrec.FixedLen((), "str", default="") for name in ("url", "date", "referrer", "charset")}
    rows = [{"url": f"http://localhost/{i}", "date": "2026-11-24", "referrer": "", "charset": ""} for i in range(3)]
    page = await page_of("pages", await written(rows, schema=asyncrec.Schema(features)))
    assert "Empty in every record read: referrer, charset." in page.text
    assert "Always ." not in page.text
    assert page.text.index("url") < page.text.index("date") < page.text.index("Empty in every")
