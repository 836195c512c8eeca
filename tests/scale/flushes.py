"""The requests that a writer without a disk makes in order to flush, counted on a virtual clock."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio

import asyncrec
from asyncrec.storage import ByteSink
from asyncrec.testing import virtual_backend

from .paper import Prices, Requests
from .store import CountingBucket

SECONDS_A_MONTH = 730 * 3600
RATES = (10_000, 100_000)
SECONDS = (1.0, 5.0, 30.0, 300.0)
RECORDS_A_SECOND = 5


class FlushedTo(CountingBucket):
    """A bucket that counts the requests for flush logs in `flushes`, and the bytes sent for all objects in `sent`."""

    def __init__(self) -> None:
        super().__init__()
        self.flushes = Requests()
        self.sent = 0

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            yield sink
        assert sink.published is not None
        self.sent += sink.published.size
        self.flushes["PutObject"] += key.startswith("_flush/")

    async def delete(self, key: str) -> None:
        self.flushes["DeleteObject"] += key.startswith("_flush/")
        await super().delete(key)


@dataclass(frozen=True, kw_only=True)
class Flushed:
    """The requests for a writer's flush log, and the bytes sent as a multiple of the bytes of its records."""

    requests: Requests
    times: float


async def crawl(rate: int, *, seconds: float, **options: Any) -> Flushed:
    """Write at a rate in bytes per second, for some seconds, with five records per second."""
    store = FlushedTo()
    records, size = int(seconds * RECORDS_A_SECOND), rate // RECORDS_A_SECOND
    record = random.Random(size).randbytes(size)
    async with asyncrec.open_sharded_writer("pages", storage=store, **options) as writer:
        began = anyio.current_time()
        for number in range(records):
            await anyio.sleep_until(began + number / RECORDS_A_SECOND)
            await writer.write(record)
        await anyio.sleep_until(began + seconds)
    return Flushed(requests=store.flushes, times=store.sent / (records * size))


async def row(rate: int, flush_seconds: float, prices: Prices) -> list[str]:
    """Return a row of the table: a month's requests, extrapolated from half an hour or from 40 flushes."""
    seconds = max(1800.0, 40 * flush_seconds)
    found = await crawl(rate, seconds=seconds, flush_seconds=flush_seconds)
    month = Requests({kind: round(count * SECONDS_A_MONTH / seconds) for kind, count in found.requests.items()})
    dollars = prices.of(month)
    return [
        f"{rate // 1000} kB/s",
        f"{flush_seconds:g} s",
        f"{month['PutObject']:,}",
        f"{month['DeleteObject']:,}",
        f"{dollars:,.2f}",
        f"{1000 * dollars:,.0f}",
        f"{found.times:.2f}",
    ]


HEAD = ["a writer takes", "`flush_seconds`", "writes a month", "deletions", "$ a month", "$ of 1,000 writers", "sent"]
CASES = [(rate, seconds) for rate in RATES for seconds in SECONDS]


def flushing(rate: int, flush_seconds: float, prices: Prices) -> list[str]:
    """Compute `row` on an event loop of its own."""
    name, options = virtual_backend("asyncio")
    return anyio.run(row, rate, flush_seconds, prices, backend=name, backend_options=options)
