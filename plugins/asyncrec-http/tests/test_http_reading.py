"""Reading returns the content of a single version, whatever features the server supports."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import anyio
import pytest
from asyncrec_http.plugin import open_http
from reading_kit import ReadingKit
from serving import Fault, chaos, nth
from web_server import File, WebServer

import asyncrec
from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, StorageError, StoragePermissionError
from asyncrec.storage import Storage
from asyncrec.storage._resuming_source import ResumingSource
from asyncrec.testing._checks import content, receive_all

pytestmark = pytest.mark.anyio

DATA = content(100_000)


class TestReading(ReadingKit):
    """The kit on a server with all features."""

    @pytest.fixture(autouse=True)
    def server(self, web: WebServer) -> None:
        self.web = web

    def open_reading(self) -> AbstractAsyncContextManager[Storage]:
        return open_http(self.by_url(None)[0])

    def by_url(self, storage: Storage | None) -> tuple[str, Mapping[str, Any]]:
        return self.web.url, {}

    def store(self, key: str, data: bytes) -> None:
        self.web.store(key, data)

    def remove(self, key: str) -> None:
        del self.web.files[key]

    def stored(self, key: str) -> bytes | None:
        return self.web.files[key].data if key in self.web.files else None


class TestReadingThrough(TestReading):
    """The kit below a folder on a server that supports neither ranges nor HEAD."""

    @pytest.fixture(autouse=True)
    def server(self, web: WebServer) -> None:
        self.web = web
        web.ranges = web.heads = False

    def by_url(self, storage: Storage | None) -> tuple[str, Mapping[str, Any]]:
        return f"{self.web.url}/some/folder", {}

    def store(self, key: str, data: bytes) -> None:
        super().store(f"some/folder/{key}", data)

    def remove(self, key: str) -> None:
        super().remove(f"some/folder/{key}")

    def stored(self, key: str) -> bytes | None:
        return super().stored(f"some/folder/{key}")


class TestReadingWithWeakTags(TestReading):
    @pytest.fixture(autouse=True)
    def server(self, web: WebServer) -> None:
        self.web = web
        web.weak = True


class TestReadingWithDatesAlone(TestReading):
    @pytest.fixture(autouse=True)
    def server(self, web: WebServer) -> None:
        self.web = web
        web.etags = False


async def test_records_are_read_by_url(web: WebServer) -> None:
    async with asyncrec.open_storage("memory://http-records") as memory:
        await asyncrec.write_records("a.tfrecord", [b"one", b"two"], storage=memory)
        web.store("data/a.tfrecord", await memory.get("a.tfrecord"))
    assert await asyncrec.read_records(f"{web.url}/data/a.tfrecord") == [b"one", b"two"]


async def test_source_reads_each_window_in_one_request(web: WebServer) -> None:
    web.store("x", DATA)
    async with open_http(web.url) as storage, storage.open_source("x", info=await storage.head("x")) as source:
        assert web.log == ["HEAD"]
        assert await receive_all(source, max_bytes=40_000) == DATA
    assert web.log == ["HEAD", "GET", "GET", "GET"]
    assert web.seen[1]["Range"] == "bytes=0-39999"
    assert web.seen[1]["If-Range"] == web.files["x"].etag


@pytest.mark.parametrize("data", [DATA, b"x"])
async def test_small_file_is_read_in_one_request_without_head(web: WebServer, data: bytes) -> None:
    web.store("x", data)
    async with open_http(web.url) as storage:
        assert await storage.get("x") == data
        async with storage.open_source("x", start=len(data) // 2) as source:
            assert source.info == await storage.head("x")
            assert await receive_all(source) == data[len(data) // 2 :]
    assert web.log == ["GET", "GET", "HEAD"]


async def test_empty_file_is_read_in_at_most_two_requests(web: WebServer) -> None:
    web.store("x", b"")
    async with open_http(web.url) as storage:
        assert await storage.get("x") == b""
    assert len(web.log) <= 2


async def test_source_reads_file_versioned_by_date_only(web: WebServer) -> None:
    web.etags = False
    web.store("x", DATA)
    async with open_http(web.url) as storage:
        known = await storage.head("x")
        async with storage.open_source("x", info=known) as source:
            assert await receive_all(source) == DATA


@pytest.mark.parametrize("shift", [1, -1, 1000])
async def test_response_with_wrong_range_is_rejected(web: WebServer, shift: int) -> None:
    web.store("a.tfrecord", DATA)
    web.shift = shift
    async with open_http(web.url) as storage, storage.open_source("a.tfrecord", start=2000, end=3000) as source:
        with pytest.raises(StorageError, match="instead"):
            await source.receive(1000)
    assert web.log == ["GET", "HEAD", "GET"], "what does not fit is asked for again"


async def test_response_longer_than_range_is_rejected(web: WebServer) -> None:
    web.store("a.tfrecord", DATA)
    web.more = b"and more"
    async with open_http(web.url) as storage:
        with pytest.raises(StorageError, match="more bytes than it had declared"):
            async with storage.open_source("a.tfrecord", start=2000, end=3000) as source:
                await source.receive(1000)


async def test_weak_etags_do_not_cause_whole_file_responses(web: WebServer, caplog: pytest.LogCaptureFixture) -> None:
    """A weak tag never satisfies a condition, so that the whole file would be returned."""
    web.weak = True
    web.store("a.tfrecord", DATA)
    async with open_http(web.url) as storage:
        for start in (50_000, 10_000):
            async with storage.open_source("a.tfrecord", start=start, end=start + 1000) as source:
                assert await receive_all(source) == DATA[start : start + 1000]
    assert caplog.messages == []


async def test_source_reads_rangeless_server_once_with_warning(
    web: WebServer, caplog: pytest.LogCaptureFixture
) -> None:
    web.ranges = False
    web.store("x", DATA)
    with caplog.at_level(logging.WARNING):
        async with open_http(web.url) as storage:
            async with storage.open_source("x") as source:
                assert await receive_all(source, max_bytes=7_000) == DATA
            assert web.log == ["GET"]
            async with storage.open_source("x", start=90_000, end=95_000) as source:
                assert await receive_all(source, max_bytes=3_000) == DATA[90_000:95_000]
    assert web.log == ["GET"] * 2
    assert [record.message.count("does not support ranges") for record in caplog.records] == [1]


async def test_source_limits_open_streams_of_rangeless_server(web: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit, a source requests each piece. When a stream ends, the next source may keep its stream open."""
    monkeypatch.setattr("asyncrec_http.server._CONNECTIONS", 2)
    web.ranges = False
    web.store("x", DATA)
    async with open_http(web.url) as storage:
        known = await storage.head("x")
        kept, other = (storage.open_source("x", end=end, info=known) for end in (None, 4))
        async with kept, other:
            first = await kept.receive(2)
            assert [await other.receive(2), await other.receive(2)] == [DATA[:2], DATA[2:4]]
            assert first + await receive_all(kept) == DATA
        assert web.log == ["HEAD"] + ["GET"] * 3
        async with storage.open_source("x", end=4, info=known) as other:
            assert [await other.receive(2), await other.receive(2)] == [DATA[:2], DATA[2:4]]
    assert web.log == ["HEAD"] + ["GET"] * 4


