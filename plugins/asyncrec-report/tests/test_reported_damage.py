"""A page reports damaged, missing and invalid records; if no report is possible, an error is raised."""

from __future__ import annotations

from typing import Any

import pytest
from asyncrec_report import report
from report_pages import page_of, written

import asyncrec
from asyncrec.errors import ObjectNotFoundError, StoragePermissionError
from asyncrec.testing._faults import Fault, FlakyStorage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_page_reports_damaged_short_and_missing_shards(compression: str) -> None:
    rows = [{"id": i, "text": "abc" * 30} for i in range(1000)]
    storage = await written(rows, max_shard_records=100, compression=compression, writer_id="w")
    data = bytearray(await storage.get("pages-w-000002.tfrecord"))
    data[len(data) // 2] ^= 0xFF
    await storage.put("pages-w-000002.tfrecord", bytes(data))
    data = bytearray(await storage.get("pages-w-000005.tfrecord"))
    await storage.put("pages-w-000005.tfrecord", bytes(data[: len(data) // 2]))
    await storage.delete("pages-w-000007.tfrecord")
    page = await page_of("pages", storage)
    assert "3 shards see below" in page
    assert "missing" in page
    assert "records were found, but the manifest says 100" in page
    assert "the damage is listed below" in page
    assert page.html.count('class="chip bad"') == 3


async def test_page_reports_record_count_differing_from_manifest() -> None:
    storage = await written([{"id": i} for i in range(10)], writer_id="w")
    await asyncrec.write_records("pages-w-000000.tfrecord", [asyncrec.encode_example({"id": 1})], storage=storage)
    assert "1 records were found, but the manifest says 10" in await page_of("pages", storage)


async def test_page_reports_missing_mixed_nan_and_unexpected_values() -> None:
    rows: list[dict[str, Any]] = [{"a": 1, "x": float("nan")}] * 6 + [{"a": 0.5, "x": 1.0, "new": 1}] * 2
    schema = asyncrec.Schema(
        {name: asyncrec.FixedLen((), kind) for name, kind in {"a": "int64", "x": "float32", "gone": "int64"}.items()}
    )
    page = await page_of("pages", await written(rows, schema=schema))
    assert "More than one type: int64 in 6, float in 2." in page
    assert "2 records not int64, as the schema says." in page
    assert "6 NaN of 8 values (75 %)." in page
    assert "missing in 6 records (75 %)" in page
    assert "not in the schema" in page
    assert "In the schema, but in none of the records read: gone." in page


async def test_report_rejects_bad_sample_missing_path_and_failing_store() -> None:
    storage = await written([{"i": 1}])
    with pytest.raises(ValueError, match="sample must be at least 1"):
        await report("pages", storage=storage, sample=0)
    with pytest.raises(ObjectNotFoundError, match="nothing"):
        await report("nothing", storage=storage)
    calm = FlakyStorage(storage)
    await report("pages", storage=calm)
    flaky = FlakyStorage(storage, {len(calm.operations) - 1: Fault(error=StoragePermissionError)})
    with pytest.raises(StoragePermissionError):
        await report("pages", storage=flaky)
