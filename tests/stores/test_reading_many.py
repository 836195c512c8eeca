"""Streams over many shards of S3 and GCS read each shard in a few long responses, and several shards at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from places import Place

import asyncrec
from asyncrec.storage import Storage
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

SHARDS = 6
PATHS = [f"pages/s{number}.tfrecord" for number in range(SHARDS)]
# A shard has 1.2 MB: several times a response's blocks, and several times the first range requested.
RECORDS = 300


async def write(storage: Storage, compression: Any) -> None:
    for number, path in enumerate(PATHS):
        records = [b"%d:%d:" % (number, at) + bytes([at % 251]) * 4000 for at in range(RECORDS)]
        await asyncrec.write_records(path, records, compression=compression, storage=storage)


@asynccontextmanager
async def interleave(storage: Storage) -> AsyncIterator[AsyncIterator[list[bytes]]]:
    async with asyncrec.interleave(PATHS, cycle_length=4, storage=storage) as stream:
        yield stream.batches(64)


@asynccontextmanager
async def interleave_sampler(storage: Storage) -> AsyncIterator[AsyncIterator[list[bytes]]]:
    async with asyncrec.InterleaveSampler(
        "pages", bytes, 2, 64, shards_per_cycle=4, num_repeat=1, seed=1, storage=storage
    ) as sampler:
        yield sampler


async def quiet(place: Place) -> None:
    """Wait until the store has no requests in progress."""
    with anyio.fail_after(5):
        while place.busy:  # noqa: ASYNC110  # another thread changes it
            await anyio.sleep(0.01)


@pytest.mark.parametrize("compression", ["", "GZIP"])
@pytest.mark.parametrize("opened", [interleave, interleave_sampler])
async def test_interleaved_shards_need_few_requests_in_local_order(place: Place, opened: Any, compression: str) -> None:
    near = MemoryStorage()
    await write(near, compression)
    async with opened(near) as batches:
        expected = [batch async for batch in batches]
    async with place.open() as storage:
        await write(storage, compression)
        place.calm()
        before = place.requests
        async with opened(storage) as batches:
            assert [batch async for batch in batches] == expected
        assert place.requests - before <= 3 * SHARDS
        await quiet(place)


async def test_abandoned_interleave_leaves_no_requests(place: Place) -> None:
    async with place.open() as storage:
        await write(storage, "")
        place.calm()
        async with asyncrec.interleave(PATHS, storage=storage) as stream:
            await anext(stream)
        with anyio.move_on_after(0.01):
            async with asyncrec.interleave(PATHS, storage=storage) as stream:
                async for _ in stream:
                    await anyio.sleep(0.001)
        await quiet(place)
        assert await asyncrec.read_records(PATHS[0], 1, storage=storage), "the storage is of use"
