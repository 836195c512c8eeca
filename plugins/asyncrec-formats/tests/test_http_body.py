"""HTTP message bodies are decoded as by warcio, but never to more than the requested size."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from types import ModuleType
from typing import Any

import pytest
from asyncrec_formats.http_body import TooLargeError, body_of
from warcio.archiveiterator import ArchiveIterator

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


BODIES = [
    (TEXT, b""),
    (b"", b""),
    (chunked(TEXT), b"Transfer-Encoding: chunked\r\n"),
    (TEXT, b"Transfer-Encoding: chunked\r\n"),
    (b"-5\r\n" + TEXT, b"Transfer-Encoding: chunked\r\n"),
    (b"FFFFFFFFFFFF\r\n" + TEXT, b"Transfer-Encoding: chunked\r\n"),
    (gzip.compress(TEXT, mtime=0), b"Content-Encoding: gzip\r\n"),
    (gzip.compress(TEXT, mtime=0), b"Content-Encoding: GZip\r\n"),
    (gzip.compress(TEXT, mtime=0) + b"what follows", b"Content-Encoding: gzip\r\n"),
    (gzip.compress(TEXT, mtime=0)[:-10], b"Content-Encoding: gzip\r\n"),
    (gzip.compress(b"", mtime=0), b"Content-Encoding: gzip\r\n"),
    (b"", b"Content-Encoding: gzip\r\n"),
    (TEXT, b"Content-Encoding: gzip\r\n"),
    (zlib.compress(TEXT), b"Content-Encoding: deflate\r\n"),
    (DEFLATED, b"Content-Encoding: deflate\r\n"),
    (TEXT, b"Content-Encoding: identity\r\n"),
    (TEXT, b"Content-Encoding: gzip, br\r\n"),
    (chunked(gzip.compress(TEXT, mtime=0), 7), b"Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n"),
]


@pytest.mark.parametrize(("body", "headers"), BODIES)
def test_body_matches_warcio_decoding(body: bytes, headers: bytes) -> None:
    assert body_of(message(body, headers), 1 << 20) == message(body, headers).content_stream().read()


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
    assert body_of(record, 1 << 20) == bytes(1 << 20)


def test_body_keeps_bytes_decoded_before_damage() -> None:
    body = bytearray(gzip.compress(bytes(range(256)) * 10_000, compresslevel=0))
    body[-1_000_000:-999_000] = b"\xff" * 1000
    whole = body_of(message(bytes(body), b"Content-Encoding: gzip\r\n"), 1 << 30)
    assert whole.startswith(bytes(range(256)) * 100)


def test_brotli_decoder_is_fed_in_pieces_and_stopped_early(monkeypatch: pytest.MonkeyPatch) -> None:
    fed: list[int] = []

    class Decompressor:
        def process(self, data: bytes) -> bytes:
            fed.append(len(data))
            return bytes(1 << 10)

    brotli = ModuleType("brotli")
    brotli.Decompressor = Decompressor  # type: ignore[attr-defined]  # a module made here
    monkeypatch.setitem(sys.modules, "brotli", brotli)
    assert len(body_of(message(b"x" * 1000, b"Content-Encoding: br\r\n"), 1 << 20)) == len(fed) << 10
    assert max(fed) <= 64
    fed.clear()
    with pytest.raises(TooLargeError):
        body_of(message(b"x" * 1_000_000, b"Content-Encoding: br\r\n"), 1 << 20)
    assert len(fed) < 1100


def test_brotli_body_stays_encoded_without_brotli_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "brotli", None)
    assert body_of(message(TEXT, b"Content-Encoding: br\r\n"), 1 << 20) == TEXT
