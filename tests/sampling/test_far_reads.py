"""The requests to a remote store before the first record, and the handling of records that arrive damaged."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.storage._base import ByteSource, ObjectInfo
from asyncrec.storage._memory import MemoryStorage
from tests.sampling.far_store import Wire, forty_blocks

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


class TellsSumsByHead(Wire):
    """Like S3, it returns an object's checksum only for a HEAD request, not for a range."""

    heads = 0

    async def head(self, key: str) -> ObjectInfo:
        self.heads += 1
        await anyio.sleep(self.latency)
        return await super().head(key)

    @asynccontextmanager
    async def _slow(self, opening: Any) -> AsyncIterator[ByteSource]:
        async with super()._slow(opening) as source:
            source.info = replace(source.info, crc32c=None)
            yield source


async def test_checksum_is_requested_while_index_is_read() -> None:
    store = TellsSumsByHead()
    async with asyncrec.open_sharded_writer("pages", storage=store, max_shard_records=1000, writer_id="w") as writer:
        await writer.write_many([b"%04d" % number * 25 for number in range(4000)])
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        store.heads, store.latency = 0, 1.0
        began = anyio.current_time()
        async with dataset.shuffled() as stream:
            found = [record async for record in stream]
        assert anyio.current_time() - began <= 2.5
    assert sorted(found) == [b"%04d" % number * 25 for number in range(4000)]
    assert store.heads == 4


class Damages(Wire):
    """Flips a bit in the first response for each shard."""

    answers = 0

    @asynccontextmanager
    async def _slow(self, opening: Any) -> AsyncIterator[ByteSource]:
        async with super()._slow(opening) as source:
            receive = source.receive

            async def damaged(max_bytes: int) -> bytes:
                block = bytearray(await receive(max_bytes))
                if self.answers > 0 and len(block) > 10_000:
                    self.answers -= 1
                    block[5000] ^= 1
                return bytes(block)

            source.receive = damaged  # type: ignore[method-assign]
            yield source


@pytest.mark.parametrize("answers", [1, 2])
async def test_neighbouring_records_damaged_in_transit_are_reread_once(answers: int) -> None:
    store = Damages()
    records = [b"%04d" % number * 25 for number in range(1000)]
    async with asyncrec.open_sharded_writer("pages", storage=store, writer_id="w") as writer:
        await writer.write_many(records)
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        await dataset.get(0)
        store.answers, store.reads = answers, 0
        if answers == 1:
            assert await dataset.get_many(range(1000)) == records
        else:
            with pytest.raises(asyncrec.CorruptRecordError, match="record 43") as caught:
                await dataset.get_many(range(1000))
            assert "both of two reads were damaged, so the stored object itself is damaged" in caught.value.__notes__
        assert store.reads == 2


async def test_cost_of_global_order_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    far = await forty_blocks()
    near = MemoryStorage()
    async for info in far.list_objects():
        await near.put(info.key, await far.get(info.key))
    for store, mode, lines in ((far, "global", 1), (far, "block", 0), (near, "global", 0)):
        caplog.clear()
        async with (
            asyncrec.open_dataset("pages", storage=store) as dataset,
            dataset.shuffled(mode=mode, num_repeat=2) as stream,
        ):
            assert len([batch async for batch in stream.batches(1000)]) == 16
        told = [record for record in caplog.records if "makes a separate request" in record.message]
        assert [vars(line)["records"] for line in told] == [8000] * lines


async def test_64_tasks_read_64_small_records_concurrently() -> None:
    store = await forty_blocks()
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        await dataset.get_many(range(0, 8000, 1000))  # to load the indexes
        store.latency, store.most_open = 1.0, 0
        began = anyio.current_time()
        async with anyio.create_task_group() as tasks:
            for number in range(0, 6400, 100):
                tasks.start_soon(dataset.get, number)
        assert anyio.current_time() - began <= 1.5


async def test_first_record_reads_only_first_window() -> None:
    """The window has 3.5 blocks; a block that crosses its end is read completely."""
    store = await forty_blocks()
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        store.bytes_per_second = 1e6
        async with dataset.shuffled(seed=5, block_bytes=22_400, buffer_size=700) as stream:
            store.given = 0
            await anext(stream)
            given = store.given
        indexes = sum([info.size async for info in store.list_objects("_index/")])
        assert 3 * 22_400 < given <= 4 * 22_400 + indexes


async def test_classes_of_eight_shards_are_read_concurrently() -> None:
    store = TellsSumsByHead()
    async with asyncrec.open_sharded_writer("pages", storage=store, max_shard_records=100, writer_id="w") as writer:
        await writer.write_many([b"%04d" % (number % 7) for number in range(800)])
    async with asyncrec.open_dataset("pages", storage=store) as dataset:
        sampler = asyncrec.ClassBalancedSampler(dataset, 2, 2, class_fn=bytes)
        store.latency = 1.0  # each shard is looked up with this latency, too, while its records arrive
        began = anyio.current_time()
        async with sampler:
            assert anyio.current_time() - began <= 2.5
