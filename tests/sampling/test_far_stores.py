"""Sampling from stores that are slow or fail: in virtual time."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._clock import virtual_backend
from asyncrec.testing._faults import FlakyStorage, SlowStorage

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return virtual_backend(request.param)


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
