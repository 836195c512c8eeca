from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec._framing.crc import crc32c, crcs_between, length_of, mask, masked_crc32c, masked_crc32c_of_lengths, unmask


def bitwise_crc32c(data: bytes) -> int:
    """The definition (RFC 3720, appendix B.4), bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_known_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert mask(0xE3069283) == masked_crc32c(b"123456789") == 0xC78AB0E5
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_a_crc_is_the_polynomial_of_the_definition_and_can_be_carried_on(first: bytes, second: bytes) -> None:
    assert crc32c(first + second) == bitwise_crc32c(first + second) == crc32c(second, crc32c(first))


@given(st.integers(0, 2**32 - 1))
def test_unmask_undoes_mask(crc: int) -> None:
    assert unmask(mask(crc)) == crc
    assert 0 <= mask(crc) < 2**32


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2**20), max_size=40))
def test_many_lengths_at_once_have_the_checksums_they_have_one_by_one(lengths: list[int]) -> None:
    crcs = masked_crc32c_of_lengths(np.array(lengths, np.uint64))
    assert crcs.dtype == np.uint32
    assert crcs.tolist() == [masked_crc32c(length.to_bytes(8, "little")) for length in lengths]


@pytest.mark.parametrize("bits", range(65))
def test_lengths_of_every_number_of_bits(bits: int) -> None:
    length = (1 << bits) - 1
    crcs = masked_crc32c_of_lengths(np.array([length], np.uint64))
    assert crcs.tolist() == [masked_crc32c(length.to_bytes(8, "little"))]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_a_length_follows_from_its_checksum(length: int) -> None:
    assert length_of(masked_crc32c(length.to_bytes(8, "little"))) == length


@settings(deadline=None)
@given(st.binary(max_size=3000), st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), max_size=9))
def test_the_crc_of_any_range_follows_from_the_running_one(data: bytes, ranges: list[tuple[int, int]]) -> None:
    ranges = [(min(begin, end, len(data)), min(max(begin, end), len(data))) for begin, end in ranges]
    before = np.array([crc32c(data[:begin]) for begin, _ in ranges], np.uint32)
    after = np.array([crc32c(data[:end]) for _, end in ranges], np.uint32)
    lengths = np.array([end - begin for begin, end in ranges], np.int64)
    assert crcs_between(before, after, lengths).tolist() == [crc32c(data[begin:end]) for begin, end in ranges]


def test_the_crc_of_a_range_of_gigabytes_follows_from_the_running_one() -> None:
    """Zeros carry a register as any bytes of that length do: 5 GiB of them in two steps are those in one."""
    half = np.array([5 << 29], np.int64)
    start = np.array([crc32c(b"start")], np.uint32)
    zero = np.zeros(1, np.uint32)
    assert crcs_between(crcs_between(start, zero, half), zero, half) == crcs_between(start, zero, 2 * half)
