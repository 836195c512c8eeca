"""Stored values are converted to the type in the schema, or raise an error that names the record."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from asyncrec.example._dtypes import Misfit, cast, raw_array

COUNTS = np.array([1, 0, -1, 2])  # the third value is in row 3


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("bool", [0, 1, 1]), ("int8", [-128, 127, 0]), ("uint8", [0, 255, 1]), ("int32", [-(2**31), 2**31 - 1, 0]),
        ("uint32", [0, 2**32 - 1, 5]), ("uint64", [0, 2**63 - 1, 5]), ("int64", [-(2**63), 2**63 - 1, 5]),
    ],
)  # fmt: skip
def test_integers_are_cast_to_type_that_fits(dtype: str, values: list[int]) -> None:
    found = cast(np.array(values), dtype, COUNTS)
    assert found.dtype == dtype
    assert found.tolist() == values


@pytest.mark.parametrize(
    ("dtype", "wrong"), [("bool", 2), ("int8", 128), ("uint8", -1), ("int32", 2**31), ("uint32", 2**32), ("uint64", -1)]
)
def test_out_of_range_integer_raises_misfit_with_row(dtype: str, wrong: int) -> None:
    with pytest.raises(Misfit, match=f"{wrong} is not a valid {dtype}") as caught:
        cast(np.array([1, 0, wrong]), dtype, COUNTS)
    assert caught.value.row == 3


def test_floats_widen_exactly_and_narrow_only_without_loss() -> None:
    floats = np.array([0.1, math.inf, math.nan], np.float32)
    assert np.array_equal(cast(floats, "float64", COUNTS), floats.astype(np.float64), equal_nan=True)
    assert cast(np.array([0.5, -math.inf, math.nan], np.float32), "float16", COUNTS).dtype == np.float16
    for wrong in (0.1, 1e6):
        with pytest.raises(Misfit, match="is not a valid float16") as caught:
            cast(np.array([0.5, 0.5, wrong], np.float32), "float16", COUNTS)
        assert caught.value.row == 3


def test_invalid_utf8_text_raises_misfit_with_row() -> None:
    assert cast(["é".encode(), b"", b"b"], "str", COUNTS).tolist() == ["é", "", "b"]
    with pytest.raises(Misfit, match='is not UTF-8; declare the feature as "bytes"') as caught:
        cast([b"a", b"b", b"\xff"], "str", COUNTS)
    assert caught.value.row == 3
    assert cast([b"a\0", b"", b"\xff"], "bytes", COUNTS).tolist() == [b"a\0", b"", b"\xff"]


@pytest.mark.parametrize("dtype", ["float64", "float16", "int8", "uint64", "bool"])
def test_raw_bytes_decode_as_little_endian_array(dtype: str) -> None:
    array: Any = np.array([0, 1, 1], dtype)
    little = array.astype(array.dtype.newbyteorder("<")).tobytes()
    found = raw_array([little, little], dtype)
    assert found.tolist() == [*array.tolist(), *array.tolist()]
    assert found.dtype == dtype
    assert found.flags.writeable
