from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import crc32c as package
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asyncrec._framing.crc import crc32c, crcs_between, length_of, mask, masked_crc32c, masked_crc32c_of_lengths, unmask
from asyncrec._native import native

Sum = Callable[..., int]
# Without a compiler, there is only the one from the package.
SUMS = {"package": package.crc32c}
if native is not None:
    SUMS |= {native.crc32c_path(): native.crc32c, "tables": native.crc32c_by_tables}


@pytest.fixture(params=SUMS.values(), ids=SUMS, scope="module")
def crc(request: pytest.FixtureRequest) -> Sum:
    function: Sum = request.param
    return function


def bitwise_crc32c(data: bytes, value: int = 0) -> int:
    """Compute CRC-32C bit by bit according to its definition (RFC 3720, appendix B.4)."""
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_crc_matches_known_values() -> None:
    assert crc32c(b"123456789") == 0xE3069283
    assert mask(0xE3069283) == masked_crc32c(b"123456789") == 0xC78AB0E5
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720
    assert crc32c(b"\xff" * 32) == 0x62A8AB43


@given(st.binary(max_size=64), st.binary(max_size=64))
def test_crc_matches_its_definition_and_can_be_continued(first: bytes, second: bytes) -> None:
    assert crc32c(first + second) == bitwise_crc32c(first + second) == crc32c(second, crc32c(first))


@given(st.binary(max_size=600), st.integers(0, 2**32 - 1))
@example(b"", 0)
@example(b"123456789", 0)
def test_every_crc_implementation_matches_definition(crc: Sum, data: bytes, value: int) -> None:
    assert crc(data) == bitwise_crc32c(data)
    assert crc(data, value) == bitwise_crc32c(data, value)


@given(st.integers(0, 20_000), st.integers(0, 40), st.randoms(use_true_random=False))
def test_checksum_is_same_for_any_alignment_and_split(crc: Sum, size: int, skipped: int, random: Random) -> None:
    """Long data is processed in several parallel parts, regardless of its alignment."""
    data = memoryview(random.randbytes(size + skipped))[skipped:]
    whole = crc(data)
    assert whole == package.crc32c(data) == crc(bytearray(data))
    cut = random.randrange(size + 1)
    assert crc(data[cut:], crc(data[:cut])) == whole


@pytest.mark.parametrize("wrong", ["text", 5, None, [1], np.zeros((2, 2))[:, :1]])
def test_crc_rejects_values_other_than_buffers(crc: Sum, wrong: object) -> None:
    with pytest.raises((TypeError, ValueError, BufferError)):
        crc(wrong)
    with pytest.raises((TypeError, ValueError)):
        crc(b"", "value")


def test_checksums_of_long_data_match_across_threads(crc: Sum) -> None:
    data = bytes(8 << 20)
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(crc(data))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {crc(data)}


@given(st.integers(0, 2**32 - 1))
def test_unmask_undoes_mask(crc: int) -> None:
    assert unmask(mask(crc)) == crc
    assert 0 <= mask(crc) < 2**32


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 2**20), max_size=40))
def test_batched_length_checksums_equal_single_checksums(lengths: list[int]) -> None:
    crcs = masked_crc32c_of_lengths(np.array(lengths, np.uint64))
    assert crcs.dtype == np.uint32
    assert crcs.tolist() == [masked_crc32c(length.to_bytes(8, "little")) for length in lengths]


@pytest.mark.parametrize("bits", range(65))
def test_batched_length_checksums_match_for_every_bit_width(bits: int) -> None:
    length = (1 << bits) - 1
    crcs = masked_crc32c_of_lengths(np.array([length], np.uint64))
    assert crcs.tolist() == [masked_crc32c(length.to_bytes(8, "little"))]


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_length_is_recovered_from_its_checksum(length: int) -> None:
    assert length_of(masked_crc32c(length.to_bytes(8, "little"))) == length


@settings(deadline=None)
@given(st.binary(max_size=3000), st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 3000)), max_size=9))
def test_range_crc_follows_from_running_crc(data: bytes, ranges: list[tuple[int, int]]) -> None:
    ranges = [(min(begin, end, len(data)), min(max(begin, end), len(data))) for begin, end in ranges]
    before = np.array([crc32c(data[:begin]) for begin, _ in ranges], np.uint32)
    after = np.array([crc32c(data[:end]) for _, end in ranges], np.uint32)
    lengths = np.array([end - begin for begin, end in ranges], np.int64)
    assert crcs_between(before, after, lengths).tolist() == [crc32c(data[begin:end]) for begin, end in ranges]


def test_range_crc_covers_gigabytes() -> None:
    """Zeros move a register as other bytes of the same length do: 5 GiB in two steps give the same as in one."""
    half = np.array([5 << 29], np.int64)
    start = np.array([crc32c(b"start")], np.uint32)
    zero = np.zeros(1, np.uint32)
    assert crcs_between(crcs_between(start, zero, half), zero, half) == crcs_between(start, zero, 2 * half)