@pytest.mark.parametrize("ranges", [True, False])
async def test_read_resumes_after_broken_connection(web: WebServer, ranges: bool) -> None:
    web.ranges = ranges
    web.store("x", DATA)
    web.plan = nth(1, Fault("truncate"), "GET")
    async with open_http(web.url) as storage, ResumingSource(storage, "x", read_ahead=0) as source:
        assert await receive_all(source, max_bytes=40_000) == DATA


@pytest.mark.slow(but=["0"])
@pytest.mark.parametrize("seed", range(3))
async def test_reads_survive_server_failing_one_request_in_four(web: WebServer, seed: int) -> None:
    for n in range(20):
        web.store(f"{n}", content(30_000, n))
    web.plan = chaos(seed)
    async with open_http(web.url) as storage, anyio.create_task_group() as group:

        async def read(n: int) -> None:
            async with ResumingSource(storage, f"{n}", read_ahead=0) as source:
                assert await receive_all(source, max_bytes=9_000) == content(30_000, n)

        for n in range(20):
            group.start_soon(read, n)


async def test_request_is_retried_after_retry_after(web: WebServer) -> None:
    web.store("x", DATA)
    web.plan = nth(1, Fault("status", 429, {"Retry-After": "0"}))
    async with open_http(web.url) as storage:
        assert (await storage.head("x")).size == len(DATA)
    assert web.log == ["HEAD", "HEAD"]


