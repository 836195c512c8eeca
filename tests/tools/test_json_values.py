"""A record that is converted to JSON and back is unchanged."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec.errors import SchemaError
from asyncrec.example._codec import decode_example, decode_sequence_example, encode_example, encode_sequence_example
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._schema import Schema
from asyncrec.tools._json_values import from_json, is_example, lists_of, to_json

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
FEATURES = st.dictionaries(
    st.text(max_size=8),
    st.one_of(
        st.lists(INT64, min_size=1, max_size=4),
        st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4).map(np.float32),
        st.lists(st.binary(max_size=20), min_size=1, max_size=4),
    ),
    min_size=1,
    max_size=4,
)


def through_json(record: bytes, **options: object) -> bytes:
    return from_json(json.loads(json.dumps(to_json(record, **options))))  # type: ignore[arg-type]  # the test's own


@given(FEATURES)
def test_examples_round_trip_byte_for_byte(features: dict[str, object]) -> None:
    record = encode_example(features)
    assert through_json(record) == record
    assert through_json(record, lists=set(features)) == record


@pytest.mark.parametrize("names", [["$record"], ["$context", "$lists"], ["$record", "x"], ["$base64"], ["$float"]])
@pytest.mark.parametrize("value", ["nan", b"\xff", 3, [1.5, 2.5]])
def test_features_with_reserved_names_round_trip(names: list[str], value: object) -> None:
    record = encode_example(dict.fromkeys(names, value))
    assert through_json(record) == record
    assert through_json(record, lists=names) == record


@given(st.binary(max_size=60))
def test_other_records_round_trip_byte_for_byte(record: bytes) -> None:
    if not is_example(record):
        assert through_json(record) == record
        assert to_json(record).keys() == {"$record"}


def test_sequence_examples_round_trip_through_json() -> None:
    record = encode_sequence_example({"id": 7}, {"tokens": [["a", "b"], ["c"]], "weights": [0.5, float("inf")]})
    value = to_json(record)
    assert value == {
        "$context": {"id": 7},
        "$lists": {"tokens": [["a", "b"], "c"], "weights": [0.5, {"$float": "inf"}]},
    }
    context, lists = decode_sequence_example(through_json(record))
    assert context["id"] == 7
    assert lists["tokens"] == [[b"a", b"b"], [b"c"]]


def test_record_values_convert_to_expected_json() -> None:
    record = encode_example({"n": 3, "x": 0.1, "t": "grün", "raw": b"\xff\x00", "many": [1, 2], "nan": float("nan")})
    assert to_json(record) == {
        "many": [1, 2],
        "n": 3,
        "nan": {"$float": "nan"},
        "raw": {"$base64": "/wA="},
        "t": "grün",
        "x": 0.1,
    }
    assert to_json(record, lists={"n"}, only={"n"}) == {"n": [3]}


@pytest.mark.parametrize("value", [1e39, [1e39, 1.0], [10**50, 0.5], [10**400, 0.5], [-(10**39), 0.5]])
def test_number_too_large_for_float_is_rejected(value: object) -> None:
    with pytest.raises(SchemaError, match="feature 'x'"):
        from_json({"x": value})


def test_json_values_convert_to_expected_features() -> None:
    record = from_json({"n": 3, "x": [1, 2.5], "t": "text", "yes": True, "nothing": None, "empty": []})
    decoded = decode_example(record)
    assert decoded["n"] == 3
    assert decoded["x"].tolist() == [1.0, 2.5]  # type: ignore[union-attr]  # floats
    assert decoded["t"] == [b"text"]
    assert decoded["yes"] == 1
    assert "nothing" not in decoded


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (3, "JSON object"),
        ({"a": {"b": 1}}, "'a'"),
        ({"a": [[1], [2]]}, "flat"),
        ({"a": {"$base64": "?"}}, "base64"),
        ({"a": ["x", 1]}, "'a'"),
        ({"$record": 3}, "record"),
        ({"$context": 1, "$lists": {}}, "objects"),
    ],
)
def test_unrepresentable_json_value_is_rejected_by_name(value: object, said: str) -> None:
    with pytest.raises(SchemaError, match=said.replace("$", "")):
        from_json(value)


def test_schema_determines_list_features() -> None:
    schema = Schema(
        {
            "one": FixedLen((), "int64"),
            "four": FixedLen((4,), "float32"),
            "any": VarLen("bytes"),
            "raw": FixedLen((2, 2), "float32", raw=True),
            "tensor": Tensor("uint8"),
        }
    )
    assert lists_of(schema.to_json()) == {"four", "any"}
    assert lists_of(None) == frozenset()
