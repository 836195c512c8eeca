"""Encoding frames in C and with NumPy produces the same buffers."""

from __future__ import annotations

import struct
import sys
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings

from asyncrec._framing import encoding
from asyncrec._framing.crc import Buffer, masked_crc32c
from asyncrec._framing.encoding import encode_frames, encode_frames_in_python

from .pieces import LARGE, sized_records, small_records

Encode = Callable[[Sequence[bytes]], list[Buffer]]


@pytest.fixture(
    params=[
        # Without a compiler, only NumPy is tested, and the ids of the tests say so.
        pytest.param(encode_frames, id="c" if encoding.native else "numpy"),
        pytest.param(encode_frames_in_python, id="numpy"),
    ],
    scope="module",
)
def encode(request: pytest.FixtureRequest) -> Encode:
    function: Encode = request.param
    return function


def frame(record: bytes) -> bytes:
    """Encode a frame with a simple second implementation of the layout."""
    length = struct.pack("<Q", len(record))
    footer = struct.pack("<I", masked_crc32c(record))
    return length + struct.pack("<I", masked_crc32c(length)) + record + footer


def test_frames_of_known_records_match_expected_bytes(encode: Encode) -> None:
    assert b"".join(encode([b""])) == bytes.fromhex("000000000000000029039807d8ea82a2")
    assert b"".join(encode([b"abc"])) == bytes.fromhex("0300000000000000b099490e6162636e57f121")


@given(small_records | sized_records)
@settings(deadline=None)
def test_frames_match_documented_layout(encode: Encode, records: list[bytes]) -> None:
    assert b"".join(encode(records)) == b"".join(map(frame, records))


@pytest.mark.parametrize("count", [0, 1, 2, 31, 32, 33, 1024])
def test_frames_are_independent_of_batch_size(encode: Encode, count: int) -> None:
    records = [bytes([index % 256]) * index for index in range(count)]
    assert b"".join(encode(records)) == b"".join(map(frame, records))


def test_empty_record_list_yields_no_buffers(encode: Encode) -> None:
    assert encode([]) == []


@pytest.mark.parametrize("count", [1, 3, 40])
def test_large_records_are_passed_on_as_same_objects(encode: Encode, count: int) -> None:
    records = [bytes([index]) * LARGE for index in range(count)]
    buffers = encode(records)
    assert [id(buffer) for buffer in buffers[1::2]] == [id(record) for record in records]
    assert [len(buffer) for buffer in buffers[0::2]] == [12, *[16] * (count - 1), 4]


@pytest.mark.parametrize("around", [2, 30])
def test_small_records_around_large_record_are_joined(encode: Encode, around: int) -> None:
    large = bytes(LARGE)
    records = [b"small"] * around + [large] + [b"small"] * around
    buffers = encode(records)
    assert len(buffers) == 3
    assert buffers[1] is large
    assert b"".join(buffers) == b"".join(map(frame, records))


def test_small_records_are_joined_into_one_buffer(encode: Encode) -> None:
    assert len(encode([b"small"] * 1024)) == 1


@given(sized_records)
@settings(deadline=None)
def test_c_and_python_framing_split_buffers_identically(records: list[bytes]) -> None:
    assert list(map(bytes, encode_frames(records))) == list(map(bytes, encode_frames_in_python(records)))


@pytest.mark.parametrize("length", [0, 1, 255, 256, 65_535, 65_536, 16_777_215, 16_777_216])
def test_length_checksum_covers_every_byte(encode: Encode, length: int) -> None:
    record = bytes(length)
    assert b"".join(encode([record]))[:12] == frame(record)[:12]


@pytest.mark.parametrize("count", [1, 40])
def test_text_record_is_rejected(encode: Encode, count: int) -> None:
    with pytest.raises(TypeError):
        encode([b"good"] * count + ["text"])  # type: ignore[list-item]  # the mistake


def test_framing_leaks_no_reference(encode: Encode) -> None:
    records = [b"%d" % n * 20 for n in range(40)] + [bytes(LARGE), b"last one"]
    before = [sys.getrefcount(record) for record in records]
    for _ in range(10):
        encode(records)
        with pytest.raises(TypeError):
            encode([*records, None])  # type: ignore[list-item]  # the mistake
    assert [sys.getrefcount(record) for record in records] == before


def test_list_that_shrinks_during_framing_is_harmless() -> None:
    """Computing the checksum of a long record releases the GIL, so another thread may change the list."""
    records = [bytes(60_000) for _ in range(2_000)]
    expected = b"".join(encode_frames(records[:1]))
    done = threading.Event()

    def empty() -> None:
        while not done.is_set() and records:
            records.pop()

    thread = threading.Thread(target=empty)
    thread.start()
    try:
        framed = b"".join(encode_frames(records))
    finally:
        done.set()
        thread.join()
    assert framed == expected * (len(framed) // len(expected))
