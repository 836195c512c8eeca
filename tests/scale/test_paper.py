"""The requests that `paper` calculates are those of real writers, by kind, and `docs/scale.md` shows them."""

from __future__ import annotations

import math
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec._shards.manifest.names import manifest_prefix, segment_of
from asyncrec._shards.writing import checkpoints

from .paper import Crawl, Found, Prices, Requests, compaction, life, merging, the_day, watching
from .run import CHOICES, choice, costs, restart_of_all, summary
from .store import CountingBucket

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

SHOWN = (Path(__file__).parents[2] / "docs" / "scale.md").read_text("utf-8")
# Crawls with more than a million shards, which take seconds of processor time.
_LONG = [what for what, changes in CHOICES.items() if changes.get("shard_seconds") == 60.0]

NAME = "pages"


@pytest.fixture(autouse=True)
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the looks at random times for a checkpoint to make: each takes a list request that is not calculated."""
    monkeypatch.setattr(checkpoints, "DELAY_SECONDS", 1e12)


@dataclass(frozen=True)
class Check:
    """One step of a crawl, with its counted and its calculated requests."""

    what: str
    asked: Requests
    computed: Requests


async def check(crawl: Crawl, *, seconds: float) -> list[Check]:
    """Run all writers of a crawl three times for some seconds, with a merge of the manifest before the last time.

    The first writers find nothing, the second ones find closing segments, and the third ones a checkpoint.
    """
    store = CountingBucket(part_bytes=crawl.part_bytes)
    records = int(seconds * crawl.rate)
    steps: list[Check] = []
    for step in ("first", "again", "merged"):
        if step == "merged":
            found = _found(store, closings=True)
            before = store.requests.copy()
            await tools.compact(NAME, storage=store, manifest_only=True)
            shards = 2 * crawl.writers * math.ceil(records / crawl.records_a_shard)
            runs = merging(crawl, [], shards, 2 * crawl.writers * records)[1]
            computed = compaction(crawl, found, _found(store, closings=False).checkpoint, 0, old=False, runs=runs)
            steps.append(Check("compaction", store.requests - before, computed))
        found = _found(store, closings=step == "again")
        before = store.requests.copy()
        async with anyio.create_task_group() as group:
            for number in range(crawl.writers):
                group.start_soon(_write, store, crawl, f"{step}{number}", seconds)
        one = sum(life(crawl, records, found).values(), Requests())
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
        flush_seconds=None,
    ) as writer:
        began = anyio.current_time()
        for number in range(int(seconds * crawl.rate)):
            await anyio.sleep_until(began + number / crawl.rate)
            await writer.write(bytes(crawl.record_bytes - 16), key=f"{writer_id}/{number}")
        await anyio.sleep_until(began + seconds)


def _found(store: CountingBucket, *, closings: bool) -> Found:
    """Return what an opening writer finds; with ``closings``, no checkpoint covers the closing segments."""
    prefix = manifest_prefix(NAME)
    here = {key: size for key, size in store.sizes().items() if key.startswith(prefix)}
    last = {found[0]: size for key, size in sorted(here.items()) if (found := segment_of(key.removeprefix(prefix)))}
    return Found(
        listed=len(here),
        checkpoint=max((size for key, size in here.items() if key.endswith(".jsonl.gz")), default=0),
        closings=tuple(last.values()) if closings else (),
    )


async def test_writers_make_computed_number_of_requests() -> None:
    """Shards end by time and have several parts; writers open on nothing, on closing segments, and on a checkpoint."""
    crawl = Crawl(writers=10, rate=0.1, shard_seconds=61, part_bytes=32 << 10)
    steps = await check(crawl, seconds=321)
    assert [step.asked for step in steps] == [step.computed for step in steps]
    assert all(step.asked["UploadPart"] for step in steps if step.what != "compaction")


async def test_writers_of_full_shards_make_computed_requests() -> None:
    """Shards end by size, and take one request each."""
    crawl = Crawl(writers=3, rate=2, record_bytes=1000, shard_bytes=10_000)
    steps = await check(crawl, seconds=100)
    assert [step.asked for step in steps] == [step.computed for step in steps]


async def test_watch_makes_computed_number_of_requests() -> None:
    store = CountingBucket()
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(asyncrec.open_sharded_writer(NAME, storage=store))
        before = store.requests.copy()
        assert len((await tools.watch(NAME, storage=store)).writers) == 3
        assert store.requests - before == watching(3, 0)


def test_thousand_default_writers_cost_at_most_8_dollars_daily() -> None:
    assert Prices().of(the_day(Crawl()).total) <= 8


def test_tables_equal_computed_values() -> None:
    crawl, prices = Crawl(), Prices()
    assert summary(crawl, prices) in SHOWN
    assert costs(crawl, prices) in SHOWN
    assert restart_of_all(crawl) in SHOWN


@pytest.mark.slow
@pytest.mark.parametrize("what", [each for each in CHOICES if each not in _LONG or "ASYNCREC_LONG" in os.environ])
def test_table_row_equals_computed_row(what: str) -> None:
    assert f"| {' | '.join(choice(what, Crawl(), Prices()))} |" in SHOWN
