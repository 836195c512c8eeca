"""`asyncrec._records.torn_end` completes a GZIP member whose writer died."""

from __future__ import annotations

import gzip
import os

import pytest

from asyncrec._framing.compression import CompressionOptions, make_compressor
from asyncrec._records.torn_end import finish_member


@pytest.mark.parametrize("level", [None, 1, 6])
@pytest.mark.parametrize("flushed", [b"", b"text" * 1000, os.urandom(100_000)])
def test_repaired_member_keeps_exactly_flushed_data(level: int | None, flushed: bytes) -> None:
    compressor = make_compressor(CompressionOptions(type="GZIP", level=level))
    member = b"".join(compressor.compress([flushed])) + compressor.flush()
    torn = member + b"".join(compressor.compress([os.urandom(300_000)]))
    keep, tail = finish_member(torn)
    assert keep == len(member)
    assert gzip.decompress(torn[:keep] + tail) == flushed


def test_flush_marker_within_data_is_not_mistaken_for_flush() -> None:
    data = b"\x00\x00\xff\xff" * 50
    compressor = make_compressor(CompressionOptions(type="GZIP", level=0))  # stored uncompressed
    member = b"".join(compressor.compress([data])) + compressor.flush()
    torn = member + b"\x00\x20\x00\xdf\xff" + data[:16]  # a stored block of 32 bytes, cut in half
    keep, tail = finish_member(torn)
    assert gzip.decompress(torn[:keep] + tail) == data


@pytest.mark.parametrize("member", [b"", b"\x1f\x8b", b"no member at all", b"\x1f\x8b\x08\x00" + bytes(5000)])
def test_unflushed_member_keeps_no_bytes(member: bytes) -> None:
    assert finish_member(member) == (0, b"")
