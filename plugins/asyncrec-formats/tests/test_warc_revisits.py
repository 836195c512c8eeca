"""Revisits are written as WARC revisits and read back, and revisits from other tools find their bodies."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asyncrec_formats.warc_writing import WarcEncoder
from warcio.archiveiterator import ArchiveIterator

import asyncrec
from asyncrec import pages, tools

pytestmark = pytest.mark.anyio

DAYS = ("2026-11-22", "2026-11-23", "2026-11-24")


def crawled(n: int, day: int, before: dict[str, Any] | None) -> dict[str, Any]:
    """Return a page's version: every third page has an ETag, and every fourth one changes each day."""
    changes, tagged = n % 4 == 0, n % 3 == 0
    body = b"<p>%d %d" % (n, day if changes else 0)
    headers = {"Content-Type": "text/html; charset=utf-8", "X-Day": str(day)}
    known: dict[str, Any] = {"date": f"{DAYS[day]}T00:00:{n:02}Z", "before": before, "protocol": "HTTP/1.1"}
    known["request_headers"] = {"Accept": "*/*"} if n % 2 else ()
    if before is not None and tagged and not changes:
        return pages.page(f"http://a/{n}?é", status=304, reason="Not Modified", headers={"ETag": f'"{n}"'}, **known)
    if tagged:
        headers["ETag"] = f'"{n}"'
    return pages.page(f"http://a/{n}?é", body, status=200, reason="OK", headers=headers, **known)


async def write(path: Path, records: list[dict[str, Any]]) -> None:
    async with asyncrec.open_sharded_writer(path, schema=pages.PAGE, on_duplicate="write") as writer:
        for page in records:
            await writer.write(page, key=pages.page_key(page))


async def read(path: Path) -> list[dict[str, Any]]:
    async with asyncrec.open_dataset(path) as dataset:
        found = [page async for page in dataset.examples()]
    return sorted(found, key=lambda page: page["date"])


async def bodies(path: Path) -> list[tuple[str, str, int, bytes]]:
    async with asyncrec.open_dataset(path) as dataset:
        found = await pages.resolve(dataset, [page async for page in dataset.examples()])
    return sorted((page["date"], page["url"], page["status"], page["content"]) for page in found)


@pytest.mark.parametrize("suffix", ["warc", "warc.gz"])
async def test_three_crawls_with_revisits_round_trip(
    tmp_path: Path, suffix: str, clean: Callable[[Path], None]
) -> None:
    crawls: list[list[dict[str, Any]]] = []
    for day in range(3):
        before = crawls[-1] if crawls else [None] * 24
        crawls.append([crawled(n, day, before[n]) for n in range(24)])
        await write(tmp_path / "pages", crawls[-1])
    made = [page for crawl in crawls for page in crawl]
    profiles = [page.get("profile", "").rpartition("/")[2] for page in made if pages.is_revisit(page)]
    assert (profiles.count("server-not-modified"), profiles.count("identical-payload-digest")) == (12, 24)

    for round_, (source, target) in enumerate((("pages", "back"), ("back", "again"))):
        out = tmp_path / f"{round_}.{suffix}"
        await tools.convert(tmp_path / source, out)
        clean(out)
        assert (await tools.convert(out, tmp_path / target)).bad_count == 0
    back = await read(tmp_path / "back")
    for one, other in zip(made, back, strict=True):
        assert {name: other[name] for name in one} == one
    assert await read(tmp_path / "again") == back
    whole = sorted((page["date"], page["url"]) for page in made)
    assert [each[:2] for each in await bodies(tmp_path / "back")] == whole
    assert await bodies(tmp_path / "back") == await bodies(tmp_path / "pages")
    assert {each[2] for each in await bodies(tmp_path / "pages")} == {200}


