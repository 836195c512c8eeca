"""Reading and listing while requests fail."""

from __future__ import annotations

import anyio
import pytest
from aiohttp import web
from fake_gcs import UNIT, FakeGcs, Fault, nth
from opening import open_quick

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, StorageError, TransientStorageError
from asyncrec.storage._chunk_writer import ResumingSource
from asyncrec.testing._checks import content, receive_all

pytestmark = pytest.mark.anyio

DATA = content(5 * UNIT + 77)


async def test_receive_sends_one_range_request_for_one_generation(gcs: FakeGcs) -> None:
    found = gcs.put("key", DATA)
    async with open_quick() as storage:
        known = await storage.head("key")
        assert known.etag == str(found.generation)
        async with storage.open_source("key", start=10, end=UNIT + 10, info=known) as source:
            assert await receive_all(source, UNIT // 2) == DATA[10 : UNIT + 10]
    assert gcs.log == ["meta", "read", "read"]
    assert [headers["Range"] for headers in gcs.seen[1:]] == [
        f"bytes=10-{UNIT // 2 + 9}",
        f"bytes={UNIT // 2 + 10}-{UNIT + 9}",
    ]


@pytest.mark.slow
async def test_thousand_idle_sources_hold_no_connection(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage:
        sources = [storage.open_source("key", start=n) for n in range(1_000)]
        async with anyio.create_task_group() as group:
            for opening in sources:
                group.start_soon(opening.__aenter__)
        gcs.wait_until_idle()
        limiter = anyio.CapacityLimiter(8)
        for opening in sources[:50]:
            async with limiter:
                await opening.receive(10)  # type: ignore[attr-defined]  # it is its own context
        gcs.wait_until_idle()
        for opening in sources:
            await opening.__aexit__(None, None, None)


@pytest.mark.parametrize("how", ["status", "status-after", "reset", "reset-after", "truncate"])
async def test_receive_fault_is_transient_and_keeps_position(gcs: FakeGcs, how: str) -> None:
    """The core resumes at the current position; the plugin retries nothing below it."""
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key", info=await storage.head("key")) as source:
        first = await source.receive(1_000)
        gcs.plan = lambda kind, n: Fault(how)  # aiohttp repeats a GET once if its connection broke
        with pytest.raises(TransientStorageError, match="gs://bucket/key"):
            await source.receive(len(DATA))
        gcs.plan = lambda kind, n: None
        assert first + await receive_all(source) == DATA


@pytest.mark.parametrize("how", ["status", "status-after", "reset", "reset-after", "truncate"])
async def test_reads_listing_and_deletion_survive_one_failed_request(gcs: FakeGcs, how: str) -> None:
    for k in range(1, 12):
        gcs.reset()
        gcs.page_size = 2
        for n in range(5):
            gcs.put(f"k/{n}", DATA)
        gcs.plan = nth(k, Fault(how))
        async with open_quick() as storage:
            assert [info.key async for info in storage.list_objects("k/")] == [f"k/{n}" for n in range(5)]
            assert (await storage.head("k/0")).size == len(DATA)
            async with ResumingSource(storage, "k/1", read_ahead=4 * UNIT) as source:
                assert await receive_all(source) == DATA
            await storage.delete("k/2")
        assert ("bucket", "k/2") not in gcs.objects


async def test_error_carries_retry_after_of_store(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key", info=await storage.head("key")) as source:
        gcs.plan = lambda kind, n: Fault("status", 429, {"Retry-After": "7"})
        with pytest.raises(TransientStorageError) as raised:
            await source.receive(10)
    assert raised.value.retry_after == 7.0


async def test_vanished_or_shrunken_object_raises_object_changed(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key", info=await storage.head("key")) as source:
        gcs.objects.clear()
        with pytest.raises(ObjectChangedError):
            await source.receive(10)
        gcs.plan = lambda kind, n: Fault("status", 416)
        with pytest.raises(ObjectChangedError):
            await source.receive(10)


async def test_missing_bucket_raises_rather_than_listing_as_empty(gcs: FakeGcs) -> None:
    async with open_quick("gs://missing") as storage:
        with pytest.raises(ObjectNotFoundError, match="bucket does not exist"):
            [info async for info in storage.list_objects()]
        with pytest.raises(ObjectNotFoundError):
            await storage.head("key")
        await storage.delete("key")


async def test_foreign_page_raises_storage_error(gcs: FakeGcs) -> None:
    """For example, a proxy returns its own page with status 200."""
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key", info=await storage.head("key")) as source:
        gcs.plan = lambda kind, n: Fault("page")
        with pytest.raises(StorageError, match="not JSON"):
            await storage.head("key")
        with pytest.raises(StorageError, match="not JSON"):
            [info async for info in storage.list_objects()]
        with pytest.raises(StorageError, match="instead"):
            await source.receive(UNIT)
        with pytest.raises(StorageError, match="did not send its URL"):
            async with storage.open_sink("other"):
                raise AssertionError("opened")


async def test_cancelled_receive_leaves_no_request_running(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key", info=await storage.head("key")) as source:
        gcs.plan = nth(1, Fault("stall"), "read")
        async with anyio.create_task_group() as group:

            async def cancel_when_reached() -> None:
                await anyio.to_thread.run_sync(gcs.reached.wait)
                group.cancel_scope.cancel()

            group.start_soon(cancel_when_reached)
            await source.receive(UNIT)
        await anyio.to_thread.run_sync(gcs.wait_until_idle)
        assert await receive_all(source) == DATA


@pytest.mark.parametrize("how", ["status", "status-after", "reset-after", "truncate"])
async def test_get_retries_after_single_fault(gcs: FakeGcs, how: str) -> None:
    """Manifests are read this way."""
    gcs.put("key", DATA)
    async with open_quick() as storage:
        gcs.plan = nth(1, Fault(how), "read")
        assert await storage.get("key") == DATA


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, None, DATA), (10, UNIT, DATA[10:UNIT]), (10, 10, b""), (10, 5, b""), (len(DATA), None, b""),
     (len(DATA) + 5, None, b""), (UNIT, 10 * UNIT, DATA[UNIT:])],
)  # fmt: skip
async def test_range_is_clipped_to_object(gcs: FakeGcs, start: int, end: int | None, expected: bytes) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage, storage.open_source("key", start=start, end=end) as source:
        assert await receive_all(source) == expected
    assert gcs.counts["read"] == (end is None or end > start)
    assert gcs.counts["meta"] == (not expected), "an answer without bytes does not say what it is of"


async def test_source_looks_up_generation_missing_from_response(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gcs.put("key", DATA)
    read = gcs._read

    def silent(request: web.BaseRequest, found: object) -> web.Response:
        answer = read(request, found)  # type: ignore[arg-type]
        answer.headers.pop("X-Goog-Generation", None)
        return answer

    monkeypatch.setattr(gcs, "_read", silent)
    async with open_quick() as storage, storage.open_source("key") as source:
        assert source.info.etag == str(found.generation)
        assert await receive_all(source, len(DATA)) == DATA
    assert gcs.log == ["read", "meta", "read"]


async def test_object_and_checksum_are_read_in_one_request(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage:
        async with storage.open_source("key") as source:
            assert await receive_all(source) == DATA
        assert gcs.log == ["read"]
        assert source.info.crc32c == (await storage.head("key")).crc32c is not None


async def test_source_requires_open_context_and_positive_size(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage:
        opening = storage.open_source("key", info=await storage.head("key"))
        with pytest.raises(anyio.ClosedResourceError):
            await opening.receive(1)  # type: ignore[attr-defined]  # it is its own context
        async with opening as source:
            with pytest.raises(ValueError, match="at least 1"):
                await source.receive(0)
        with pytest.raises(anyio.ClosedResourceError):
            await source.receive(1)
    assert gcs.counts["read"] == 0


async def test_replaced_version_raises_object_changed(gcs: FakeGcs) -> None:
    gcs.put("key", DATA)
    async with open_quick() as storage:
        old = await storage.head("key")
        gcs.put("key", DATA)
        new = await storage.head("key")
        async with storage.open_source("key", info=old) as source:
            with pytest.raises(ObjectChangedError, match="key"):
                await source.receive(1)
        async with storage.open_source("key", info=new) as source:
            assert await receive_all(source) == DATA


@pytest.mark.parametrize(
    ("status", "text", "span", "error", "words"),
    [
        (206, "12345", "bytes 1-5/10", StorageError, "sent bytes 1 to 6 instead"),
        (206, "12345", "bytes 0-3/10", StorageError, "sent bytes 0 to 4 instead"),
        (206, "12345", None, StorageError, "no valid Content-Range"),
        (206, "1234", "bytes 0-4/10", TransientStorageError, "the response had 4 bytes"),
        (206, "123456", "bytes 0-4/10", TransientStorageError, "the response had 6 bytes"),
        (200, "1234567890", None, StorageError, "sent bytes 0 to 10 instead"),
    ],
)
async def test_source_rejects_bytes_outside_requested_range(
    gcs: FakeGcs, status: int, text: str, span: str | None, error: type[StorageError], words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    gcs.put("key", b"0123456789")

    def answer(request: object, found: object) -> web.Response:
        return web.Response(status=status, body=text.encode(), headers={"Content-Range": span} if span else {})

    monkeypatch.setattr(gcs, "_read", answer)
    async with open_quick() as storage, storage.open_source("key", info=await storage.head("key")) as source:
        with pytest.raises(StorageError, match=words) as caught:
            await source.receive(5)
        assert type(caught.value) is error


async def test_source_accepts_whole_object_for_full_range(gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    gcs.put("key", b"0123456789")
    monkeypatch.setattr(gcs, "_read", lambda request, found: web.Response(body=found.data))
    async with open_quick() as storage, storage.open_source("key") as source:
        assert await source.receive(100) == b"0123456789"
