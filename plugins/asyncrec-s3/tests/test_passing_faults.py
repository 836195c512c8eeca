"""The plugin survives transient faults: each request fails once in every way, and objects still arrive intact."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest
from asyncrec_s3.storage import S3Storage
from s3_opening import Open
from s3_proxy import chaos
from s3_store import CHUNK

from asyncrec.storage._resuming_source import ResumingSource

pytestmark = pytest.mark.anyio

SMALL = random.Random(1).randbytes(1_000)
LARGE = random.Random(2).randbytes(CHUNK + 1_000)
# The ways in which one response may fail while the operation still succeeds.
PASSING = [
    "500", "slowdown", "reset", "stall", "500-after", "reset-after", "stall-after", "truncate", "etag", "200-error",
]  # fmt: skip


def nth_of_key(fault: str) -> Callable[[Any], str | None]:
    """Return a plan in which the n-th request for a key ending with ``-n`` fails."""
    return lambda request: fault if request.key and request.nth == int(request.key.rpartition("-")[2]) else None


@pytest.mark.slow(but=["reset-after", "200-error", "etag", "500"])
@pytest.mark.parametrize("fault", PASSING)
async def test_write_survives_one_transient_fault(open_impatient: Open, proxy: Any, whole: Any, fault: str) -> None:
    """Whichever response fails, and however it fails, the whole object is stored, and `published` says so."""
    published = {}

    async def write(storage: S3Storage, key: str, data: bytes) -> None:
        published[key] = await storage.put(key, data, exclusive=True)

    jobs = {"small-0": SMALL} | {f"large-{n}": LARGE for n in range(7)}
    async with open_impatient() as storage:
        proxy.plan = nth_of_key(fault)
        async with anyio.create_task_group() as group:
            for key, data in jobs.items():
                group.start_soon(write, storage, key, data)
        hit = {request.key.rpartition("/")[2] for request in proxy.requests if proxy.plan(request)}
        proxy.plan = lambda request: None
        for key, data in jobs.items():
            await whole(key, data)
            assert published[key].size == len(data)
            assert published[key].etag == (await storage.head(key)).etag
    # A store that rejects a repeated completion has proved that it honours the condition, which saves one look-up.
    assert hit >= set(jobs) - {"large-6"}


async def test_upload_sends_bounded_number_of_requests(open_impatient: Open, proxy: Any) -> None:
    """A small object takes one request, and a large one at most seven: the test above covers all of them."""
    async with open_impatient(read_timeout=60) as storage:
        await storage.put("first", SMALL, exclusive=True)
        await storage.put("small", SMALL, exclusive=True)
        await storage.put("large", LARGE, exclusive=True)
    keys = [request.key.rpartition("/")[2] for request in proxy.requests if request.key]
    assert keys.count("small") == 1
    assert keys.count("large") <= 7


@pytest.mark.slow(but=["reset", "truncate"])
@pytest.mark.parametrize("fault", ["500", "slowdown", "reset", "stall", "truncate", "etag"])
async def test_read_survives_one_transient_fault(
    open_impatient: Open, proxy: Any, store: Any, prefix: str, fault: str
) -> None:
    """Whichever response fails, the reader gets every byte once."""
    data = random.Random(3).randbytes(3 << 20)

    async def read(storage: S3Storage, key: str) -> None:
        got = []
        async with ResumingSource(storage, key, read_ahead=2 << 20) as source:
            while block := await source.receive(1 << 20):
                got.append(block)
        assert b"".join(got) == data

    for n in range(5):
        store.put(f"{prefix}/x-{n}", data)
    async with open_impatient(
        max_connections=3, max_concurrency=2
    ) as storage:  # too few for a source to keep one, so it requests ranges
        proxy.plan = nth_of_key(fault)
        async with anyio.create_task_group() as group:
            for n in range(5):
                group.start_soon(read, storage, f"x-{n}")
    hit = {request.key.rpartition("/")[2] for request in proxy.requests if proxy.plan(request)}
    # On a busy machine, other responses may also time out, and their requests are repeated.
    assert hit >= {f"x-{n}" for n in range(4)}


async def test_damaged_part_is_resent(open_impatient: Open, proxy: Any, whole: Any) -> None:
    """The store responds with BadDigest if a body does not match its checksum because it was damaged in transit."""
    hit: list[int] = []

    def plan(request: Any) -> None:
        if request.operation == "UploadPart" and not hit:
            hit.append(request.number)
            request.headers["Content-MD5"] = "AAAAAAAAAAAAAAAAAAAAAA=="

    async with open_impatient() as storage:
        proxy.plan = plan
        await storage.put("x", LARGE)
    assert len(proxy.refused) == 1
    proxy.refused.clear()
    await whole("x", LARGE)


@pytest.mark.slow
async def test_hundred_objects_survive_chaos(open_impatient: Open, proxy: Any, store: Any, prefix: str) -> None:
    """5% get a 5xx, 10% SlowDown, and some fail in other ways. No byte is wrong, missing or left over."""

    def content(n: int) -> bytes:
        return random.Random(n).randbytes(CHUNK + 100 if n % 50 == 0 else 1 + n * 100)

    done: list[int] = []

    async def work(storage: S3Storage, numbers: range) -> None:
        for n in numbers:
            info = await storage.put(f"{n:03}", content(n), exclusive=bool(n % 2))
            assert info.size == len(content(n))
            assert await storage.get(f"{n:03}") == content(n)
            done.append(n)

    async with open_impatient() as storage:
        proxy.plan = chaos(7)
        async with anyio.create_task_group() as group:
            for first in range(10):
                group.start_soon(work, storage, range(first, 100, 10))
        listed = [info.key async for info in storage.list_objects()]
    assert listed == [f"{n:03}" for n in range(100)]
    assert sorted(done) == list(range(100))
    proxy.plan = lambda request: None
    for n in range(0, 100, 10):
        assert await anyio.to_thread.run_sync(store.get, f"{prefix}/{n:03}") == content(n)
    assert await anyio.to_thread.run_sync(store.unfinished, prefix) == []
