"""Each helper returns one Feature, which can be used to build messages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from asyncrec.errors import SchemaError
from asyncrec.example._codec import decode_example, encode_example
from asyncrec.example._features import (
    bytes_feature,
    bytes_list_feature,
    float_list_feature,
    int64_feature,
    int64_list_feature,
)
from asyncrec.example.proto.example_pb2 import Example, Feature, Features


def test_helpers_compose_with_messages() -> None:
    emb = np.arange(4, dtype=np.float32).reshape(2, 2)
    message = Example(
        features=Features(
            feature={
                "label": int64_feature(3),
                "url": bytes_feature("https://example.org/é"),
                "emb": float_list_feature(emb),
                "tags": bytes_list_feature(["a", "b"]),
                "tokens": int64_list_feature(np.array([1, 300])),
            }
        )
    )
    values = {"label": 3, "url": "https://example.org/é", "emb": emb, "tags": [b"a", b"b"], "tokens": [1, 300]}
    assert message.SerializeToString(deterministic=True) == encode_example(values)
    assert decode_example(message.SerializeToString())["tags"] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("feature", "kind", "values"),
    [
        (int64_feature(True), "int64_list", [1]),
        (int64_feature(np.int32(-5)), "int64_list", [-5]),
        (bytes_feature(b"\xff"), "bytes_list", [b"\xff"]),
        (int64_list_feature([]), "int64_list", []),
        (int64_list_feature(range(3)), "int64_list", [0, 1, 2]),
        (float_list_feature([]), "float_list", []),
        (float_list_feature([1, 2.5]), "float_list", [1.0, 2.5]),
        (float_list_feature(np.array([1, 2])), "float_list", [1.0, 2.0]),
        (float_list_feature(np.array([2**24 + 1])), "float_list", [2.0**24]),
        (float_list_feature(np.array([0.1])), "float_list", [float(np.float32(0.1))]),
        (float_list_feature([np.float64(0.1)]), "float_list", [float(np.float32(0.1))]),
        (float_list_feature(np.array([0.5]), narrow=False), "float_list", [0.5]),
        (float_list_feature(x / 2 for x in range(3)), "float_list", [0.0, 0.5, 1.0]),
        (bytes_list_feature([]), "bytes_list", []),
        (bytes_list_feature(np.array(["a"])), "bytes_list", [b"a"]),
    ],
)
def test_feature_helper_produces_its_kind(feature: Feature, kind: str, values: list[object]) -> None:
    assert feature.WhichOneof("kind") == kind
    assert list(getattr(feature, kind).value) == values


@pytest.mark.parametrize(
    ("helper", "value", "error", "message"),
    [
        (int64_feature, 1.5, SchemaError, "expected int64, not float: 1.5"),
        (int64_feature, "1", SchemaError, "expected int64, not bytes"),
        (int64_feature, None, SchemaError, "None"),
        (int64_feature, [1], TypeError, "several values; use int64_list_feature"),
        (int64_feature, 2**63, SchemaError, "9223372036854775808 is out of range for int64"),
        (bytes_feature, 3, SchemaError, "expected bytes, not int64"),
        (bytes_feature, [b"a"], TypeError, "bytes_list_feature"),
        (int64_list_feature, 3, TypeError, "expected a list of values or an array, not a single int"),
        (int64_list_feature, [1.5], SchemaError, "expected int64, not float"),
        (bytes_list_feature, b"abc", TypeError, "expected a list of values or an array, not a single bytes"),
        (float_list_feature, np.array([1e300]), SchemaError, "out of range for float32"),
        (float_list_feature, [1e300], SchemaError, "out of range for float32"),
        (
            partial(float_list_feature, narrow=False),
            np.array([0.1]),
            SchemaError,
            "the array of float64 contains values that float32 cannot represent exactly, such as",
        ),
        (partial(float_list_feature, narrow=False), np.array([2**24 + 1]), SchemaError, "integers that float32"),
        (float_list_feature, ["a"], SchemaError, "expected float, not bytes"),
    ],
)
def test_feature_helper_rejects_value_of_wrong_kind(
    helper: Any, value: object, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        helper(value)
