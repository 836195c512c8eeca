"""`asyncrec._records.index`: index files in the text format that DALI and the tfrecord package read."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._records.index import RecordIndex, encode_index, parse_index
from asyncrec._records.record_size import pack_lengths
from asyncrec.errors import FormatError

LENGTHS = st.lists(st.integers(0, 1 << 40), max_size=50)


def test_index_lists_offset_and_frame_size_per_record() -> None:
    assert encode_index(0, pack_lengths([0, 3, 100])) == b"0 16\n16 19\n35 116\n"


def test_gzip_index_adds_member_offset_as_third_column() -> None:
    assert encode_index(7, pack_lengths([0, 3]), member=4096) == b"7 16 4096\n23 19 4096\n"


@given(LENGTHS, st.integers(0, 1 << 50), st.none() | st.integers(0, 1 << 50))
def test_index_round_trips_through_text(lengths: list[int], start: int, member: int | None) -> None:
    index = parse_index(encode_index(start, pack_lengths(lengths), member=member))
    assert len(index) == len(lengths)
    assert index.sizes.tolist() == [length + 16 for length in lengths]
    assert index.offsets.tolist() == [start + sum(lengths[:i]) + 16 * i for i in range(len(lengths))]
    if lengths:
        assert (index.members is None) == (member is None)
    assert index.encode() == encode_index(start, pack_lengths(lengths), member=member)


@pytest.mark.parametrize(
    "text",
    [
        b"1 2", b"1\n", b"1 16\n2\n", b"a b\n", b"1 2 3 4\n", b"-1 16\n", b"0 15\n", b"0 99999999999999999999\n",
        b"\n", b"0 16\n\n1 17 3\n", b"0 16\n1: 16\n", b"0 16\n1/ 16\n", b"0 16\n1.5 16\n", b"+0 16\n", b"0 1_6\n",
        b"10 " * 500_000 + b"\n", b"1 16\n" + b"10 " * 500_000 + b"x\n", b"1\t16\r\n" + b"10 " * 500_000 + b"\n",
    ],
)  # fmt: skip
def test_malformed_index_is_rejected_in_bounded_memory(text: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="not a valid index:"):
            parse_index(text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * len(text) + 100_000


def test_index_with_tabs_and_crlf_is_read() -> None:
    index = parse_index(b"0\t16\r\n16\t17\r\n")
    assert (index.offsets.tolist(), index.sizes.tolist()) == ([0, 16], [16, 17])


def test_empty_index_is_empty_file() -> None:
    assert len(parse_index(b"")) == 0
    assert RecordIndex.of_sizes(np.empty(0, np.int64)).encode() == b""


@given(st.lists(st.integers(0, 3), min_size=1, max_size=100), st.lists(st.integers(1, 400), max_size=5))
def test_index_column_behaves_like_array(lengths: list[int], steps: list[int]) -> None:
    sizes = np.array(lengths, np.int64) * 1000 + 16
    starts = np.cumsum(sizes) - sizes
    begins = [0, *np.cumsum(steps, dtype=np.int64).tolist()]
    index = RecordIndex.of_sizes(sizes, [(2 * begin, begin) for begin in begins])
    member = np.searchsorted(begins, starts, side="right") - 1
    offsets = starts - np.array(begins)[member]
    assert index.members is not None
    for column, whole in (
        (index.offsets, offsets),
        (index.members, 2 * np.array(begins)[member]),
        (index.sizes, sizes),
    ):
        assert column.tolist() == list(column) == whole.tolist()
        assert list(map(column.item, range(len(whole)))) == whole.tolist()
        assert column[:-3:2].tolist() == whole[:-3:2].tolist()
        assert column[np.flatnonzero(sizes > 16)].tolist() == whole[sizes > 16].tolist()
        assert column[sizes > 16].tolist() == whole[sizes > 16].tolist()
        assert (column[-1], len(column)) == (whole[-1], len(whole))
    for record in range(len(index)):
        byte, skip = index.beginning(record)
        assert (index.members[record - skip], index.offsets[record - skip] - offsets[record - skip]) == (byte, 0)
        assert record == skip or index.members[record - skip - 1] != byte