@pytest.mark.parametrize("tags", ["strong", "weak", "none"])
@pytest.mark.parametrize("ranges", [True, False])
async def test_source_never_mixes_bytes_of_replaced_file(web: WebServer, tags: str, ranges: bool) -> None:
    web.etags, web.weak, web.ranges = tags != "none", tags == "weak", ranges
    web.store("x", DATA)
    async with open_http(web.url) as storage, storage.open_source("x") as source:
        head = await source.receive(1_000)
        web.store("x", content(100_000, seed=2))
        with suppress(ObjectChangedError):
            assert head + await receive_all(source) == DATA


async def test_empty_file_has_size_zero_and_no_bytes(web: WebServer) -> None:
    web.store("x", b"")
    for web.heads in (True, False):
        async with open_http(web.url) as storage:
            assert (await storage.head("x")).size == 0
            assert await storage.get("x") == b""


async def test_get_returns_stored_bytes_of_encoded_file(web: WebServer) -> None:
    web.encoding = "gzip"
    web.store("x.gz", DATA)
    async with open_http(web.url) as storage:
        assert await storage.get("x.gz") == DATA
    assert {headers["Accept-Encoding"] for headers in web.seen} == {"identity"}


async def test_head_rejects_server_without_content_length(web: WebServer) -> None:
    web.lengths = False
    web.store("x", DATA)
    async with open_http(web.url) as storage:
        with pytest.raises(StorageError, match="does not send the length"):
            await storage.head("x")


@pytest.mark.parametrize("status", [400, 401, 403, 405, 501])
async def test_head_falls_back_to_reading_one_byte(web: WebServer, status: int) -> None:
    """The server does not support HEAD, or the URL is signed only for GET."""
    web.store("x", DATA)
    web.plan = lambda kind, n: Fault("status", status) if kind == "HEAD" else None
    async with open_http(web.url) as storage:
        assert (await storage.head("x")).size == len(DATA)
    assert web.log == ["HEAD", "GET"]


async def test_head_raises_for_unexpected_status_without_retry(web: WebServer) -> None:
    web.store("x", DATA)
    web.plan = lambda kind, n: Fault("status", 418) if kind == "HEAD" else None
    async with open_http(web.url) as storage:
        with pytest.raises(StorageError, match="HTTP 418"):
            await storage.head("x")
    assert web.log == ["HEAD"]


@pytest.mark.parametrize(
    ("tag", "date"),
    [
        ('"\x80\xff"', "Sun, 22 Nov 2026 10:00:00 GMT"),
        ("a\tb", "Sun, 22 Nov 2026 10:00:00 GMT"),
        ("", f"Thu, 01 Jan {10**20} 00:00:00 GMT"),
        ("", "Sonntag \xe4"),
    ],
)
async def test_file_is_read_with_any_etag_and_date(web: WebServer, tag: str, date: str) -> None:
    web.files["x"] = File(DATA, tag, date)
    web.etags = bool(tag)
    async with open_http(web.url) as storage:
        assert (await storage.head("x")).size == len(DATA)
        async with storage.open_source("x") as source:
            assert await receive_all(source, max_bytes=40_000) == DATA


@pytest.mark.parametrize(
    ("status", "kind"), [(404, ObjectNotFoundError), (410, ObjectNotFoundError), (403, StoragePermissionError)]
)
async def test_error_status_maps_to_matching_exception(web: WebServer, status: int, kind: type[Exception]) -> None:
    web.plan = lambda _, n: Fault("status", status)
    async with open_http(web.url) as storage:
        with pytest.raises(kind, match=f"HTTP {status}"):
            await storage.head("x")


async def test_write_delete_and_listing_raise_with_reason(web: WebServer) -> None:
    async with open_http(web.url) as storage:
        for operation in (storage.put("x", b"x"), storage.delete("x"), anext(aiter(_listing(storage)))):
            with pytest.raises(StorageError, match="a web server has neither"):
                await operation
    assert web.log == []


async def _listing(storage: Storage) -> object:
    async for info in storage.list_objects():
        yield info


async def test_doctor_reports_server_as_read_only_and_readable(web: WebServer) -> None:
    from asyncrec.tools import doctor

    web.store("data/x", DATA)
    report = await doctor(f"{web.url}/data/x")
    assert report.ok
    assert [(check.name, check.ok) for check in report.checks] == [("write", None), ("read", True)]
    assert not (await doctor(f"{web.url}/data/y")).ok
    assert (await doctor(web.url)).ok
