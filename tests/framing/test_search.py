"""`FrameSearch` finds the first intact frame wherever it begins, in time proportional to the number of bytes."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec._framing.crc import length_of, masked_crc32c
from asyncrec._framing.frames import encode_frames
from asyncrec._framing.search import FrameSearch, find_headers

MOST = 1 << 20


def header(length: int) -> bytes:
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def frame(record: bytes) -> bytes:
    return b"".join(encode_frames([record]))


def find(data: bytes, step: int, *, base: int = 0, start: int | None = None) -> int | None:
    buffer = bytearray()
    search = FrameSearch(buffer, base=base, start=base if start is None else start, max_record_bytes=MOST)
    for begin in range(0, len(data), step):
        buffer += data[begin : begin + step]
        place = search.find(ended=False)
        if place is not None:
            rest = data[place - base :]
            assert bytes(buffer[place - search.base :]) == rest[: len(buffer) - (place - search.base)]
            return place
    return search.find(ended=True)


@settings(deadline=None)
@given(st.binary(max_size=200), st.lists(st.tuples(st.integers(0, 2**20), st.binary(max_size=9)), max_size=5))
def test_headers_are_found_by_matching_checksum(front: bytes, headers: list[tuple[int, bytes]]) -> None:
    data = front + b"".join(header(length) + junk for length, junk in headers)
    found = find_headers(data, MOST)
    assert found == [
        (at, length)
        for at in range(len(data) - 11)
        if (length := int.from_bytes(data[at : at + 8], "little")) <= MOST
        and masked_crc32c(data[at : at + 8]) == int.from_bytes(data[at + 8 : at + 12], "little")
    ]
    assert len(found) >= len(headers)


@pytest.mark.parametrize("most", [MOST, 2**32 - 1, 2**32, 2**40])
def test_length_is_accepted_up_to_limit(most: int) -> None:
    assert find_headers(header(most), most) == [(0, most)]
    assert find_headers(header(most + 1), most) == []


def test_header_with_zero_checksum_is_found_among_zeros() -> None:
    length = length_of(0)
    data = bytes(100) + header(length) + bytes(100)
    assert find_headers(data, 1 << 28) == [(100, length)]


@settings(deadline=None)
@given(
    st.binary(max_size=300),
    st.binary(max_size=40_000) | st.integers(0, 50_000).map(bytes),
    st.integers(1, 5000),
    st.integers(0, 10**9),
)
def test_frame_is_found_after_any_bytes_and_split(front: bytes, record: bytes, step: int, base: int) -> None:
    step = max(step, len(record) // 50)
    assert find(front + frame(record) + b"behind", step, base=base) == base + len(front)


@pytest.mark.parametrize("claim", [0, 5, 300, 16 << 10, (16 << 10) + 1, 100_000])
@pytest.mark.parametrize("step", [7, 4096, 1 << 20])
def test_search_skips_false_headers_and_finds_real_frame(claim: int, step: int) -> None:
    data = header(claim) * 3 + b"stuff" + frame(b"it") + bytes(120_000 if claim > 300 and step > 7 else 300)
    assert find(data, step) == 36 + 5


@pytest.mark.parametrize("step", [997, 1 << 20])
def test_outermost_of_nested_frames_is_found_first(step: int) -> None:
    inner = frame(b"i" * 20_000)
    outer = frame(b"front" + inner + b"behind")
    assert find(b"x" * 10 + outer, step) == 10
    broken = bytearray(outer)
    broken[-1] ^= 1
    assert find(b"x" * 10 + bytes(broken), step) == 10 + 12 + 5


def test_overlapping_large_frames_are_checked_in_one_pass() -> None:
    """Of many large frames that overlap, invalid ones are discarded, and the valid one is found."""
    source = random.Random(1)
    body = source.randbytes(200_000)
    lies = b"".join(header(50_000 + 13 * n) for n in range(200))
    data = lies + frame(body) + b"rest"
    for step in (1000, 30_000, 1 << 20):
        assert find(data, step) == len(lies)


def test_search_without_complete_frame_returns_no_offset() -> None:
    assert find(random.Random(2).randbytes(5000), 100) is None
    assert find(b"", 1) is None
    assert find(frame(b"cut short")[:-1], 5) is None


def test_search_drops_bytes_that_begin_no_frame() -> None:
    buffer = bytearray()
    search = FrameSearch(buffer, base=0, start=0, max_record_bytes=MOST)
    for _ in range(50):
        buffer += bytes(100_000)
        assert search.find(ended=False) is None
        assert len(buffer) < 12
