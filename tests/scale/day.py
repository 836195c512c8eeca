"""A day of a crawl, simulated: the code that begins, commits, ends and compacts, on a clock that jumps.

Each writer is a job (`asyncrec._shards.writing.open_job`), as a sharded writer's is. Instead of making a shard it asks
the store for what one takes, a part whenever one would be full, and commits an entry of it. What it says of itself is
as long as a status is, and says nothing.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from unittest.mock import patch

import anyio

import asyncrec
from asyncrec import tools
from asyncrec._framing.compression import CompressionOptions
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.manifest.names import index_key, keys_key, status_key
from asyncrec._shards.manifest.segment import ShardEntry, Sidecar
from asyncrec._shards.writing import open_job as opening
from asyncrec._shards.writing.job import Job
from asyncrec.storage import _retry

from .paper import KEY, LINE, Crawl, Life, lives
from .requests import Requests, is_write
from .store import EPOCH, BucketOfOnePrefix

__all__ = ["Simulated", "simulate"]

NAME = "pages"
_STATUS = bytes(700)


@dataclass(kw_only=True)
class Simulated:
    """What became of a simulated crawl.

    Attributes:
        store: that it wrote to.
        requests: of the crawl that were answered, by kind.
        reader: those of who opened the data set at its end.
        slowest_opening: seconds, of a writer.
        slowest_commit: seconds, from the last part of a shard to its commit.
        shards, records: that a reader finds at the end.
        committed: records that were.
        most_listed: objects in the folder of the manifest.
        real_seconds: that it took.
    """

    store: BucketOfOnePrefix
    requests: Requests
    reader: Requests
    slowest_opening: float
    slowest_commit: float
    shards: int
    records: int
    committed: int
    most_listed: int
    real_seconds: float


class _Crawl:
    def __init__(self, crawl: Crawl, limits: dict[str, float]) -> None:
        self.crawl = crawl
        self.draw = Random(1)  # checksums, which are what a checkpoint cannot make smaller
        self.slowest_opening = self.slowest_commit = 0.0
        self.committed = self.most_listed = 0

        def seconds(kind: str) -> float:
            if kind == "ListObjectsV2":
                return crawl.list_seconds
            return crawl.put_seconds if is_write(kind) else crawl.read_seconds

        self.store = BucketOfOnePrefix(part_bytes=crawl.part_bytes, seconds=seconds, **limits)

    async def write(self, all_lives: list[Life]) -> None:
        """One process after another, on one machine: each opens when the one before has ended."""
        for number, life in enumerate(all_lives):
            await anyio.sleep_until(life.begin)
            header = JobHeader(
                kind="rolling",
                name=NAME,
                writer=f"w{life.writer:05d}r{number}",
                url=f"{self.store.root}/{NAME}",
                key=NAME,
                compression=CompressionOptions(),
                metadata={},
            )
            began = anyio.current_time()
            async with opening.open_job(self.store, header, path=header.url, mode="append") as job:
                self.slowest_opening = max(self.slowest_opening, anyio.current_time() - began)
                async with anyio.create_task_group() as group:
                    group.start_soon(self._say, status_key(NAME, header.writer))
                    await self._shards(job, life)
                    group.cancel_scope.cancel()
                await job.commit()

    async def _say(self, key: str) -> None:
        while self.crawl.status_seconds:
            await self.store.ask("PutObject", key, at=anyio.current_time() + self.crawl.status_seconds)
            self.store.add(key, _STATUS, exclusive=False)

    async def _shards(self, job: Job, life: Life) -> None:
        begin, left, number = anyio.current_time(), life.records, 0
        while left:
            records = min(left, self.crawl.records_a_shard)
            left -= records
            end = min(life.end, begin + self.crawl.commit_seconds)
            await self._shard(job, number, records, begin, end)
            begin, number = end, number + 1
        await anyio.sleep_until(life.end)

    async def _shard(self, job: Job, number: int, records: int, begin: float, end: float) -> None:
        """Ask for what a shard takes, and commit it; a part is sent when it is full, and the rest at the end."""
        crawl, ask = self.crawl, self.store.ask
        name, size = job.shard_name(number), records * crawl.record_bytes
        full = size // crawl.part_bytes
        for part in range(full):
            due = begin + (part + 1) * crawl.part_bytes / (crawl.rate * crawl.record_bytes)
            if part == 0:
                await ask("HeadObject", name, at=due)
                await ask("CreateMultipartUpload", name)
            await ask("UploadPart", name, at=due)
        await anyio.sleep_until(end)
        for sidecar in (LINE * records, KEY * records):
            assert sidecar < crawl.part_bytes, "shards of so many records are not simulated"
            await ask("PutObject", name)
        if full:
            if size % crawl.part_bytes:
                await ask("UploadPart", name)
            await ask("CompleteMultipartUpload", name)
            await ask("HeadObject", name)
        else:
            await ask("PutObject", name)
        at, draw = job.manifest.clock.wall_time(begin), self.draw.getrandbits
        entry = ShardEntry(
            path=name,
            records=records,
            bytes=size,
            crc32c=draw(32),
            compression="",
            index=Sidecar(path=index_key(name), bytes=LINE * records, crc32c=draw(32)),
            keys=Sidecar(path=keys_key(name), bytes=KEY * records, crc32c=draw(32)),
            first=at,
            last=job.manifest.clock.wall_time(end),
            committed=job.manifest.clock.now(),
        )
        await job.manifest.commit(entry)
        self.committed += records
        self.slowest_commit = max(self.slowest_commit, anyio.current_time() - end)

    async def compact(self) -> None:
        """Merge the manifest at every full hour, or what there is for one."""
        due = self.crawl.compact_seconds
        while due and due < self.crawl.seconds:
            await anyio.sleep_until(due)
            print(f"{due / 3600:.0f} hours, {self.store.requests.total():,} requests", file=sys.stderr, flush=True)
            self.most_listed = max(self.most_listed, sum(key.startswith("_manifest/") for key in self.store.sizes()))
            if self.committed:
                await tools.compact(NAME, storage=self.store)
            due += self.crawl.compact_seconds


async def simulate(crawl: Crawl, **limits: float) -> Simulated:
    """Run a crawl; on a virtual clock (`asyncrec.testing.virtual_backend`). ``limits`` are those of the store."""
    began = time.perf_counter()
    run = _Crawl(crawl, limits)
    by_writer: dict[int, list[Life]] = {}
    for life in lives(crawl):
        by_writer.setdefault(life.writer, []).append(life)
    with _virtual_times():
        async with anyio.create_task_group() as group:
            group.start_soon(run.compact)
            for each in by_writer.values():
                group.start_soon(run.write, each)
        requests = run.store.requests.copy()
        async with asyncrec.open_dataset(NAME, storage=run.store) as dataset:
            shards, records = len(dataset.manifest.shards), len(dataset)
    return Simulated(
        store=run.store,
        requests=requests,
        reader=run.store.requests - requests,
        slowest_opening=run.slowest_opening,
        slowest_commit=run.slowest_commit,
        shards=shards,
        records=records,
        committed=run.committed,
        most_listed=run.most_listed,
        real_seconds=time.perf_counter() - began,
    )


@contextmanager
def _virtual_times() -> Iterator[None]:
    """Have the machine's clock follow the loop's, retries drawn from a seed, and no lock file for each writer."""
    clock = asyncio.get_running_loop().time
    _retry._jitter.seed(1)
    with patch("time.time", lambda: EPOCH + clock()), patch.object(opening, "_begin_life", lambda: None):
        yield
