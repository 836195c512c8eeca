"""`asyncrec.open_dataset`: any record, by number or key, whatever the compression and with or without indexes."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import asyncrec
from asyncrec.storage.base import Storage
from asyncrec.storage.memory import MemoryStorage

pytestmark = pytest.mark.anyio

RECORDS = [b"record %05d " % i * (1 + i % 7) for i in range(1000)]


async def written(storage: Storage, records: list[bytes] = RECORDS, **options: Any) -> list[bytes]:
    """A data set "pages" of these records; they are given back in the order of its shards."""
    options = {"max_shard_records": 130} | options
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        for number, record in enumerate(records):
            await writer.write(record, key=f"key {number}")
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    found = []
    for shard in manifest.shards:
        found += await asyncrec.read_records(shard.path, storage=storage)
    assert sorted(found) == sorted(records)
    return found


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
async def test_every_record_is_had_by_its_number_from_either_end(compression: str) -> None:
    storage = MemoryStorage()
    records = await written(storage, compression=compression)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert len(dataset) == 1000
        for number in (0, 1, 129, 130, 999, -1, -1000, np.int64(500)):
            assert await dataset.get(number) == records[number]
        assert await dataset.get_many([]) == []
        assert await dataset.get_many(range(1000)) == records


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("indexed", [True, False])
async def test_many_come_in_the_order_asked_for_however_often_each_is_asked_for(
    compression: str, indexed: bool
) -> None:
    storage = MemoryStorage()
    records = await written(storage, compression=compression, index=indexed)
    wanted = random.Random(1).choices(range(-1000, 1000), k=2500)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_many(wanted) == [records[number] for number in wanted]
        assert await dataset.get_many(np.array(wanted)) == [records[number] for number in wanted]


@pytest.mark.parametrize("number", [1000, -1001, 1 << 40])
async def test_a_number_outside_is_an_index_error_that_names_it(number: int) -> None:
    storage = MemoryStorage()
    await written(storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        with pytest.raises(IndexError, match=str(number)):
            await dataset.get(number)
        with pytest.raises(IndexError, match=r"1,000 records"):
            await dataset.get_many([0, number])
