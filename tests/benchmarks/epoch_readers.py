"""The readers that `epoch` compares: all ways to read a data set in a store with asyncrec, aiobotocore and obstore."""

from __future__ import annotations

import asyncio
import json
import random
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from harness import MIB, _reset_peak, _status
from s3 import CREDENTIALS, plain, rust
from wire import endpoint

AT_ONCE = 16  # long GETs
TASKS, SMALL = 64, 4096  # concurrent small reads, and their total number
BATCH = 256
PIECE = MIB
FRAME = 16  # per record
UNCHECKED = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}


@dataclass
class Shards:
    """A reader's input: the data set's folder in the bucket, and its shards; ``size`` is the size of a record."""

    folder: str
    keys: list[str]
    size: int
    compressed: bool
    records: int
    bytes: int


Reader = Callable[["Shards", "Meter"], Awaitable[None]]


class Meter:
    """Counts a reader's output between `start` and `stop`, and its requests before the first batch."""

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.figures: dict[str, Any] = {}

    def start(self) -> None:
        ask("reset")
        _reset_peak()
        self._rss = _status("VmRSS")
        self._cpu = time.process_time()
        self._began = time.perf_counter()

    def took(self, records: int, size: int) -> None:
        if not self.bytes:
            self.figures["first"] = time.perf_counter() - self._began
            self.figures["depth"] = ask("counts")["depth"]
        self.records += records
        self.bytes += size

    def batch(self, records: list[bytes]) -> None:
        self.took(len(records), sum(map(len, records)))

    def stop(self) -> None:
        self.figures["seconds"] = time.perf_counter() - self._began
        self.figures["cpu"] = time.process_time() - self._cpu
        self.figures["peak"] = max(_status("VmHWM") - self._rss, 0)
        self.figures |= {
            "records": self.records,
            "bytes": self.bytes,
            **{name: value for name, value in ask("counts").items() if name != "depth"},
        }


