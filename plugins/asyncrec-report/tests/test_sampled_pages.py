"""If a data set has many records, only a sample is read, and the page says which records were read."""

from __future__ import annotations

import re

import pytest
from asyncrec_report import report
from report_pages import MIB, page_of, written

import asyncrec
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import FlakyStorage

pytestmark = pytest.mark.anyio


async def test_report_samples_million_records_and_states_sampling() -> None:
    storage = MemoryStorage()
    pool = [asyncrec.encode_example({"id": i, "label": i % 5}) for i in range(1000)]
    async with asyncrec.open_writer("data.tfrecord", storage=storage) as writer:
        for _ in range(1000):
            await writer.write_many(pool)
    assert (await storage.head("data.tfrecord")).size > 30 * MIB
    watched = FlakyStorage(storage)
    page = await page_of("data.tfrecord", watched)
    assert "This page is based on a sample: 20,000 records, from the beginning of each shard" in page
    assert "an unknown number of records" in page
    assert sum(operation == "receive" for operation, *_ in watched.operations) < 20, "of at most 256 KiB each"
    assert len(page.html) < 100_000


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_index_allows_even_sample_from_all_shards(compression: str) -> None:
    storage = await written([{"id": i} for i in range(4000)], max_shard_records=1000, compression=compression)
    page = await page_of("pages", storage, sample=200)
    assert "a sample: 200 records (5 %), drawn evenly from all shards" in page
    assert "4,000 records in 4 shards" in page
    ids = [int(text.replace(",", "")) for text in re.findall(r"<dt>(?:min|max)</dt><dd>([\d,]+)</dd>", page.html)]
    assert ids[0] < 40
    assert ids[1] > 3960
    assert "All records were read" in await page_of("pages", storage, sample=None)


async def test_sample_without_index_reads_shard_beginnings() -> None:
    storage = await written([{"id": i} for i in range(2000)], max_shard_records=500, index=False)
    page = await page_of("pages", storage, sample=100)
    assert "(5 %), from the beginning of each shard" in page


async def test_sample_of_large_records_limits_visited_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("asyncrec_report.gather.SAMPLE_BYTES", 1000)
    storage = MemoryStorage()
    for number in range(10):
        await asyncrec.write_records(f"data/{number}.tfrecord", [bytes(400)] * 3, storage=storage)
    page = await page_of("data", storage)
    assert "This page is based on a sample: 3 records, from the beginning of each shard" in page
    assert page.html.count(">?</td>") == 10 + 7  # the records of all shards, and the compression of those not read


async def test_progress_counts_records() -> None:
    storage = await written([{"i": i} for i in range(100)], max_shard_records=10)
    seen: list[tuple[int, int | None]] = []
    await report("pages", storage=storage, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (100, 100)
    assert seen == sorted(seen)
