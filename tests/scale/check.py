"""Real writers, counted: what `paper` says is held to what `asyncrec.open_sharded_writer` asks of a store."""

from __future__ import annotations

import math
from dataclasses import dataclass

import anyio

import asyncrec
from asyncrec import tools
from asyncrec._shards.manifest.names import CLOSED, is_segment, manifest_prefix

from .paper import Crawl, Found, Requests, compaction, life, merging
from .store import CountingBucket

NAME = "pages"


@dataclass(frozen=True)
class Check:
    """One step of a crawl, as it was counted and as it was computed."""

    what: str
    asked: Requests
    computed: Requests


async def check(crawl: Crawl, *, seconds: float) -> list[Check]:
    """Have all writers of a crawl write three times for so many seconds, and merge their manifest before the last.

    The first find nothing, the second what those before have closed, the third a checkpoint.
    """
    store = CountingBucket(part_bytes=crawl.part_bytes)
    records = int(seconds * crawl.rate)
    steps: list[Check] = []
    for step in ("first", "again", "merged"):
        if step == "merged":
            found = _found(store, closings=True)
            before = store.requests.copy()
            await tools.compact(NAME, storage=store)
            shards = 2 * crawl.writers * math.ceil(records / crawl.records_a_shard)
            runs = merging(crawl, [], shards, 2 * crawl.writers * records)[1]
            size = _found(store, closings=False).checkpoint
            computed = compaction(crawl, found, size, 0, old=False, runs=runs)
            steps.append(Check("compaction", store.requests - before, computed))
        found = _found(store, closings=step == "again")
        before = store.requests.copy()
        async with anyio.create_task_group() as group:
            for number in range(crawl.writers):
                group.start_soon(_write, store, crawl, f"{step}{number}", seconds)
        one = sum(life(crawl, records, seconds, found).values(), Requests())
        computed = Requests({kind: crawl.writers * count for kind, count in one.items()})
        steps.append(Check(f"writers, {step}", store.requests - before, computed))
    return steps


async def _write(store: CountingBucket, crawl: Crawl, writer_id: str, seconds: float) -> None:
    async with asyncrec.open_sharded_writer(
        NAME,
        storage=store,
        writer_id=writer_id,
        max_shard_bytes=crawl.shard_bytes,
        max_shard_seconds=crawl.shard_seconds or None,
        status_seconds=crawl.status_seconds or None,
    ) as writer:
        began = anyio.current_time()
        for number in range(int(seconds * crawl.rate)):
            await anyio.sleep_until(began + number / crawl.rate)
            await writer.write(bytes(crawl.record_bytes - 16), key=f"{writer_id}/{number}")
        await anyio.sleep_until(began + seconds)


def _found(store: CountingBucket, *, closings: bool) -> Found:
    """What is there for whoever opens; with ``closings``, those are read, and else a checkpoint covers them."""
    here = {key: size for key, size in store.sizes().items() if key.startswith(manifest_prefix(NAME))}
    return Found(
        listed=len(here),
        checkpoint=max((size for key, size in here.items() if key.endswith(".columns")), default=0),
        closings=tuple(size for key, size in here.items() if closings and is_segment(key) and f"{CLOSED}." in key),
    )
