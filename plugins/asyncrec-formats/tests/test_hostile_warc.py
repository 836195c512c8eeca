"""A WARC file made to waste time or memory takes time and memory in proportion to its size; its intact part is read."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
from asyncrec_formats import http_body, warc, warc_members
from asyncrec_formats.http_body import body_of
from asyncrec_formats.warc import _Parser

PAGE = (
    b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:1>\r\nWARC-Date: 2026-11-21T00:00:00Z\r\n"
    b"WARC-Target-URI: http://x/\r\nContent-Type: application/http; msgtype=response\r\nContent-Length: %d\r\n\r\n%s"
    b"\r\n\r\n"
)
_DECOMPRESSOBJ = zlib.decompressobj
OK = b"HTTP/1.1 200 OK\r\n\r\nfound"


def page(block: bytes = OK) -> bytes:
    return PAGE % (len(block), block)


def converted(content: bytes, step: int = 256 << 10) -> tuple[int, list[str]]:
    """Return the number of records, and the reasons why others are bad."""
    parser = _Parser("x", 256 << 20)
    records, bad = 0, []
    for at in range(0, len(content) + step, step):
        for found in parser.feed(content[at : at + step]):
            records += len(found.records)
            bad += [each.reason for each in found.bad]
    return records, bad


class Inflating:
    """Counts zlib's input and output bytes, which determine the time and the copying."""

    def __init__(self) -> None:
        self.taken = self.given = 0

    def __call__(self, wbits: int = zlib.MAX_WBITS) -> Inflating:
        counted = Inflating()
        counted._all, counted._inner = self, _DECOMPRESSOBJ(wbits)
        return counted

    def decompress(self, data: bytes, most: int) -> bytes:
        output = self._inner.decompress(data, most)
        self._all.taken += len(data) + len(self._inner.unconsumed_tail) + len(self._inner.unused_data)
        self._all.given += len(output)
        return output

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def inflating(monkeypatch: pytest.MonkeyPatch) -> Iterator[Inflating]:
    counting = Inflating()
    monkeypatch.setattr(warc_members.zlib, "decompressobj", counting)
    return counting


class Searching:
    """Counts how many characters a pattern was allowed to search."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern
        self.searched = 0

    def search(self, text: Any, begin: int = 0, end: int = 1 << 60) -> Any:
        found = self._pattern.search(text, begin, end)
        self.searched += (min(end, len(text)) if found is None else found.end()) - begin
        return found


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Searching]]:
    patterns = []
    for name in ("_LENGTH", "_NEXT"):
        patterns.append(Searching(getattr(warc, name)))
        monkeypatch.setattr(warc, name, patterns[-1])
    return patterns


@pytest.mark.parametrize("end", [b"\r\n\r\n", b""])
def test_false_record_headers_are_searched_once(searching: list[Searching], end: bytes) -> None:
    content = b"WARC/1.0\r\n" * 200_000 + end
    records, bad = converted(content + page())
    assert records == 1
    assert 1 <= len(bad) <= 3
    assert sum(each.searched for each in searching) < 3 * len(content)
    assert converted(content + b"\r\n\r\n" + page())[0] == 1


@pytest.mark.parametrize("head", [b"X: y\r\n" * 50_000, b""], ids=["a long header", "none"])
def test_reader_searches_small_members_once(searching: list[Searching], head: bytes) -> None:
    content = b"no record" * 3000 + b"WARC/1.0\r\n" + head + b"Content-Length: 2000\r\n\r\n" + bytes(2000)
    members = b"".join(gzip.compress(content[at : at + 3], mtime=0) for at in range(0, 15_000, 3))
    members += gzip.compress(content[15_000:-3000], mtime=0)
    members += b"".join(gzip.compress(content[-3000 + at :][:1], mtime=0) for at in range(3000))
    converted(members)
    assert sum(each.searched for each in searching) < 12 * len(content)


def leaping(units: int) -> bytes:
    """Return 20-byte GZIP members, each of which skips 65,535 bytes to the next one's header; the end is damaged."""
    unit = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + b"\0\xff\xff\0\0" + b"\0" * 5
    return unit * units + b"\xff" * 65_600


def test_members_within_damaged_members_are_inflated_within_budget(inflating: Inflating) -> None:
    content = leaping(100_000) + b"\xff" * 70_000
    records, bad = converted(content + gzip.compress(page()))
    assert bad
    assert inflating.taken < 6 * len(content) + (20 << 20)
    assert inflating.given < 6 * 16 * len(content) + (20 << 24)
    assert records == 1


def test_reader_limits_inflation_of_candidate_members(inflating: Inflating) -> None:
    """All of them skip to the same ten kB, which inflate to ten MiB before damaged data."""
    zeros = zlib.compressobj(9, zlib.DEFLATED, -15)
    much = zeros.compress(bytes(10 << 20)) + zeros.flush(zlib.Z_FULL_FLUSH)
    content = leaping(4000)[:-65_600] + b"\0\0\0\xff\xff" * 14_000 + much + b"\xff"
    assert converted(content)[1]
    assert 100 << 20 < inflating.given < 500 << 20


def test_empty_members_take_work_proportional_to_size(inflating: Inflating) -> None:
    content = gzip.compress(b"", 9, mtime=0) * 20_000
    assert converted(content + gzip.compress(page())) == (1, [])
    assert inflating.taken < 120 * len(content)  # reading 256 KiB for each would be 13,000 times


def test_reader_finds_every_intact_member_among_damaged() -> None:
    rng = random.Random(1)
    pages = [gzip.compress(page(b"HTTP/1.1 200 OK\r\n\r\n" + rng.randbytes(3000))) for _ in range(300)]
    for number in range(0, 300, 2):
        damaged = bytearray(pages[number])
        damaged[rng.randrange(len(damaged) // 2, len(damaged) - 8)] ^= 0x10
        pages[number] = bytes(damaged)
    records, bad = converted(b"".join(pages))
    assert records == 150
    assert len(bad) >= 150


def test_member_without_output_uses_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warc_members, "_HELD_BYTES", 1 << 20)
    empty_blocks = b"\0\0\0\xff\xff" * 2_000_000
    content = b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + empty_blocks
    parser = _Parser("x", 256 << 20)
    tracemalloc.start()
    try:
        for at in range(0, len(content), 256 << 10):
            assert not list(parser.feed(content[at : at + (256 << 10)]))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_endless_http_headers_use_bounded_memory() -> None:
    content = page(b"HTTP/1.1 200 OK\r\n" + b"a:b\r\n" * 1_000_000)
    tracemalloc.start()
    try:
        records, bad = converted(content)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (records, bad) == (0, ["the HTTP headers have more than 1,048,576 bytes"])
    assert peak < 6 * len(content)
    assert converted(page(OK + bytes(2 << 20))) == (1, [])


def test_body_is_inflated_in_slices(inflating: Inflating, monkeypatch: pytest.MonkeyPatch) -> None:
    body = random.Random(1).randbytes(8 << 20)
    raw = gzip.compress(body, 0)

    class Record:
        class http_headers:  # noqa: N801  # as warcio's
            headers = (("Content-Encoding", "gzip"),)

        class raw_stream:  # noqa: N801
            read = staticmethod(lambda: raw)

    assert http_body.zlib is zlib
    assert body_of(Record, 16 << 20) == (body, "", True)
    assert inflating.taken < 3 * len(raw)
