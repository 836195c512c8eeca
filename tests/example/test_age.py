"""`Age` orders the versions of a record by the values that determine their age."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncrec
import asyncrec.example
from asyncrec.example._age import AGE_BYTES, Age
from asyncrec.example._by_name import features_in

TEXTS = st.binary(max_size=32)
INTS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(width=32, allow_nan=False)


def age(value: Any, name: str = "n") -> bytes:
    return Age(name, None, "pages").of(features_in(asyncrec.encode_example({"n": value})))


@given(st.one_of(st.tuples(TEXTS, TEXTS), st.tuples(INTS, INTS), st.tuples(FLOATS, FLOATS)))
def test_ages_sort_like_values(values: tuple[Any, Any]) -> None:
    first, second = (age(value) for value in values)
    assert (first < second, first == second) == (values[0] < values[1], values[0] == values[1])
    assert len(first) == len(second) == AGE_BYTES
    assert first.rstrip(b"\0") == first, "NumPy would take it for a shorter one"


@given(st.one_of(TEXTS, INTS, FLOATS))
def test_record_without_feature_sorts_oldest(value: Any) -> None:
    assert age(value, "other") == b"" < age(value)


def test_age_of_non_number_sorts_oldest() -> None:
    assert age(math.nan) == b""
    assert Age("n", None, "pages").of(features_in(b"no Example")) == b""
    assert struct.unpack("<f", struct.pack("<f", -math.inf))[0] == -math.inf
    assert age(-math.inf) > b""


def test_age_rejects_values_of_different_types() -> None:
    known = Age("n", None, "pages")
    known.of(features_in(asyncrec.encode_example({"n": 1})))
    with pytest.raises(ValueError, match="pages: the feature 'n' has values of different types"):
        known.of(features_in(asyncrec.encode_example({"n": b"1"})))


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (asyncrec.FixedLen((2,), "int64"), r"FixedLen of the shape \(2,\)"),
        (asyncrec.FixedLen((), "float64", raw=True), "FixedLen"),
        (asyncrec.example.Tensor("int64"), "Tensor"),
        (asyncrec.example.Sequence(asyncrec.FixedLen((), "int64")), "there is no feature|Sequence"),
    ],
)
def test_age_rejects_declared_array(entry: Any, said: str) -> None:
    schema = asyncrec.Schema({"n": entry}).to_json()
    with pytest.raises(ValueError, match=said):
        Age("n", schema, "pages")


def test_age_rejects_name_absent_from_schema_at_once() -> None:
    schema = asyncrec.Schema({"n": asyncrec.FixedLen((), "int64"), "m": asyncrec.example.Tensor("int64")})
    with pytest.raises(ValueError, match="pages: there is no feature 'date'; the features are m, m_shape, n"):
        Age("date", schema.to_json(), "pages")
    with pytest.raises(ValueError, match="no order: the schema says part of an array"):
        Age("m_shape", schema.to_json(), "pages")
    with pytest.raises(TypeError, match="must be the name of a feature, not int"):
        Age(3, None, "pages")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="newest is empty"):
        Age("", None, "pages")


def test_age_rejects_name_absent_from_records_at_end() -> None:
    known = Age("date", None, "pages")
    known.of(features_in(asyncrec.encode_example({"n": 1})))
    with pytest.raises(ValueError, match="there is no feature 'date'; the features are n"):
        known.end()


@pytest.mark.parametrize(
    "entry", [asyncrec.FixedLen((), "str"), asyncrec.VarLen("int64"), asyncrec.FixedLen((1,), "int64")]
)
def test_age_accepts_optional_or_single_value(entry: Any) -> None:
    Age("n", asyncrec.Schema({"n": entry}).to_json(), "pages")
