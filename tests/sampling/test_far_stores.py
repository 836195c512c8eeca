"""Sampling from stores that are slow or fail: in virtual time."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.storage._base import ByteSource
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import FlakyStorage, SlowStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def sixteen_shards() -> MemoryStorage:
    storage = MemoryStorage()
    for shard in range(16):
        await asyncrec.write_records(f"data/s{shard:02}.tfrecord", [b"%d" % shard] * 20_000, storage=storage)
    return storage


async def seconds_of(storage: asyncrec.storage.Storage, async_cycle: bool) -> tuple[float, list[Any]]:
    sampler_of = asyncrec.InterleaveSampler(
        "data", bytes, batch_size=32, async_cycle=async_cycle, num_repeat=1, seed=1, storage=storage
    )
    began = anyio.current_time()
    async with sampler_of as sampler:
        batches = [batch async for batch in sampler]
    return anyio.current_time() - began, batches


async def test_fetching_a_cycle_at_once_is_eight_times_as_fast_where_each_read_takes_20_ms() -> None:
    storage = SlowStorage(await sixteen_shards(), latency=0.020)
    one_by_one, batches = await seconds_of(storage, async_cycle=False)
    at_once, same = await seconds_of(storage, async_cycle=True)
    assert same == batches
    assert one_by_one >= 8 * at_once


async def test_a_store_that_fails_now_and_then_changes_nothing() -> None:
    storage = await sixteen_shards()
    paths = [f"data/s{shard:02}.tfrecord" for shard in range(16)]
    flaky = FlakyStorage(storage, seed=3, rate=0.2)

    async def found(storage: asyncrec.storage.Storage) -> list[bytes]:
        records = []
        async with asyncrec.interleave(paths, parallelism=4, storage=storage) as stream:
            async for batch in stream.batches(1000):
                records += batch
        return records

    assert await found(flaky) == await found(storage)
    assert flaky.failed


class Wire(MemoryStorage):
    """A store that answers after a while, and then gives so many bytes in a second; its reads of shards are counted."""

    read_ahead = 1 << 20
    latency = 0.0
    bytes_per_second = math.inf
    reads = 0

    def open_source(self, key: str, **options: Any) -> Any:
        self.reads += key.endswith(".tfrecord")
        return self._slow(super().open_source(key, **options))

    @asynccontextmanager
    async def _slow(self, opening: Any) -> AsyncIterator[ByteSource]:
        await anyio.sleep(self.latency)
        async with opening as source:
            receive = source.receive

            async def slowly(max_bytes: int) -> bytes:
                block: bytes = await receive(max_bytes)
                await anyio.sleep(len(block) / self.bytes_per_second)
                return block

            source.receive = slowly
            yield source


@pytest.mark.parametrize(
    ("latency", "bytes_per_second", "most"),
    [(0.001, 50e6, 10), (0.200, 50e6, 3)],
    ids=["near: each by itself", "far: neighbours together"],
)
async def test_records_share_a_read_where_the_gap_takes_no_longer_than_a_read_takes_to_begin(
    latency: float, bytes_per_second: float, most: int
) -> None:
    store = Wire()
    records = [bytes([number % 251]) * 10_000 for number in range(600)]
    async with asyncrec.open_sharded_writer("pages", storage=store) as writer:
        await writer.write_many(records)
    store.latency, store.bytes_per_second = latency, bytes_per_second
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        for number in range(40):  # what it costs is learned
            assert await dataset.get(number * 7) == records[number * 7]
            if not number % 2:
                assert await dataset.get_many(range(200, 300)) == records[200:300]
        store.reads = 0
        wanted = range(0, 600, 60)  # 600 KB between two of them
        assert await dataset.get_many(wanted) == [records[number] for number in wanted]
    assert store.reads <= most
    assert (store.reads == len(wanted)) == (most == len(wanted))
