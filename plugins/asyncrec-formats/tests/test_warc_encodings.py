"""A body keeps the encodings that nothing can remove, and both the page and the WARC record name them."""

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

TEXT = b"<p>hello hello hello"
PACKED = gzip.compress(TEXT, mtime=0)


def record(headers: bytes, body: bytes, *, kind: bytes = b"response", more: bytes = b"") -> bytes:
    http = b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + body
    return (
        b"WARC/1.0\r\nWARC-Type: %s\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
        b"WARC-Target-URI: http://a/\r\n%sContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (kind, more, len(http), http)
    )


async def converted(path: Path, content: bytes) -> dict[str, Any]:
    path.with_suffix(".warc").write_bytes(content)
    await tools.convert(path.with_suffix(".warc"), path)
    async with asyncrec.open_dataset(path) as dataset:
        (page,) = [page async for page in dataset.examples()]
    return page


def written(page: dict[str, Any]) -> Any:
    out = WarcEncoder("x.warc", None).encode([pages.PAGE.encode(page)])
    return next(found for found in ArchiveIterator(io.BytesIO(out)) if found.rec_type != "warcinfo")


@pytest.mark.parametrize(
    ("headers", "encoding", "back"),
    [
        (b"Content-Encoding: Compress\r\nContent-Length: 20\r\n", "compress", "Compress"),
        (b"Content-Encoding: gzip, compress\r\nContent-Length: 20\r\n", "gzip, compress", "gzip, compress"),
        (b"Content-Encoding: gzip\r\nTransfer-Encoding: compress\r\n", "gzip, compress", "gzip, compress"),
        (b"Content-Encoding: identity\r\nContent-Length: 20\r\n", "", "identity"),
    ],
)
async def test_remaining_encoding_round_trips_through_page(
    tmp_path: Path, clean: Callable[[Path], None], headers: bytes, encoding: str, back: str
) -> None:
    page = await converted(tmp_path / "pages", record(headers, TEXT))
    assert (page["content"], page["encoding"], page["truncated"]) == (TEXT, encoding, "")
    await tools.convert(tmp_path / "pages", tmp_path / "out.warc")
    clean(tmp_path / "out.warc")
    http = written(page).http_headers.headers
    assert dict(http) == {"Content-Encoding": back, "Content-Length": "20"}
    again = await converted(tmp_path / "again", (tmp_path / "out.warc").read_bytes())
    assert (again["content"], again["encoding"], again["digest"]) == (TEXT, encoding, page["digest"])


async def test_partly_decoded_body_is_written_with_remaining_encoding(tmp_path: Path) -> None:
    headers = b"Content-Encoding: compress, gzip\r\nContent-Length: %d\r\n" % len(PACKED)
    page = await converted(tmp_path / "pages", record(headers, PACKED))
    assert (page["content"], page["encoding"]) == (TEXT, "compress")
    assert dict(written(page).http_headers.headers) == {"Content-Encoding": "compress", "Content-Length": "20"}


@pytest.mark.parametrize(("given", "reason"), [(b"", "unspecified"), (b"WARC-Truncated: length\r\n", "length")])
async def test_encoded_body_that_ends_early_is_truncated(tmp_path: Path, given: bytes, reason: str) -> None:
    page = await converted(tmp_path / "pages", record(b"Content-Encoding: gzip\r\n", PACKED[:-9], more=given))
    assert TEXT.startswith(page["content"])
    assert (page["encoding"], page["truncated"]) == ("", reason)
    assert written(page).rec_headers.get_header("WARC-Truncated") == reason


@pytest.mark.parametrize(("coding", "encoding"), [("gzip", ""), ("compress", "compress")])
async def test_revisit_has_encoding_of_body_elsewhere(tmp_path: Path, coding: str, encoding: str) -> None:
    headers = f"Content-Encoding: {coding}\r\n".encode()
    page = await converted(tmp_path / "pages", record(headers, b"", kind=b"revisit"))
    assert (page["type"], page["encoding"]) == ("revisit", encoding)


def test_page_with_encoded_content_is_written_as_encoded() -> None:
    page = pages.page("http://a/", PACKED, status=200, encoding="gzip", headers={"Content-Type": "text/html"})
    found = written(page)
    assert found.http_headers.get_header("Content-Encoding") == "gzip"
    assert found.content_stream().read() == TEXT
