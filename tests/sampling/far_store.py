"""A slow store in memory, as a stand-in for a remote one."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

import asyncrec
from asyncrec.storage._base import ByteSource
from asyncrec.storage._memory import MemoryStorage


class Wire(MemoryStorage):
    """A store with latency and limited bandwidth that counts the reads of shards."""

    read_ahead = 1 << 20
    latency = 0.0
    bytes_per_second = math.inf
    reads = 0
    given = 0
    open = most_open = 0

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
                self.given += len(block)
                await anyio.sleep(len(block) / self.bytes_per_second)
                return block

            source.receive = slowly
            self.open += 1
            self.most_open = max(self.most_open, self.open)
            try:
                yield source
            finally:
                self.open -= 1


async def forty_blocks(compression: str = "") -> Wire:
    """Write 8 shards of 1,000 records of 112 bytes each, and return their store.

    Blocks of 22,400 bytes contain 200 records each, or about that many if compressed with GZIP.
    """
    store = Wire()
    async with asyncrec.open_sharded_writer(
        "pages", max_shard_records=1000, storage=store, compression=compression, writer_id="w"
    ) as writer:
        await writer.write_many(b"%06d" % number + bytes(90) for number in range(8000))
    return store
