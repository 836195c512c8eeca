"""The sizes, checksums and ETags of multipart uploads."""

from __future__ import annotations

import hashlib

import pytest
from asyncrec_s3.parts import (
    MAX_PARTS,
    MIB,
    MIN_PART,
    Digest,
    base64_of_crc,
    crc_of_base64,
    is_md5,
    multipart_etag,
    part_size,
)  # fmt: skip
from hypothesis import given, settings
from hypothesis import strategies as st

TIB = 1 << 40


@settings(deadline=None)  # each example has ten thousand sizes, which is slow on a busy machine
@given(first=st.integers(MIN_PART, 5 << 30))
def test_part_sizes_grow_to_reach_five_tebibytes(first: int) -> None:
    """For any first part, no part exceeds 5 GiB or is shorter than the one before, and all parts can hold 5 TiB."""
    sizes = [part_size(number, first) for number in range(1, MAX_PARTS + 1)]
    assert sizes[0] == first
    assert sizes == sorted(sizes)
    assert sizes[-1] <= 5 << 30
    assert sum(sizes) >= 5 * TIB


def test_first_parts_have_equal_size() -> None:
    """The first 7 GiB have parts of 8 MiB, so memory is the same for all usual shards."""
    assert {part_size(number, 8 * MIB) for number in range(1, 901)} == {8 * MIB}
    assert part_size(901, 8 * MIB) == 16 * MIB


@pytest.mark.parametrize("number", [0, -1, MAX_PARTS + 1])
def test_part_size_rejects_numbers_out_of_range(number: int) -> None:
    with pytest.raises(ValueError, match="10,000"):
        part_size(number, 8 * MIB)


@given(parts=st.lists(st.binary(max_size=50), min_size=1, max_size=20))
def test_multipart_etag_is_md5_of_part_md5s(parts: list[bytes]) -> None:
    """The ETag is the MD5 of the parts' MD5s, followed by the number of parts."""
    etags = [hashlib.md5(part).hexdigest() for part in parts]
    joined = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
    assert multipart_etag(etags) == f"{joined}-{len(parts)}"
    assert is_md5(multipart_etag(etags) or "")
    assert multipart_etag([*etags, "opaque"]) is None


@given(value=st.integers(0, 0xFFFFFFFF))
def test_crc32c_round_trips_through_base64(value: int) -> None:
    assert crc_of_base64(base64_of_crc(value)) == value


@pytest.mark.parametrize("text", [None, "", "AAAAAA==-3", "AAAA", "!!!!"])
def test_crc_of_base64_ignores_other_checksums(text: str | None) -> None:
    """The checksum is missing, a checksum of checksums, or not a CRC32C."""
    assert crc_of_base64(text) is None


def test_digests_match_s3_encoding() -> None:
    """The values are from RFC 1864 and RFC 3720."""
    assert Digest(b"", "md5").params == {"ContentMD5": "1B2M2Y8AsgTpgAmY7PhCfg=="}
    assert Digest(b"123456789", "crc32c").crc32c == base64_of_crc(0xE3069283)
    assert Digest(b"123456789", "crc32c").params == {"ChecksumCRC32C": "4waSgw=="}
