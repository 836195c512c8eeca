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


@pytest.mark.parametrize("number", ["2", "3"])
@pytest.mark.parametrize("spelt", ["h{}", "HTTP/{}", "HTTP/{}.0"])
async def test_protocol_without_status_line_is_written_beside_it(through: Through, spelt: str, number: str) -> None:
    changed, record = await through(protocol=spelt.format(number), headers={"A": "b"})
    assert changed.get("protocol", spelt.format(number)) == f"HTTP/{number}"
    assert record.http_headers.protocol == "HTTP/1.1"
    assert record.rec_headers.get_header("WARC-Protocol") == f"h{number}"


@pytest.mark.parametrize("headers", [["h2", "tls/1.3"], ["tls/1.3", "h2"], ["h2,tls/1.3"], ["tls/1.3, h2"]])
async def test_http_protocol_is_found_beside_that_of_tls(tmp_path: Path, headers: list[str]) -> None:
    http = b"HTTP/1.1 200 OK\r\n\r\nbody"
    more = "".join(f"WARC-Protocol: {each}\r\n" for each in headers).encode()
    (tmp_path / "in.warc").write_bytes(RECORD % (more, len(http), http))
    for source, target in (("in", "one"), ("one", "two")):
        await tools.convert(tmp_path / f"{source}.warc", tmp_path / target)
        async with asyncrec.open_dataset(tmp_path / target) as dataset:
            (page,) = [page async for page in dataset.examples()]
        assert (page["protocol"], page["warc_headers"]) == ("HTTP/2", b"WARC-Protocol: tls/1.3")
        await tools.convert(tmp_path / target, tmp_path / f"{target}.warc")
        assert (tmp_path / f"{target}.warc").read_bytes().count(b"WARC-Protocol: h2\r\n") == 1


async def test_header_bytes_beyond_ascii_survive(through: Through) -> None:
    latin, utf, broken = bytes(range(0x80, 0x100)), "é€\xa0".encode(), "€".encode()[:2] + b" \x85"
    headers = [(b"A", latin), (b"B", utf), (b"C", broken), (b"D\xe9", b"x")]
    changed, record = await through(headers=headers, request_headers=headers, reason="Où")
    assert changed == {}
    assert record.http_headers.statusline == "200 Où"


async def test_text_that_is_not_utf8_is_read_as_latin1(tmp_path: Path) -> None:
    http = b"HTTP/1.1 200 O\xf9\r\nContent-Type: text/\xe9\r\n\r\nbody"
    (tmp_path / "in.warc").write_bytes(RECORD % (b"", len(http), http))
    await tools.convert(tmp_path / "in.warc", tmp_path / "pages")
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        (page,) = [page async for page in dataset.examples()]
    assert (page["reason"], page["content_type"], page["headers"]) == ("Où", "text/é", b"Content-Type: text/\xe9")


@pytest.mark.parametrize("features", [{"method": "HEAD"}, {"status": 304}])
@pytest.mark.parametrize("coding", ["Content-Encoding: gzip\n", "Transfer-Encoding: chunked\n", ""])
async def test_response_without_body_keeps_headers_of_body(
    through: Through, features: dict[str, Any], coding: str
) -> None:
    changed, record = await through(content=b"", headers=f"{coding}Content-Length: 500", **features)
    assert changed == {}
    assert record.content_stream().read() == b""
    assert record.http_headers.get_header("Content-Length") == "500"


@pytest.mark.parametrize(
    ("url", "uri"),
    [
        ("http://a/b c?d e", "http://a/b%20c?d%20e"),
        (" http://a/\t", "http://a/"),
        ("http://a/\xa0", "http://a/%C2%A0"),
        ("http://a/\u2028?\x1f", "http://a/%E2%80%A8?%1F"),
        ("HTTP://a/B", "http://a/B"),
    ],
)
async def test_url_is_written_without_spaces(
    through: Through, url: str, uri: str, caplog: pytest.LogCaptureFixture
) -> None:
    changed, _ = await through(url, b"", headers={"A": "b"}, type="revisit", refers_to_url=url)
    assert changed == {"url": uri, "refers_to_url": uri}
    assert not caplog.records


@pytest.mark.parametrize("url", ["http://ä.org/ö?ü|{}#%", "ftp://a/", "file:///a", "a/b:C"])
async def test_response_with_other_url_is_unchanged(through: Through, url: str) -> None:
    changed, _ = await through(url, headers={"A": "b"}, method="POST", request_headers={"C": "d"})
    assert changed == {}