def ask(what: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{endpoint()}/?{what}") as answer:
        counts: dict[str, Any] = json.load(answer)
    return counts


# aiobotocore and obstore ----------------------------------------------------------------------------------------------


def inflated(shards: Shards) -> Callable[[bytes], Awaitable[int]]:
    """Return a function that counts the bytes of a piece of a shard; a GZIP shard's are inflated in a thread."""
    if not shards.compressed:

        async def count(piece: bytes) -> int:
            return len(piece)

        return count
    from isal import isal_zlib

    inflating = isal_zlib.decompressobj(31)

    def inflate(piece: bytes) -> int:
        nonlocal inflating
        size = 0
        while piece:
            size += len(inflating.decompress(piece))
            piece = inflating.unused_data
            if inflating.eof:
                inflating = isal_zlib.decompressobj(31)
        return size

    async def inflate_in_thread(piece: bytes) -> int:
        return await asyncio.to_thread(inflate, piece)

    return inflate_in_thread


async def at_once(count: int, jobs: list[Callable[[], Awaitable[None]]]) -> None:
    room = asyncio.Semaphore(count)

    async def one(job: Callable[[], Awaitable[None]]) -> None:
        async with room:
            await job()

    async with asyncio.TaskGroup() as tasks:
        for job in jobs:
            tasks.create_task(one(job))


def aiobotocore(gets: int) -> Reader:
    async def read(shards: Shards, meter: Meter) -> None:
        async with plain(max_pool_connections=AT_ONCE, **UNCHECKED) as client:
            await client.head_object(Bucket="bench", Key=shards.keys[0])

            async def shard(key: str) -> None:
                count = inflated(shards)
                answer = await client.get_object(Bucket="bench", Key=key)
                async with answer["Body"] as body:
                    while piece := await body.read(PIECE):
                        meter.took(0, await count(piece))

            meter.start()
            await at_once(gets, [partial(shard, key) for key in shards.keys])
            meter.stop()

    return read


async def aiobotocore_small(shards: Shards, meter: Meter) -> None:
    async with plain(max_pool_connections=TASKS, **UNCHECKED) as client:
        await client.head_object(Bucket="bench", Key=shards.keys[0])

        async def record(number: int) -> None:
            shard, at = divmod(number, shards.records // len(shards.keys))
            start = at * (shards.size + FRAME) + 12
            wanted = f"bytes={start}-{start + shards.size - 1}"
            answer = await client.get_object(Bucket="bench", Key=shards.keys[shard], Range=wanted)
            async with answer["Body"] as body:
                meter.batch([await body.read()])

        meter.start()
        await at_once(TASKS, [partial(record, number) for number in chosen(shards)])
        meter.stop()


async def obstore(shards: Shards, meter: Meter) -> None:
    import obstore

    async with rust() as store:
        await obstore.head_async(store, shards.keys[0])

        async def shard(key: str) -> None:
            count = inflated(shards)
            answer = await obstore.get_async(store, key)
            async for piece in answer.stream(min_chunk_size=PIECE):
                meter.took(0, await count(bytes(piece) if shards.compressed else piece))

        meter.start()
        await at_once(AT_ONCE, [partial(shard, key) for key in shards.keys])
        meter.stop()


# asyncrec -------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def ours(shards: Shards) -> AsyncIterator[Any]:
    """Open a storage with default options that has sent one request."""
    import asyncrec

    async with asyncrec.open_storage(
        "s3://bench", endpoint_url=endpoint(), region="us-east-1", **CREDENTIALS
    ) as storage:
        await storage.head(shards.keys[0])
        yield storage


async def open_reader(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:

        async def shard(key: str) -> None:
            async with asyncrec.open_reader(key, storage=storage) as reader:
                async for records in reader.batches():
                    meter.batch(records)

        meter.start()
        await at_once(AT_ONCE, [partial(shard, key) for key in shards.keys])
        meter.stop()


async def interleave(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:
        meter.start()
        async with asyncrec.interleave(shards.keys, storage=storage) as stream:
            async for records in stream.batches(BATCH):
                meter.batch(records)
        meter.stop()


async def interleave_sampler(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:
        meter.start()
        async with asyncrec.InterleaveSampler(
            shards.folder, bytes, 4, BATCH, shards_per_cycle=16, num_repeat=1, seed=1, storage=storage
        ) as sampler:
            async for records in sampler:
                meter.batch(records)
        meter.stop()


async def shuffled(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage:
        meter.start()
        async with (
            asyncrec.open_dataset(f"{shards.folder}/pages", storage=storage) as dataset,
            dataset.shuffled(seed=1) as stream,
        ):
            async for records in stream.batches(BATCH):
                meter.batch(records)
        meter.stop()


def balanced(*, entering: bool) -> Reader:
    """Return a reader with `ClassBalancedSampler`, which either enters the sampler or takes batches from it."""

    async def read(shards: Shards, meter: Meter) -> None:
        import asyncrec

        async with ours(shards) as storage, asyncrec.open_dataset(f"{shards.folder}/pages", storage=storage) as dataset:
            sampler = asyncrec.ClassBalancedSampler(dataset, 8, 32, class_fn=class_of, seed=1)
            if entering:
                meter.start()
            async with sampler:
                if entering:
                    meter.took(shards.records, shards.records * shards.size)
                    meter.stop()
                    return
                meter.start()
                async for records in sampler:
                    meter.batch(records)
                    if meter.records >= SMALL:
                        break
                meter.stop()

    return read


def class_of(record: bytes) -> int:
    return record[0] % 8


async def ours_small(shards: Shards, meter: Meter) -> None:
    import asyncrec

    async with ours(shards) as storage, asyncrec.open_dataset(f"{shards.folder}/pages", storage=storage) as dataset:
        await dataset.get(0)

        async def record(number: int) -> None:
            meter.batch([await dataset.get(number)])

        meter.start()
        await at_once(TASKS, [partial(record, number) for number in chosen(shards)])
        meter.stop()


def chosen(shards: Shards) -> list[int]:
    source = random.Random(1)
    return [source.randrange(shards.records) for _ in range(SMALL)]


EPOCH, SMALL_READS = "aiobotocore, 16 long GETs", "aiobotocore, 64 small GETs"
# The readers by name, each with the reader that it is compared with.
READERS: dict[str, tuple[Reader, str]] = {
    EPOCH: (aiobotocore(AT_ONCE), EPOCH),
    "aiobotocore, one at a time": (aiobotocore(1), EPOCH),
    "obstore, 16 streams": (obstore, EPOCH),
    "open_reader, 16": (open_reader, EPOCH),
    "interleave": (interleave, EPOCH),
    "InterleaveSampler": (interleave_sampler, EPOCH),
    "shuffled": (shuffled, EPOCH),
    "ClassBalancedSampler, entering": (balanced(entering=True), EPOCH),
    SMALL_READS: (aiobotocore_small, SMALL_READS),
    "Dataset.get, 64": (ours_small, SMALL_READS),
    "ClassBalancedSampler, 4,096": (balanced(entering=False), SMALL_READS),
}
