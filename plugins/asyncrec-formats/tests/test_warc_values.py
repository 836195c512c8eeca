"""Values that WARC spells differently, or that warcio would change, are written in valid records and read back."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from warcio.archiveiterator import ArchiveIterator

import asyncrec
from asyncrec import pages, tools

pytestmark = pytest.mark.anyio

Through: TypeAlias = Callable[..., Awaitable[tuple[dict[str, Any], Any]]]
RECORD = (
    b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
    b"WARC-Target-URI: http://a/\r\n%sContent-Type: application/http; msgtype=response\r\n"
    b"Content-Length: %d\r\n\r\n%s\r\n\r\n"
)


@pytest.fixture
def through(tmp_path: Path, clean: Callable[[Path], None]) -> Through:
    """Return a function that writes a page to WARC, and returns the features that changed, and warcio's record."""

    async def convert(url: str = "http://a/", content: bytes = b"body", **features: Any) -> tuple[dict[str, Any], Any]:
        page = pages.page(url, content, **{"status": 200, "protocol": "HTTP/1.1", **features})
        await asyncrec.write_examples(tmp_path / "in.tfrecord", [page], schema=pages.PAGE)
        await tools.convert(tmp_path / "in.tfrecord", tmp_path / "out.warc")
        clean(tmp_path / "out.warc")
        with (tmp_path / "out.warc").open("rb") as file:
            record = list(ArchiveIterator(file, verify_http=True))[1]
        await tools.convert(tmp_path / "out.warc", tmp_path / "back.tfrecord")
        async with asyncrec.open_reader(tmp_path / "back.tfrecord") as reader:
            (back,) = [page async for page in reader.examples(pages.PAGE)]
        changed = {name: back[name] for name, value in page.items() if back[name] != value}
        return changed, record

    return convert


@pytest.mark.parametrize("features", [{"method": "HEAD"}, {"status": 304}])
@pytest.mark.parametrize("coding", ["Content-Encoding: gzip\n", "Transfer-Encoding: chunked\n", ""])
async def test_response_without_body_keeps_headers_of_body(
    through: Through, features: dict[str, Any], coding: str
) -> None:
    changed, record = await through(content=b"", headers=f"{coding}Content-Length: 500", **features)
    assert changed == {}
    assert record.content_stream().read() == b""
    assert record.http_headers.get_header("Content-Length") == "500"
