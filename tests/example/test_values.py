"""A value is stored unchanged, or raises an error that says why it cannot be."""

from __future__ import annotations

import datetime
import enum
import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from asyncrec.errors import SchemaError
from asyncrec.example._values import raw_of
from asyncrec.example._varints import int64_values
from asyncrec.example._wire import BYTES, FLOAT, INT64, NONE
from asyncrec.example.proto.example_pb2 import Int64List


class Colour(enum.IntEnum):
    RED = 7


def ints(*values: int) -> tuple[int, bytes]:
    return INT64, Int64List(value=values).SerializeToString()[2:]


def floats(*values: float) -> tuple[int, bytes]:
    return FLOAT, struct.pack(f"<{len(values)}f", *values)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, ints(3)),
        (-1, ints(-1)),
        (2**63 - 1, ints(2**63 - 1)),
        (-(2**63), ints(-(2**63))),
        (True, ints(1)),
        (Colour.RED, ints(7)),
        (np.int8(-3), ints(-3)),
        (np.uint64(5), ints(5)),
        (np.bool_(True), ints(1)),
        (0.1, floats(0.1)),
        (math.inf, floats(math.inf)),
        (np.float16(0.5), floats(0.5)),
        (np.float64(0.5), floats(0.5)),
        (np.longdouble(0.5), floats(0.5)),
        ("é", (BYTES, ["é".encode()])),
        (np.str_("é"), (BYTES, ["é".encode()])),
        (b"\0", (BYTES, [b"\0"])),
        (np.bytes_(b"ab"), (BYTES, [b"ab"])),
        (bytearray(b"ab"), (BYTES, [b"ab"])),
        (memoryview(b"abcd")[::2], (BYTES, [b"ac"])),
        ([], (NONE, b"")),
        ((1, 300), ints(1, 300)),
        ([True, False], ints(1, 0)),
        ([1, np.int32(2)], ints(1, 2)),
        ([0.1, -2.5], floats(0.1, -2.5)),
        ([np.float32(0.1), np.float32(2)], floats(0.1, 2)),
        ([np.float16(0.5), 1.5], floats(0.5, 1.5)),
        (["a", "b"], (BYTES, [b"a", b"b"])),
        ([b"a", bytearray(b"b")], (BYTES, [b"a", b"b"])),
        (np.array(5), ints(5)),
        (np.zeros((2, 0), np.float32), (FLOAT, b"")),
        (np.zeros(0, np.int16), (INT64, b"")),
        (np.array(["a", "é"]), (BYTES, [b"a", "é".encode()])),
        (np.array([b"a", b"bc"]), (BYTES, [b"a", b"bc"])),
        (np.array([b"a\0", "b"], object)[:1], (BYTES, [b"a\0"])),
        (np.array([], object), (BYTES, [])),
        (np.array([[1, 2], [3, 4]]), ints(1, 2, 3, 4)),
        (np.array([[1, 2], [3, 4]]).T, ints(1, 3, 2, 4)),
        (np.arange(6, dtype=">i4")[::2], ints(0, 2, 4)),
        (np.array([1, 2], ">f4"), floats(1, 2)),
        (np.array([[1, 2], [3, 4]], np.float32, order="F"), floats(1, 2, 3, 4)),
        (np.array([0.5, math.inf]), floats(0.5, math.inf)),
        (np.array([True, False]), ints(1, 0)),
    ],
    # Some reprs contain addresses, which would give a test different names in different test processes.
    ids=lambda value: repr(value).split(" at 0x")[0],
)
def test_storable_value_converts_to_raw_feature(value: object, expected: object) -> None:
    assert raw_of(value) == expected


