"""HTTP message bodies are decoded as warcio does, but never to more than the requested size."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from types import ModuleType
from typing import Any

import pytest
from asyncrec_formats import http_body
from asyncrec_formats.http_body import TooLargeError, body_of
from warcio.archiveiterator import ArchiveIterator

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

TEXT = b"words of a page, " * 3000
RAW_DEFLATE = zlib.compressobj(wbits=-15)
DEFLATED = RAW_DEFLATE.compress(TEXT) + RAW_DEFLATE.flush()


def chunked(body: bytes, size: int = 1000) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


def message(body: bytes, headers: bytes = b"") -> Any:
    http = b"HTTP/1.1 200 OK\r\n" + headers + b"\r\n" + body
    warc = (
        b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
        b"WARC-Target-URI: http://x/\r\nContent-Type: application/http; msgtype=response\r\n"
        b"Content-Length: %d\r\n\r\n%s\r\n\r\n" % (len(http), http)
    )
    return next(iter(ArchiveIterator(io.BytesIO(warc))))


def gzipped(data: bytes) -> bytes:
    return gzip.compress(data, mtime=0)  # the processes of pytest-xdist must collect the same parameters


BODIES = [
    (TEXT, b""),
    (b"", b""),
    (chunked(TEXT), b"Transfer-Encoding: chunked\r\n"),
    (TEXT, b"Transfer-Encoding: chunked\r\n"),
    (b"-5\r\n" + TEXT, b"Transfer-Encoding: chunked\r\n"),
    (b"FFFFFFFFFFFF\r\n" + TEXT, b"Transfer-Encoding: chunked\r\n"),
    (gzipped(TEXT), b"Content-Encoding: gzip\r\n"),
    (gzipped(TEXT), b"Content-Encoding: GZip\r\n"),
    (gzipped(TEXT) + b"what follows", b"Content-Encoding: gzip\r\n"),
    (gzipped(TEXT)[:-10], b"Content-Encoding: gzip\r\n"),
    (gzipped(b""), b"Content-Encoding: gzip\r\n"),
    (b"", b"Content-Encoding: gzip\r\n"),
    (TEXT, b"Content-Encoding: gzip\r\n"),
    (zlib.compress(TEXT), b"Content-Encoding: deflate\r\n"),
    (DEFLATED, b"Content-Encoding: deflate\r\n"),
    (TEXT, b"Content-Encoding: identity\r\n"),
    (TEXT, b"Content-Encoding: gzip, br\r\n"),
    (chunked(gzipped(TEXT), 7), b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
]


@pytest.mark.parametrize(("body", "headers"), BODIES)
def test_body_matches_warcio_decoding(body: bytes, headers: bytes) -> None:
    assert body_of(message(body, headers), 1 << 20).content == message(body, headers).content_stream().read()


TWICE = gzipped(gzipped(TEXT))
SPELT = [
    (chunked(TEXT), b"Transfer-Encoding: Chunked\r\n"),
    (chunked(gzipped(TEXT)), b"Transfer-Encoding: gzip, chunked\r\n"),
    (chunked(TWICE), b"Transfer-Encoding: gzip\r\nTransfer-Encoding: CHUNKED\r\nContent-Encoding: gzip\r\n"),
    (gzipped(TEXT), b"Content-Encoding: X-Gzip\r\n"),
    (gzipped(TEXT), b"Content-Encoding: identity, gzip\r\n"),
    (TWICE, b"Content-Encoding: gzip, gzip\r\n"),
    (TWICE, b"Content-Encoding: gzip\r\ncontent-encoding: x-gzip\r\n"),
    (gzipped(zlib.compress(TEXT)), b"Content-Encoding: deflate,gzip\r\n"),
    (gzipped(TEXT), b"Content-Encoding: gzip, gzip\r\n"),
    (gzipped(TEXT[:99]) + gzipped(b"") + gzipped(TEXT[99:]), b"Content-Encoding: gzip\r\n"),
    (b"".join(gzipped(TEXT[at : at + 7]) for at in range(0, len(TEXT), 7)), b"Content-Encoding: gzip\r\n"),
]


@pytest.mark.parametrize(("body", "headers"), SPELT)
def test_codings_are_removed_however_they_are_written(body: bytes, headers: bytes) -> None:
    assert body_of(message(body, headers), 1 << 20) == (TEXT, "", True)


@pytest.mark.parametrize(
    ("body", "headers", "content", "encoding"),
    [
        (TEXT, b"Content-Encoding: compress\r\n", TEXT, "compress"),
        (gzipped(TEXT), b"Content-Encoding: gzip, Compress\r\n", gzipped(TEXT), "gzip, compress"),
        (gzipped(TEXT), b"Content-Encoding: compress, gzip\r\n", TEXT, "compress"),
        (chunked(TEXT), b"Content-Encoding: gzip\r\nTransfer-Encoding: compress, chunked\r\n", TEXT, "gzip, compress"),
        (TEXT, b"Content-Encoding: " + b"gzip, " * 5 + b"gzip\r\n", TEXT, "gzip, " * 5 + "gzip"),
        (b"", b"Content-Encoding: compress, gzip\r\n", b"", "compress"),
    ],
    ids=["unknown", "gzip before", "gzip after", "of the transfer", "too many", "empty"],
)  # fmt: skip
def test_coding_without_decoder_is_returned(body: bytes, headers: bytes, content: bytes, encoding: str) -> None:
    assert body_of(message(body, headers), 1 << 20) == (content, encoding, True)


@pytest.mark.parametrize("size", [25, 60, -12, -1])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_encoded_body_that_ends_early_is_incomplete(coding: str, size: int) -> None:
    packed = {"gzip": gzip.compress, "deflate": zlib.compress}[coding](TEXT)
    body = body_of(message(packed[:size], b"Content-Encoding: %s\r\n" % coding.encode()), 1 << 20)
    assert TEXT.startswith(body.content)
    assert (body.encoding, body.whole) == ("", False)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_members_beyond_limit_are_not_decoded(monkeypatch: pytest.MonkeyPatch, coding: str) -> None:
    monkeypatch.setattr(http_body, "_MOST_MEMBERS", 100)
    packed = {"gzip": gzip.compress, "zstd": zstd.compress}[coding](b"x")
    for count, whole in ((100, True), (101, False)):
        record = message(packed * count, b"Content-Encoding: %s\r\n" % coding.encode())
        assert body_of(record, 1 << 20) == (b"x" * 100, "", whole)


def test_zstd_body_is_decoded_up_to_limit() -> None:
    packed = zstd.compress(TEXT[:99]) + zstd.compress(TEXT[99:])
    assert body_of(message(packed, b"Content-Encoding: zstd\r\n"), 1 << 20) == (TEXT, "", True)
    assert body_of(message(packed[:-5], b"Content-Encoding: zstd\r\n"), 1 << 20)[1:] == ("", False)
    assert body_of(message(TEXT, b"Content-Encoding: zstd\r\n"), 1 << 20) == (TEXT, "", True)
    with pytest.raises(TooLargeError, match="more than the limit of 1,048,576"):
        body_of(message(zstd.compress(bytes(1 << 30)), b"Content-Encoding: zstd\r\n"), 1 << 20)


def test_zstd_body_stays_encoded_without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compression", "backports"):
        monkeypatch.setitem(sys.modules, name, None)
    assert body_of(message(b"packed", b"Content-Encoding: zstd\r\n"), 1 << 20) == (b"packed", "zstd", True)


@pytest.mark.parametrize("headers", [b"", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("encoding", [b"gzip", b"deflate", b"none"])
def test_oversized_body_is_rejected_while_decoding(headers: bytes, encoding: bytes) -> None:
    plain = bytes(3 << 20)
    body = {b"gzip": gzip.compress, b"deflate": zlib.compress, b"none": bytes}[encoding](plain)
    if headers:
        body = chunked(body, 1 << 30)
    record = message(body, headers + b"Content-Encoding: %s\r\n" % encoding)
    with pytest.raises(TooLargeError, match="more than the limit of 1,048,576"):
        body_of(record, 1 << 20)


def test_body_as_large_as_limit_is_accepted() -> None:
    record = message(gzip.compress(bytes(1 << 20)), b"Content-Encoding: gzip\r\n")
    assert body_of(record, 1 << 20) == (bytes(1 << 20), "", True)


def test_body_keeps_bytes_decoded_before_damage() -> None:
    body = bytearray(gzip.compress(bytes(range(256)) * 10_000, compresslevel=0))
    body[-1_000_000:-999_000] = b"\xff" * 1000
    found = body_of(message(bytes(body), b"Content-Encoding: gzip\r\n"), 1 << 30)
    assert found.content.startswith(bytes(range(256)) * 100)
    assert not found.whole


def test_brotli_decoder_is_fed_in_pieces_and_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []

    class Decompressor:
        def process(self, data: bytes) -> bytes:
            fed.append(len(data))
            return bytes(1 << 10)

        def is_finished(self) -> bool:
            return sum(fed) == 1000

    brotli = ModuleType("brotli")
    brotli.Decompressor = Decompressor  # type: ignore[attr-defined]  # a fake module
    monkeypatch.setitem(sys.modules, "brotli", brotli)
    body = body_of(message(b"x" * 1000, b"Content-Encoding: br\r\n"), 1 << 20)
    assert (len(body.content), body.whole) == (len(fed) << 10, True)
    assert not body_of(message(b"x" * 999, b"Content-Encoding: br\r\n"), 1 << 20).whole
    assert max(fed) <= 64
    fed.clear()
    with pytest.raises(TooLargeError):
        body_of(message(b"x" * 1_000_000, b"Content-Encoding: br\r\n"), 1 << 20)
    assert len(fed) < 1100


def test_brotli_body_stays_encoded_without_brotli_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brotli", None)
    assert body_of(message(TEXT, b"Content-Encoding: br\r\n"), 1 << 20) == (TEXT, "br", True)