def test_revisit_is_written_with_warc_headers() -> None:
    one = pages.page("http://a/", b"<p>", status=200, date="2026-11-22T00:00:00Z", record_id="<urn:uuid:1>")
    two = pages.page("http://a/", status=304, reason="Not Modified", headers={"ETag": "x"}, before=one)
    out = WarcEncoder("x.warc", None).encode([pages.PAGE.encode(page) for page in (one, two)])
    *_, record = ArchiveIterator(io.BytesIO(out))
    header = record.rec_headers.get_header
    assert (record.rec_type, record.rec_headers.protocol) == ("revisit", "WARC/1.1")
    assert header("WARC-Profile") == "http://netpreserve.org/warc/1.1/revisit/server-not-modified"
    assert (header("WARC-Refers-To-Target-URI"), header("WARC-Refers-To-Date")) == ("http://a/", "2026-11-22T00:00:00Z")
    assert (header("WARC-Refers-To"), header("WARC-Payload-Digest")) == ("<urn:uuid:1>", one["digest"])
    assert record.http_headers.get_statuscode() == "304"
    assert record.content_stream().read() == b""


def test_revisit_drops_encoding_headers_of_decoded_body() -> None:
    """A replay tool combines the revisit's headers with the body that the revisit refers to."""
    sent = {
        "Content-Type": "text/html",
        "Content-Encoding": "gzip",
        "Transfer-Encoding": "chunked",
        "Content-Length": "9",
    }
    one = pages.page("http://a/", b"<p>", status=200, headers=sent)
    two = pages.page("http://a/", b"<p>", status=200, headers=sent, before=one)
    out = WarcEncoder("x.warc", None).encode([pages.PAGE.encode(page) for page in (one, two)])
    _, first, second = [(each.rec_type, each.http_headers and each.http_headers.headers) for each in iterated(out)]
    assert first == ("response", [("Content-Type", "text/html"), ("Content-Length", "3")])
    assert second == ("revisit", [("Content-Type", "text/html")])


def iterated(content: bytes) -> ArchiveIterator:
    return ArchiveIterator(io.BytesIO(content))


def test_response_record_has_no_refers_to_headers() -> None:
    page = {**pages.page("http://a/", b"<p>", status=200), "refers_to_url": "http://b/", "profile": "x"}
    out = WarcEncoder("x.warc", None).encode([pages.PAGE.encode(page)])
    assert b"WARC-Refers-To" not in out
    assert b"WARC-Profile" not in out


@pytest.mark.parametrize("reference", ["date", "id", "digest"])
async def test_foreign_revisit_resolves_to_original_body(tmp_path: Path, reference: str) -> None:
    """The revisit's digest is that of the body as sent, perhaps compressed; a page contains the decoded body."""
    packed = gzip.compress(b"hello", mtime=0)
    refers = {
        "date": b"WARC-Refers-To-Target-URI: http://a/\r\nWARC-Refers-To-Date: 2026-11-21T00:00:00Z\r\n",
        "id": b"WARC-Refers-To: <urn:uuid:1>\r\n",
        "digest": b"WARC-Payload-Digest: %s\r\n" % pages.payload_digest(b"hello").encode(),
    }[reference]
    http = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    (tmp_path / "in.warc").write_bytes(
        record(b"response", b"1", b"2026-11-21T00:00:00Z", http + packed)
        + record(b"response", b"2", b"2026-11-22T00:00:00Z", http + gzip.compress(b"changed"))
        + record(b"revisit", b"3", b"2026-11-23T00:00:00Z", b"", refers)
    )
    assert (await tools.convert(tmp_path / "in.warc", tmp_path / "pages")).records == 3
    *_, last = await bodies(tmp_path / "pages")
    assert last == ("2026-11-23T00:00:00Z", "http://a/", 200, b"hello")


def record(kind: bytes, number: bytes, date: bytes, block: bytes, more: bytes = b"") -> bytes:
    return (
        b"WARC/1.0\r\nWARC-Type: %s\r\nWARC-Record-ID: <urn:uuid:%s>\r\nWARC-Date: %s\r\nWARC-Target-URI: http://a/\r\n"
        b"%sContent-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n%s\r\n\r\n"
    ) % (kind, number, date, more, len(block), block)
