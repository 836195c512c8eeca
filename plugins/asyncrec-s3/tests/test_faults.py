"""Every request failed in turn, in every way: what was acknowledged is there, what was not is not, nothing dangles."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from asyncrec_s3.plugin import open_s3
from asyncrec_s3.storage import S3Storage
from s3_proxy import chaos
from s3_store import CHUNK, IMPATIENT, KIND

from asyncrec.errors import (
    IntegrityError,
    ObjectChangedError,
    ObjectExistsError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage._resuming_source import ResumingSource

pytestmark = pytest.mark.anyio

SMALL = random.Random(1).randbytes(1_000)
LARGE = random.Random(2).randbytes(CHUNK + 1_000)
# How one answer may go wrong, and yet the operation succeed.
PASSING = [
    "500",
    "slowdown",
    "reset",
    "stall",
    "500-after",
    "reset-after",
    "stall-after",
    "truncate",
    "etag",
    "200-error",
]

Open = Callable[..., AbstractAsyncContextManager[S3Storage]]


@pytest.fixture
def open_storage(store: Any, proxy: Any, prefix: str, small_parts: None) -> Open:
    @asynccontextmanager
    async def open_(**options: Any) -> AsyncIterator[S3Storage]:
        options = {"endpoint_url": proxy.endpoint, "chunk_size": CHUNK, "read_timeout": IMPATIENT} | options
        async with open_s3(f"s3://{store.bucket}/{prefix}", **options) as storage:
            assert isinstance(storage, S3Storage)
            yield storage

    return open_


@pytest.fixture
def whole(store: Any, prefix: str) -> Callable[..., Any]:
    """Looks past the plugin: the object holds this, and no upload is left."""

    async def look(key: str, data: bytes | None) -> None:
        assert await anyio.to_thread.run_sync(store.get, f"{prefix}/{key}") == data
        assert await anyio.to_thread.run_sync(store.unfinished, prefix) == []

    return look


def always(operation: str, fault: str) -> Callable[[Any], str | None]:
    return lambda request: fault if request.operation == operation else None


def nth_of_key(fault: str) -> Callable[[Any], str | None]:
    """The n-th request for the key that ends with ``-n`` goes wrong."""
    return lambda request: fault if request.key and request.nth == int(request.key.rpartition("-")[2]) else None


@pytest.mark.parametrize("fault", PASSING)
async def test_one_fault_in_writing_is_got_over(open_storage: Open, proxy: Any, whole: Any, fault: str) -> None:
    """Whichever answer goes wrong, and however: the object is there, whole, and `published` says so."""
    published = {}

    async def write(storage: S3Storage, key: str, data: bytes) -> None:
        published[key] = await storage.put(key, data, exclusive=True)

    jobs = {"small-0": SMALL} | {f"large-{n}": LARGE for n in range(7)}
    async with open_storage() as storage:
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
    # A store that refuses a repeated completion has shown that it honours the condition, and is looked at once less.
    assert hit >= set(jobs) - {"large-6"}


async def test_an_upload_sends_as_many_requests_as_are_failed_in_turn(open_storage: Open, proxy: Any) -> None:
    """One for a small object, seven at the most for a large one: the test above leaves none out."""
    async with open_storage(read_timeout=60) as storage:
        await storage.put("first", SMALL, exclusive=True)
        await storage.put("small", SMALL, exclusive=True)
        await storage.put("large", LARGE, exclusive=True)
    keys = [request.key.rpartition("/")[2] for request in proxy.requests if request.key]
    assert keys.count("small") == 1
    assert keys.count("large") <= 7


@pytest.mark.parametrize("fault", ["500", "slowdown", "reset", "stall", "truncate", "etag"])
async def test_one_fault_in_reading_is_got_over(
    open_storage: Open, proxy: Any, store: Any, prefix: str, fault: str
) -> None:
    """Whichever answer goes wrong, the reader gets every byte once."""
    data = random.Random(3).randbytes(3 << 20)

    async def read(storage: S3Storage, key: str) -> None:
        got = []
        async with ResumingSource(storage, key, read_ahead=2 << 20) as source:
            while block := await source.receive(1 << 20):
                got.append(block)
        assert b"".join(got) == data

    for n in range(5):
        store.put(f"{prefix}/x-{n}", data)
    async with open_storage() as storage:
        proxy.plan = nth_of_key(fault)
        async with anyio.create_task_group() as group:
            for n in range(5):
                group.start_soon(read, storage, f"x-{n}")
    hit = {request.key.rpartition("/")[2] for request in proxy.requests if proxy.plan(request)}
    # At least: on a busy machine an answer comes too late by itself now and then, and its request is sent once more.
    assert hit >= {f"x-{n}" for n in range(4)}


async def test_an_object_replaced_before_its_first_byte_by_one_of_another_size_is_changed(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """What was said of it on opening no longer holds: whoever counts on its size would read less than there is."""
    async with open_storage() as storage:
        await storage.put("x", SMALL)

        def plan(request: Any) -> None:
            if request.operation == "GetObject" and request.number < 5:
                store.put(f"{prefix}/x", SMALL + b"and more")

        async with storage.open_source("x") as source:
            proxy.plan = plan
            with pytest.raises(ObjectChangedError):
                await source.receive(len(SMALL))


@pytest.mark.parametrize("operation", ["CreateMultipartUpload", "UploadPart", "CompleteMultipartUpload", "PutObject"])
@pytest.mark.parametrize("fault", ["500", "403", "reset"])
async def test_a_fault_for_good_reaches_the_caller(
    open_storage: Open, proxy: Any, whole: Any, operation: str, fault: str
) -> None:
    """Nothing is published, nothing left, an older object untouched."""
    data = SMALL if operation == "PutObject" else LARGE
    async with open_storage() as storage:
        await storage.put("x", b"older")
        proxy.plan = always(operation, fault)
        expected = StoragePermissionError if fault == "403" else TransientStorageError
        with pytest.raises(expected, match="x"):
            await storage.put("x", data)
        await whole("x", b"older")


@pytest.mark.parametrize("operation", ["CompleteMultipartUpload", "PutObject"])
async def test_an_answer_that_never_comes_is_settled_by_looking(
    open_storage: Open, proxy: Any, whole: Any, operation: str
) -> None:
    """The effect takes place and every answer is lost: it was published, and is said to be."""
    data = SMALL if operation == "PutObject" else LARGE
    async with open_storage() as storage:
        proxy.plan = always(operation, "500-after")
        info = await storage.put("x", data, exclusive=True)
        assert info.size == len(data)
        await whole("x", data)


async def test_unknown_outcome_is_said_to_be_unknown(open_storage: Open, proxy: Any) -> None:
    """When even looking fails, the error says that the object may be there."""
    async with open_storage() as storage:
        proxy.plan = lambda request: {"PutObject": "500-after", "HeadObject": "500"}.get(request.operation)
        with pytest.raises(TransientStorageError) as caught:
            await storage.put("x", SMALL)
        assert any("unknown" in note for note in caught.value.__notes__)


async def test_acknowledged_but_absent_is_an_integrity_error(
    open_storage: Open, proxy: Any, store: Any, prefix: str
) -> None:
    """A store that completes an upload and does not have the object is not believed."""

    def plan(request: Any) -> None:
        if request.operation == "HeadObject" and "CompleteMultipartUpload" in proxy.operations():
            store.client.delete_object(Bucket=store.bucket, Key=f"{prefix}/x")

    async with open_storage() as storage:
        proxy.plan = plan
        with pytest.raises(IntegrityError, match="does not have it"):
            await storage.put("x", LARGE)


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["put", "upload"])
@pytest.mark.parametrize("fault", [None, "500-after", "reset-after"])
async def test_of_two_exclusive_writers_one_wins(
    open_storage: Open, proxy: Any, whole: Any, data: bytes, fault: str | None
) -> None:
    """Also where both write the same bytes and the answers to the last requests are lost."""
    outcomes: list[str] = []
    last = "PutObject" if data is SMALL else "CompleteMultipartUpload"
    seen = 0

    def plan(request: Any) -> str | None:
        nonlocal seen
        seen += request.operation == last
        return fault if request.operation == last and seen <= 2 else None

    async def write(storage: S3Storage) -> None:
        try:
            await storage.put("x", data, exclusive=True)
            outcomes.append("won")
        except ObjectExistsError:
            outcomes.append("lost")

    async with open_storage() as storage:
        proxy.plan = plan
        async with anyio.create_task_group() as group:
            group.start_soon(write, storage)
            group.start_soon(write, storage)
        assert sorted(outcomes) == ["lost", "won"]
        await whole("x", data)


# Cancellation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("when", ["stall", "stall-after"])
@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["put", "upload"])
async def test_cancelled_at_every_request_of_a_write(
    open_storage: Open, proxy: Any, whole: Any, monkeypatch: pytest.MonkeyPatch, when: str, data: bytes
) -> None:
    """The object is there and `published` is set, or there is nothing: no object, no upload, no connection in use."""
    monkeypatch.setattr("asyncrec_s3.upload._CLEAN_SECONDS", 1.0)
    token = anyio.lowlevel.current_token()
    number, reached = 0, True
    while reached:
        scope = anyio.CancelScope()
        proxy.reset()

        def plan(request: Any, number: int = number, scope: anyio.CancelScope = scope) -> str | None:
            if request.number != number:
                return None
            anyio.from_thread.run_sync(scope.cancel, token=token)
            return when

        proxy.plan = plan
        key = f"x-{number}"
        async with open_storage() as storage:
            sink = storage.open_sink(key)
            with scope:
                async with sink as opened:
                    view = memoryview(data)
                    while view:
                        size = opened.chunk_size
                        await opened.send([view[:size]])
                        view = view[size:]
            reached = len(proxy.requests) > number
            published = sink.published is not None  # type: ignore[attr-defined]  # the sink is its own context
            await whole(key, data if published else None)
            assert published or reached
            await until(lambda: proxy.in_flight == 0)
        await until(lambda: proxy.connections == 0)
        number += 1
    assert number > (1 if data is SMALL else 5)


@pytest.mark.parametrize("when", ["stall", "truncate"])
async def test_cancelled_at_every_request_of_a_read(open_storage: Open, proxy: Any, when: str) -> None:
    """No connection is left in use, and the same bytes can be received again."""
    token = anyio.lowlevel.current_token()
    async with open_storage() as storage:
        await storage.put("x", LARGE)
        for number in range(3):
            scope = anyio.CancelScope()
            proxy.reset()

            def plan(request: Any, number: int = number, scope: anyio.CancelScope = scope) -> str | None:
                if request.number != number:
                    return None
                anyio.from_thread.run_sync(scope.cancel, token=token)
                return when

            proxy.plan = plan
            got = b""
            with scope:
                async with storage.open_source("x") as source:
                    got += await source.receive(1_000)
                    got += await source.receive(LARGE.__len__())
            assert LARGE.startswith(got)
            await until(lambda: proxy.in_flight == 0)
        assert await storage.get("x") == LARGE
    await until(lambda: proxy.connections == 0)


async def until(condition: Callable[[], bool]) -> None:
    """The proxy is in another thread: it takes note of a closed connection a moment later."""
    with anyio.fail_after(5):
        while not condition():  # noqa: ASYNC110  # an event cannot be set from aiohttp's book-keeping
            await anyio.sleep(0.005)


# Chaos -------------------------------------------------------------------------------------------------------------


async def test_two_hundred_objects_through_chaos(open_storage: Open, proxy: Any, store: Any, prefix: str) -> None:
    """5% of 5xx, 10% of SlowDown, and everything else that goes wrong: no wrong byte, nothing missing, nothing left."""

    def content(n: int) -> bytes:
        return random.Random(n).randbytes(CHUNK + 100 if n % 50 == 0 else 1 + n * 100)

    done: list[int] = []

    async def work(storage: S3Storage, numbers: range) -> None:
        for n in numbers:
            info = await storage.put(f"{n:03}", content(n), exclusive=bool(n % 2))
            assert info.size == len(content(n))
            assert await storage.get(f"{n:03}") == content(n)
            done.append(n)

    async with open_storage() as storage:
        proxy.plan = chaos(7)
        async with anyio.create_task_group() as group:
            for first in range(10):
                group.start_soon(work, storage, range(first, 200, 10))
        listed = [info.key async for info in storage.list_objects()]
    assert listed == [f"{n:03}" for n in range(200)]
    assert sorted(done) == list(range(200))
    proxy.plan = lambda request: None
    for n in range(0, 200, 10):
        assert await anyio.to_thread.run_sync(store.get, f"{prefix}/{n:03}") == content(n)
    assert await anyio.to_thread.run_sync(store.unfinished, prefix) == []


async def test_a_damaged_part_is_sent_again(open_storage: Open, proxy: Any, whole: Any) -> None:
    """The store says BadDigest when a body does not have the checksum that came with it: damaged on its way."""
    hit: list[int] = []

    def plan(request: Any) -> None:
        if request.operation == "UploadPart" and not hit:
            hit.append(request.number)
            request.headers["Content-MD5"] = "AAAAAAAAAAAAAAAAAAAAAA=="

    async with open_storage() as storage:
        proxy.plan = plan
        await storage.put("x", LARGE)
    assert len(proxy.refused) == 1
    proxy.refused.clear()
    await whole("x", LARGE)


async def test_errors_of_a_missing_bucket_name_it(proxy: Any) -> None:
    """A bucket that is not there is a plain error, at once, for each operation."""
    async with open_s3("s3://no-such-bucket-here", endpoint_url=proxy.endpoint) as storage:
        operations: list[Callable[[str], Awaitable[object]]] = [storage.get, storage.head, storage.delete]
        if KIND != "seaweedfs":  # it makes a bucket for an administrator who writes into it
            operations.append(lambda key: storage.put(key, b"x"))
        for operation in operations:
            with pytest.raises(StorageError, match="no-such-bucket-here"):
                await operation("x")
        with pytest.raises(StorageError, match="no-such-bucket-here"):
            await anext(aiter(storage.list_objects()))
