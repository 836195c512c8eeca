"""Pages are written as WARC, and WARC from another tool is read and written back unchanged, checked by warcio."""

from __future__ import annotations

import gzip
import io
import os
import random
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from asyncrec_formats.warc_writing import WarcEncoder
from warcio.archiveiterator import ArchiveIterator
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

import asyncrec
from asyncrec import pages, tools
from asyncrec.errors import SchemaError

pytestmark = pytest.mark.anyio

COUNT = int(os.environ.get("ASYNCREC_WARC_RECORDS", "200"))  # 10,000 records take a minute
# The digests, ids and headers that both files must have in common.
HEADERS = ("WARC-Type", "WARC-Record-ID", "WARC-Date", "WARC-Target-URI", "WARC-Payload-Digest", "X-Other")


def records(path: Path) -> list[tuple[Any, list[tuple[str, str]], bytes]]:
    with path.open("rb") as file:
        return [
            (
                {name: record.rec_headers.get_header(name) for name in HEADERS},
                [(record.http_headers.statusline, ""), *record.http_headers.headers] if record.http_headers else [],
                record.content_stream().read(),
            )
            for record in ArchiveIterator(file)
            if record.rec_type != "warcinfo"
        ]


def written_by_warcio(count: int, *, compressed: bool) -> bytes:
    """Ignore warnings about temporary files that warcio does not close, which do not matter here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        return _written_by_warcio(count, compressed=compressed)


def _written_by_warcio(count: int, *, compressed: bool) -> bytes:
    chance = random.Random(1)
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=compressed)
    for number in range(count):
        body = b"page %d " % number + chance.randbytes(chance.randrange(300))
        url = f"http://example.org/{number}?q=é"
        headers = [
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(body))),
            ("X-N", str(number)),
        ]
        extra = {"WARC-Date": f"2026-11-22T07:00:{number % 60:02}Z", "WARC-IP-Address": "127.0.0.1", "X-Other": "1"}
        if number % 10 == 7:
            record = writer.create_revisit_record(
                url, "sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ", "http://example.org/0", "2026-11-21T00:00:00Z",
                http_headers=StatusAndHeaders("200 OK", headers, protocol="HTTP/1.1"), warc_headers_dict=extra,
            )  # fmt: skip
        elif number % 10 == 8:
            record = writer.create_warc_record(
                url, "resource", payload=io.BytesIO(body), warc_content_type="text/plain", warc_headers_dict=extra
            )
        else:
            record = writer.create_warc_record(
                url, "response", payload=io.BytesIO(body), warc_headers_dict=extra,
                http_headers=StatusAndHeaders("404 Not Found at all", headers, protocol="HTTP/1.1"),
            )  # fmt: skip
        if number % 10 == 3:
            request = writer.create_warc_record(
                url, "request", warc_headers_dict=extra, payload=io.BytesIO(b""),
                http_headers=StatusAndHeaders("/ HTTP/1.1", [("Accept", "*/*")], protocol="POST", is_http_request=True),
            )  # fmt: skip
            writer.write_request_response_pair(request, record)
        else:
            writer.write_record(record)
    return out.getvalue()


@pytest.mark.parametrize("compressed", [True, False])
async def test_foreign_warc_round_trips_unchanged(
    tmp_path: Path, compressed: bool, clean: Callable[[Path], None]
) -> None:
    suffix = ".warc.gz" if compressed else ".warc"
    source, back = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    source.write_bytes(written_by_warcio(COUNT, compressed=compressed))
    report = await tools.convert(source, tmp_path / "crawl/pages")
    assert (report.records, report.bad_count) == (COUNT, 0)
    await tools.convert(tmp_path / "crawl/pages", back)
    clean(back)
    assert back.read_bytes().startswith(b"\x1f\x8b") == compressed
    given, found = records(source), records(back)

    def pages_of(all_: list[Any]) -> list[Any]:
        return [each for each in all_ if each[0]["WARC-Type"] != "request"]

    assert pages_of(given) == pages_of(found)
    (one, *_), others = [[each for each in all_ if each[0]["WARC-Type"] == "request"] for all_ in (given, found)]
    assert len(others) == COUNT // 10
    assert one[1][1] == ("Accept", "*/*")
    assert ("Accept", "*/*") in others[0][1]
    again = await tools.convert(back, tmp_path / "crawl/again")
    assert again.records == COUNT
    async with asyncrec.open_dataset(tmp_path / "crawl/pages") as one_set:
        async with asyncrec.open_dataset(tmp_path / "crawl/again") as other_set:
            assert [page async for page in one_set.examples()] == [page async for page in other_set.examples()]


async def test_chunked_compressed_body_is_stored_and_written_plain(
    tmp_path: Path, clean: Callable[[Path], None]
) -> None:
    packed = gzip.compress(b"hello " * 100)
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (packed[:20], packed[20:])) + b"0\r\n\r\n"
    http = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\nContent-Encoding: gzip\r\n\r\n"
        + chunked
    )
    (tmp_path / "in.warc").write_bytes(
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
        b"WARC-Target-URI: http://x/\r\nContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (len(http), http)
    )
    await tools.convert(tmp_path / "in.warc", tmp_path / "pages")
    await tools.convert(tmp_path / "pages", tmp_path / "out.warc.gz")
    clean(tmp_path / "out.warc.gz")
    ((_, headers, content),) = records(tmp_path / "out.warc.gz")
    assert content == b"hello " * 100
    assert headers == [("200 OK", ""), ("Content-Type", "text/plain"), ("Content-Length", "600")]


async def test_crawled_page_round_trips_with_every_feature(tmp_path: Path, clean: Callable[[Path], None]) -> None:
    made = [
        pages.page(
            "http://a/b?c=d",
            b"<p>",
            status=200,
            reason="OK",
            protocol="HTTP/2",
            headers=[("Content-Type", "text/html")],
            request_headers=[("Accept", "*/*"), ("Referer", "http://from/")],
            final_url="http://a/last",
            elapsed=0.5,
            charset="latin-1",
            depth=3,
            referrer="http://from/",
            ip="127.0.0.1",
            truncated="length",
        ),
        pages.page("http://a/", b"", status=204, method="POST", protocol="HTTP/1.0", headers=[("X", "é")]),
        pages.page("ftp://a/", b"file", content_type="text/plain", type="resource"),
    ]
    await asyncrec.write_examples(tmp_path / "pages.tfrecord", made, schema=pages.PAGE)
    for suffix in ("warc", "warc.gz"):
        out = tmp_path / f"out.{suffix}"
        await tools.convert(tmp_path / "pages.tfrecord", out)
        clean(out)
        await tools.convert(out, tmp_path / f"back-{suffix}.tfrecord")
        async with asyncrec.open_reader(tmp_path / f"back-{suffix}.tfrecord") as reader:
            found = [page async for page in reader.examples(pages.PAGE)]
        for one, other in zip(made, found, strict=True):
            assert {name: other[name] for name in one} == one


async def test_convert_rejects_non_page_record_and_writes_no_file(tmp_path: Path) -> None:
    await asyncrec.write_examples(tmp_path / "x.tfrecord", [{"a": 1}])
    with pytest.raises(
        SchemaError, match=r"record 0 cannot be written to a WARC file, because it is not a page.*'url'"
    ):
        await tools.convert(tmp_path / "x.tfrecord", tmp_path / "x.warc")
    assert not (tmp_path / "x.warc").exists()


def test_line_breaks_in_values_cannot_inject_headers() -> None:
    page = pages.page("http://a/\r\nWARC-Type: metadata", b"", status=200, reason="OK\r\nX: y", headers=b"A: b")
    out = WarcEncoder("x.warc", None).encode([pages.PAGE.encode(page)])
    *_, record = ArchiveIterator(io.BytesIO(out))
    assert record.rec_type == "response"
    assert record.http_headers.headers == [("A", "b")]


@pytest.mark.parametrize(
    "features",
    [
        {"headers": b"A: b", "protocol": "HTTP/1.1 200\r\nX: y\r\n"},
        {"headers": b"A: b", "warc_headers": b"Content-Length: 5\nwarc-type: metadata\nX-Other: 1"},
        {"headers": b"A: b", "request_headers": b"B: c", "method": "GET / HTTP/1.1\r\nX: y\r\n\r\n"},
    ],
    ids=["protocol", "headers of the record", "method"],
)
def test_page_cannot_override_warc_headers(features: dict[str, Any]) -> None:
    page = {**pages.page("http://a/", b"content", status=200), **features}
    out = WarcEncoder("x.warc", None).encode([pages.PAGE.encode(page)])
    assert out.count(b"Content-Length: ") == out.count(b"WARC-Block-Digest: ")
    _, response, *requests = [
        (record.rec_type, record.http_headers and record.http_headers.headers, record.content_stream().read())
        for record in ArchiveIterator(io.BytesIO(out))
    ]
    assert response == ("response", [("A", "b")], b"content")
    assert all(request == ("request", [("B", "c")], b"") for request in requests)
    assert (b"X-Other: 1\r\n" in out) == ("warc_headers" in features)


def test_file_without_pages_contains_only_warcinfo() -> None:
    (record,) = ArchiveIterator(io.BytesIO(WarcEncoder("x.warc.gz", None).finish()))
    assert record.rec_type == "warcinfo"