@pytest.mark.parametrize("value", [math.nan, [math.nan], np.array([math.nan]), np.float64(math.nan)], ids=repr)
def test_nan_is_storable(value: object) -> None:
    kind, payload = raw_of(value)
    assert kind == FLOAT
    assert np.isnan(np.frombuffer(payload, "<f4")).all()  # type: ignore[call-overload]  # no list: of FLOAT


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "the value is None; leave the feature out, or pass a value"),
        ([1, None], "value 1 of the list is None"),
        (2**63, "9223372036854775808 is out of range for int64"),
        (-(2**63) - 1, "-9223372036854775809 is out of range for int64"),
        ([1, 2**64], "18446744073709551616 is out of range for int64"),
        (np.uint64(2**63), "9223372036854775808 is out of range for int64"),
        (np.array([1, 2**64 - 1], np.uint64), "18446744073709551615 is out of range for int64"),
        (1e300, "out of range for float32"),
        ([1.0, -1e300], "-1e\\+300 is out of range for float32"),
        ([1.5, 10**400], "an integer of 1329 bits is out of range for float32"),
        (np.array([1e300]), "the array of float64 contains values that are out of range for float32, such as"),
        (np.float64(1e300), "out of range for float32"),
        ([np.float64(0.5), np.float64(1e300)], "1e\\+300 is out of range for float32"),
        ([1, True], "the list mixes bool and int; use values of one type, or an array"),
        (["a", b"b"], "the list mixes bytes and str; use values of one type, or an array"),
        ([1, "a"], "the list mixes int and str; use values of one type, or an array"),
        ([[1, 2], [3, 4]], r"the list is nested \(value 0 is a list\); pass an array, or flatten the list"),
        (
            [np.zeros(2), np.zeros(2)],
            r"the list is nested \(value 0 is a ndarray\); pass an array, or flatten the list",
        ),
        (np.array([None], object), "value 0 of the list is None"),
        ({"x": 1}, "the value is a dict; pass each of its values under its own name, such as"),
        ({1, 2}, "a set; a feature must hold integers, floats or bytes"),
        (1j, "a complex"),
        (np.array([1j]), "an array of complex128"),
        (np.datetime64("2026-01-01"), "an array of datetime64"),
        (np.array([np.timedelta64(1, "s")]), "an array of timedelta64"),
        (datetime.date(2026, 1, 1), "a date"),
        ([datetime.date(2026, 1, 1)], "value 0 of the list is a date"),
        (np.zeros(1, "i4,f4"), "an array of void64"),
        (np.ma.masked_array([1, 2], [True, False]), "a masked array; fill its masked values"),
        ("\ud800", "cannot be encoded as UTF-8"),
        (range(3), "a range"),
    ],
    ids=repr,
)
def test_unstorable_value_raises(value: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        raw_of(value)


@pytest.mark.parametrize(
    ("value", "narrowed"),
    [
        (np.array([0.1, math.inf]), floats(0.1, math.inf)),
        (np.array([[0.1], [0.2]]), floats(0.1, 0.2)),
        (np.longdouble("0.1"), floats(0.1)),
        (np.float64(0.1), floats(0.1)),
        ([np.float64(0.1), np.float64(0.5)], floats(0.1, 0.5)),
        ([1, 2.5, np.int8(3)], floats(1, 2.5, 3)),
        (np.array([0.1, 2], object), floats(0.1, 2)),
    ],
    ids=repr,
)
def test_wide_numbers_are_rounded_unless_narrow_is_false(value: object, narrowed: object) -> None:
    assert raw_of(value) == narrowed
    with pytest.raises(SchemaError, match=r"omit narrow=False to round them|mixes float and int"):
        raw_of(value, narrow=False)


def test_narrow_false_accepts_values_exact_in_float32() -> None:
    assert raw_of(np.array([0.5, math.inf, -math.inf]), narrow=False) == floats(0.5, math.inf, -math.inf)
    assert raw_of([0.1], narrow=False) == floats(0.1)  # Python has only one float type


def test_tensor_converts_like_its_array() -> None:
    class Tensor:
        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:  # type: ignore[type-arg]  # of floats
            return np.array([0.1, 2.0])

    assert raw_of(Tensor()) == floats(0.1, 2)
    with pytest.raises(SchemaError, match="a type"):
        raw_of(np.ndarray)


@settings(deadline=None)
@given(npst.arrays(npst.integer_dtypes() | npst.unsigned_integer_dtypes(sizes=(8, 16, 32)), npst.array_shapes()))
def test_integer_arrays_of_any_type_keep_values(array: np.ndarray) -> None:  # type: ignore[type-arg]  # of any integers
    kind, payload = raw_of(array)
    assert kind == INT64
    assert int64_values(payload).tolist() == array.reshape(-1).tolist()  # type: ignore[arg-type]  # no list: of INT64


@settings(deadline=None)
@given(npst.arrays(npst.floating_dtypes(sizes=(16, 32)), npst.array_shapes()), st.booleans())
def test_small_float_arrays_keep_values(array: np.ndarray, transposed: bool) -> None:  # type: ignore[type-arg]  # of any floats
    array = array.T if transposed else array
    kind, payload = raw_of(array)
    assert kind == FLOAT
    assert np.array_equal(np.frombuffer(payload, "<f4"), array.reshape(-1), equal_nan=True)  # type: ignore[call-overload]  # no list: of FLOAT


def test_signalling_nan_is_stored_without_warning() -> None:
    signalling = np.array([0x7FF0000000000001], np.uint64).view(np.float64)
    kind, payload = raw_of(signalling)
    assert kind == FLOAT
    assert np.isnan(np.frombuffer(payload, "<f4")).all()  # type: ignore[arg-type]  # a list comes with BYTES only
