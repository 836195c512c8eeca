"""Many positions are read at once; positions beyond the end of the data do not match."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.example._codec import encode_example
from asyncrec.example._scan import PADDING, Scan, fit
from asyncrec.example._varints import varint
from asyncrec.example._wire import BYTES, FLOAT, INT64


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**35 - 1), min_size=1, max_size=30))
def test_scan_reads_varints_of_any_width(lengths: list[int]) -> None:
    encoded = [varint(length) for length in lengths]
    ends = np.cumsum([len(piece) for piece in encoded])
    starts = ends - [len(piece) for piece in encoded]
    values, behind = Scan(b"".join(encoded) + bytes(PADDING)).varint(starts)
    assert values.tolist() == lengths
    assert behind.tolist() == ends.tolist()


def test_overlong_length_exceeds_any_record() -> None:
    values, _ = Scan(b"\xff" * 6 + bytes(PADDING)).varint(np.array([0]))
    assert values[0] >= 1 << 40


@pytest.mark.parametrize("literal", [b"a", b"ab", b"abcdefgh", b"abcdefghi", b"abcdefghijklmnopqrst"])
def test_expect_compares_every_byte_of_literal(literal: bytes) -> None:
    others = [literal[:at] + b"#" + literal[at + 1 :] for at in range(len(literal))]
    data = b"".join([literal, *others, literal])
    scan = Scan(data + bytes(PADDING))
    same, behind = scan.expect(np.arange(len(others) + 2) * len(literal), literal)
    assert same.tolist() == [True, *[False] * len(others), True]
    assert behind[0] == len(literal)
    assert not scan.expect(np.array([len(data) - len(literal) + 1, len(data) + 1000, 1 << 40]), literal)[0].any()


def test_fit_locates_values_of_matching_layout() -> None:
    records = [encode_example({"a": i, "b": "x" * i, "c": [1.5] * (i % 3)}) for i in range(1, 6)]
    records[3] = encode_example({"a": 1, "z": "x", "c": [1.5]})
    data = b"".join(records) + bytes(PADDING)
    stops = np.cumsum([len(record) for record in records])
    starts = stops - [len(record) for record in records]
    layout = [("a", INT64), ("b", BYTES), ("c", FLOAT)]
    fits, spans = fit(data, starts, stops, layout, {"a": INT64, "c": FLOAT})
    assert fits.tolist() == [True, True, False, False, True]  # the third has no floats, so no kind; the fourth no "b"
    assert set(spans) == {"a", "c"}
    for row in (0, 1, 4):
        assert data[slice(*spans["a"][:, row])] == bytes([row + 1])
        assert len(data[slice(*spans["c"][:, row])]) == 4 * ((row + 1) % 3)
