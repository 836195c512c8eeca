"""Integers of any size are encoded as in protobuf, and read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from asyncrec.errors import DecodeError
from asyncrec.example._varints import int64_values, varint, varints
from asyncrec.example.proto.example_pb2 import Int64List

INT64S = st.integers(-(2**63), 2**63 - 1)


@settings(deadline=None)
@given(st.lists(INT64S, max_size=40))
@example([2**63 - 1, -1, 0, 127, 128, 2**35])
def test_packed_integers_of_any_width_are_decoded(values: list[int]) -> None:
    packed = b"".join(Int64List(value=[value]).SerializeToString()[2:] for value in values)
    read = int64_values(packed)
    assert read.tolist() == values
    assert read.flags.writeable


@pytest.mark.parametrize("payload", [b"\x80", b"\x01\xff", b"\xff" * 10 + b"\x01"])
def test_malformed_packed_integers_are_rejected(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        int64_values(payload)


@pytest.mark.parametrize("size", [0, 1, 16, 17, 300])
@pytest.mark.parametrize("top", [2**6, 2**13, 2**40, 2**63 - 1])
def test_varints_match_protobuf_for_any_count(size: int, top: int) -> None:
    values = np.random.default_rng(size).integers(-1 if top > 2**50 else 0, top, size)
    assert varints(values) == b"".join(varint(int(value) % 2**64) for value in values)
    assert int64_values(varints(values)).tolist() == values.tolist()


def test_varints_round_trip_beyond_one_block() -> None:
    values = np.arange(-70_000, 70_000)
    assert np.array_equal(int64_values(varints(values)), values)
