"""A writer on S3 makes exactly the requests that `tests/scale` assumes when it estimates costs."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from places import Place, S3Place
from s3_proxy import Proxy

import asyncrec
from asyncrec import tools
from asyncrec.storage import Storage

sys.path.insert(0, str(Path(__file__).parents[1]))
from scale.paper import Crawl, Found, Requests, compaction, life, merging

pytestmark = pytest.mark.anyio

RECORDS = 23
# Three full shards of four parts each, and one shard of three parts.
CRAWL = Crawl(rate=1, record_bytes=20_000, shard_bytes=120_000, part_bytes=S3Place.chunk)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@asynccontextmanager
async def open_as_aws(place: Place) -> AsyncIterator[Storage]:
    """Open the store as if it were AWS, whose capabilities are known and need no probing requests."""
    async with place.open(read_timeout=60) as storage:
        known = storage.shared.bucket.known  # type: ignore[attr-defined]
        known._is_aws = known.crc32c = known.excludes_puts = known.excludes_parts = True
        yield storage


def taken(proxy: Proxy) -> Requests:
    asked = Counter(proxy.operations())
    proxy.requests.clear()
    return asked


async def write(storage: Storage, writer: str) -> None:
    # A writer that flushes also looks for silent writers, at random times in its first minute.
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, max_shard_bytes=CRAWL.shard_bytes, writer_id=writer, flush_seconds=None
    ) as opened:
        for number in range(RECORDS):
            await opened.write(bytes([number]) * (CRAWL.record_bytes - 16), key=f"{writer}/{number}")


@pytest.mark.parametrize("place", ["s3"], indirect=True)
async def test_writer_and_compaction_make_calculated_s3_requests(place: Place, s3_proxy: Proxy) -> None:
    s3_proxy.echoes = True
    async with open_as_aws(place) as storage:
        taken(s3_proxy)
        await write(storage, "first")
        assert taken(s3_proxy) == sum(life(CRAWL, RECORDS, Found()).values(), Requests())
        sizes = {info.key: info.size async for info in storage.list_objects("_manifest/pages/")}
        found = Found(listed=5, closings=(sizes[max(sizes)],))
        taken(s3_proxy)
        await write(storage, "second")
        assert taken(s3_proxy) == sum(life(CRAWL, RECORDS, found).values(), Requests())
        found = Found(listed=10, closings=found.closings * 2)
        await tools.compact("pages", storage=storage, manifest_only=True)
        runs = merging(CRAWL, [], 8, 2 * RECORDS)[1]
        assert taken(s3_proxy) == compaction(CRAWL, found, 400, 0, old=False, runs=runs)
