"""Sampling from stores that are slow or fail, in virtual time."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import FlakyStorage, SlowStorage
from tests.sampling.far_store import Wire, forty_blocks

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def sixteen_shards() -> MemoryStorage:
    storage = MemoryStorage()
    for shard in range(16):
        await asyncrec.write_records(f"data/s{shard:02}.tfrecord", [b"%d" % shard] * 20_000, storage=storage)
    return storage


Seconds = tuple[float, list[Any]]


async def of_sampler(storage: asyncrec.storage.Storage, ahead: bool | None) -> Seconds:
    sampler_of = asyncrec.InterleaveSampler(
        "data", bytes, batch_size=32, async_cycle=ahead, num_repeat=1, seed=1, storage=storage
    )
    began = anyio.current_time()
    async with sampler_of as sampler:
        batches = [batch async for batch in sampler]
    return anyio.current_time() - began, batches


async def of_interleave(storage: asyncrec.storage.Storage, ahead: bool | None) -> Seconds:
    paths = [f"data/s{shard:02}.tfrecord" for shard in range(16)]
    parallelism = None if ahead is None else 16 * ahead
    began = anyio.current_time()
    async with asyncrec.interleave(paths, parallelism=parallelism, storage=storage) as stream:
        batches = [batch async for batch in stream.batches(32)]
    return anyio.current_time() - began, batches


@pytest.mark.parametrize("seconds_of", [of_sampler, of_interleave])
async def test_cycle_in_remote_store_is_read_concurrently_by_default(
    seconds_of: Callable[..., Awaitable[Seconds]],
) -> None:
    """If each read takes 20 ms, this is eight times as fast, and the order is the same."""
    storage = SlowStorage(await sixteen_shards(), latency=0.020)
    near, batches = await seconds_of(storage, None)
    one_by_one, same = await seconds_of(storage, False)
    assert same == batches
    assert one_by_one == pytest.approx(near), "not on a disk"
    storage.read_ahead = 1 << 20
    one_by_one, same = await seconds_of(storage, False)
    assert same == batches
    for ahead in (True, None):
        at_once, same = await seconds_of(storage, ahead)
        assert same == batches
        assert one_by_one >= 8 * at_once


async def test_read_ahead_states_match_states_of_local_reads() -> None:
    """The records that follow a state are also the same."""
    lengths = [3, 900, 0, 40, 700, 1, 300, 500]
    paths = [f"s{number}" for number in range(len(lengths))]
    far = Wire()
    far.latency = 0.020
    for path, length in zip(paths, lengths, strict=True):
        await asyncrec.write_records(path, [b"%d" % number * 50 for number in range(length)], storage=far)
    options: dict[str, Any] = {"cycle_length": 3, "block_length": 2, "memory_limit": 1 << 17, "storage": far}
    async with asyncrec.interleave(paths, parallelism=0, **options) as near:
        expected = [(batch, near.state_dict()) async for batch in near.batches(97)]
    async with asyncrec.interleave(paths, **options) as ahead:
        assert [(batch, ahead.state_dict()) async for batch in ahead.batches(97)] == expected
    for at in range(0, len(expected), 5):
        async with asyncrec.interleave(paths, **options) as resumed:
            resumed.load_state_dict(expected[at][1])
            assert [(batch, resumed.state_dict()) async for batch in resumed.batches(97)] == expected[at + 1 :]


async def test_full_shuffle_buffer_is_restored_in_few_requests() -> None:
    """All shards are read concurrently, and a short gap between two records is read rather than skipped."""
    far = Wire()
    paths = [f"s{number}.tfrecord" for number in range(8)]
    for number, path in enumerate(paths):
        await asyncrec.write_records(path, [b"%d:%d" % (number, at) * 400 for at in range(1000)], storage=far)
    options: dict[str, Any] = {"cycle_length": 8, "shuffle_buffer": 1000, "seed": 1, "storage": far}
    async with asyncrec.interleave(paths, **options) as stream:
        batches = stream.batches(500)
        for _ in range(8):
            await anext(batches)
        state = stream.state_dict()
        rest = [batch async for batch in batches]
    far.latency, far.reads = 0.020, 0
    began = anyio.current_time()
    async with asyncrec.interleave(paths, **options) as resumed:
        resumed.load_state_dict(state)
        batches = resumed.batches(500)
        first = await anext(batches)
        assert anyio.current_time() - began <= 5 * 0.020
        assert far.reads <= 3 * len(paths)
        assert [first] + [batch async for batch in batches] == rest


async def test_read_ahead_of_all_shards_stays_within_limit() -> None:
    limit = 4 << 20
    far = Wire()
    paths = [f"s{number:02}" for number in range(40)]
    for path in paths:
        await asyncrec.write_records(path, [bytes(4000)] * 250, storage=far)
    async with asyncrec.interleave(paths, cycle_length=16, memory_limit=limit, storage=far) as stream:
        given = 0
        async for batch in stream.batches(500):
            given += sum(map(len, batch))
            await anyio.sleep(10)
            assert limit / 4 < far.given - given <= limit or given > 6e6
            assert far.most_open <= 16
    assert given == 40 * 250 * 4000


async def test_shards_are_opened_before_earlier_shards_run_out() -> None:
    """Opening a shard takes 200 ms, but the stream waits for only one opening, not for each in turn."""
    far = Wire()
    paths = [f"s{number:02}" for number in range(40)]
    for number, path in enumerate(paths):
        await asyncrec.write_records(path, [bytes(1000)] * (50 + number), storage=far)
    far.latency = 0.200
    began = anyio.current_time()
    async with asyncrec.interleave(paths, cycle_length=8, storage=far) as stream:
        async for _ in stream.batches(100):
            pass
    assert anyio.current_time() - began <= 40 / 8 * 0.200 + 0.001


async def test_intermittent_store_faults_do_not_change_records() -> None:
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


@pytest.mark.parametrize(
    ("latency", "bytes_per_second", "most"),
    [(0.001, 50e6, 10), (0.200, 50e6, 3)],
    ids=["near: each by itself", "far: neighbours together"],
)
async def test_neighbouring_records_share_read_across_cheap_gaps(
    latency: float, bytes_per_second: float, most: int
) -> None:
    store = Wire()
    records = [bytes([number % 251]) * 10_000 for number in range(600)]
    async with asyncrec.open_sharded_writer("pages", storage=store) as writer:
        await writer.write_many(records)
    store.latency, store.bytes_per_second = latency, bytes_per_second
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        for number in range(40):  # the cost of a read is learned here
            assert await dataset.get(number * 7) == records[number * 7]
            if not number % 2:
                assert await dataset.get_many(range(200, 300)) == records[200:300]
        store.reads = 0
        wanted = range(0, 600, 60)  # 600 KB lie between two of them
        assert await dataset.get_many(wanted) == [records[number] for number in wanted]
    assert store.reads <= most
    assert (store.reads == len(wanted)) == (most == len(wanted))


async def order_of(store: MemoryStorage, **options: Any) -> list[list[int]]:
    found = []
    async with asyncrec.open_dataset("pages", storage=store) as dataset, dataset.shuffled(**BLOCKS | options) as stream:
        async for records in stream.batches(100):
            found.append([int(record[:6]) for record in records])
    return found


# A window has 3.5 blocks, so every other window ends in the middle of a block.
BLOCKS: dict[str, Any] = {"seed": 5, "block_bytes": 22_400, "buffer_size": 700}


async def test_epoch_requests_each_remote_block_at_most_once() -> None:
    store = await forty_blocks()
    store.reads = 0
    found = await order_of(store)
    assert sorted(number for batch in found for number in batch) == list(range(8000))
    assert 30 <= store.reads <= 40  # fewer than the blocks: adjacent blocks in a window share one request


@pytest.mark.parametrize("compression", ["", "GZIP"])
async def test_remote_and_local_stores_yield_same_order(compression: str) -> None:
    far = await forty_blocks(compression)
    near = MemoryStorage()
    async for info in far.list_objects():
        await near.put(info.key, await far.get(info.key))
    for options in ({}, {"block_bytes": None}, {"mode": "buffer"}, {"mode": "global"}):
        alone = await order_of(near, **options)
        far.latency = 0.01
        assert await order_of(far, **options) == alone
        dealt = [await order_of(far, worker=(worker, 3), uneven="pad", **options) for worker in range(3)]
        assert [batch for turn in zip(*dealt, strict=True) for batch in turn][:80] == alone
        far.latency = 0.5  # the measured cost has no effect on the order
        assert await order_of(far, **options) == alone


async def test_shuffled_stream_reads_ahead_across_windows() -> None:
    """There are 12 windows with about four reads each: one after another, they would take 12 s."""
    store = await forty_blocks()
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        await dataset.get_many(range(0, 8000, 1000))  # to load the indexes
        store.latency = 1.0
        began = anyio.current_time()
        async with dataset.shuffled(**BLOCKS) as stream:
            async for _ in stream.batches(100):
                pass
        assert anyio.current_time() - began < 8


async def test_first_batch_waits_only_for_one_index_and_block() -> None:
    store = await forty_blocks()
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        store.latency = 1.0
        began = anyio.current_time()
        async with dataset.shuffled(**BLOCKS) as stream:
            await anext(stream)
        assert anyio.current_time() - began <= 2.5


async def test_block_members_share_one_read_of_remote_store() -> None:
    store = Wire()
    async with asyncrec.open_sharded_writer("pages", storage=store, compression="GZIP", writer_id="w") as writer:
        for _ in range(3):
            await writer.write_many([random.randbytes(1000) * 40] * 120)  # each exceeds a member
            await writer.flush()
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        locations = {(await dataset.locate(number)).member for number in range(360)}
        assert len(locations) >= 3
        store.reads = 0
        assert len(await dataset.get_many(range(360))) == 360
    assert store.reads == 1


async def test_cost_of_random_reads_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    store = await forty_blocks()
    with caplog.at_level(logging.INFO, "asyncrec.sampling"):
        async with asyncrec.open_dataset("pages", storage=store) as dataset:
            for number in range(0, 8000, 8):
                await dataset.get(number)
    [line] = [record for record in caplog.records if "requests were made for" in record.message]
    assert (vars(line)["requests"], vars(line)["records"]) == (500, 500)
    assert vars(line)["wanted"] == 500 * 112
