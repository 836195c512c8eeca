"""Items of every kind are stored as Examples, and read back unchanged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from asyncrec_crawlee import features_of, item_of
from hypothesis import given
from hypothesis import strategies as st

import asyncrec

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)


def through(item: dict[str, Any]) -> dict[str, Any]:
    return item_of(asyncrec.encode_example(features_of(item)))


@pytest.mark.slow
@given(st.dictionaries(st.text(), JSON | st.binary(), max_size=5))
def test_item_round_trips_json_values_and_bytes(item: dict[str, Any]) -> None:
    back = through(item)
    assert back == item
    assert {name: type(value) for name, value in back.items()} == {name: type(value) for name, value in item.items()}


@pytest.mark.parametrize("name", ["_json", "", "a/b", "\x00"])
def test_field_may_have_any_name(name: str) -> None:
    assert through({name: 1, "other": None}) == {name: 1, "other": None}


def test_item_stores_simple_values_as_plain_features() -> None:
    features = asyncrec.decode_example(
        asyncrec.encode_example(features_of({"price": 99.99, "in_stock": True, "tags": ["a", "b"], "sizes": [1, 2]}))
    )
    assert features["price"] == np.float32(99.99)
    assert features["in_stock"] == [1]
    assert features["tags"] == [b"a", b"b"]
    assert list(features["sizes"]) == [1, 2]


def test_item_stores_other_values_as_text() -> None:
    assert through({"at": datetime(2026, 11, 22, tzinfo=UTC)}) == {"at": "2026-11-22 00:00:00+00:00"}


def test_item_reads_foreign_example() -> None:
    record = asyncrec.encode_example({"a": b"\xff", "b": "text", "c": [1, 2]})
    assert item_of(record) == {"a": b"\xff", "b": "text", "c": [1, 2]}
