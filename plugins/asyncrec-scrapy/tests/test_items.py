"""Items of any type are converted to features by fixed rules, and no item is lost because of its contents."""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
import scrapy
from asyncrec_scrapy import features_of
from hypothesis import given
from hypothesis import strategies as st

import asyncrec


@dataclass
class Price:
    amount: Decimal
    currency: str = "EUR"


class Product(scrapy.Item):  # type: ignore[misc]  # untyped where it is not installed
    name = scrapy.Field()
    price = scrapy.Field()


LOOP: list[Any] = []
LOOP.append(LOOP)
ID = uuid.UUID(int=1)


@pytest.mark.parametrize(
    ("value", "features"),
    [
        ("a", {"x": "a"}),
        (b"a", {"x": b"a"}),
        (1, {"x": 1}),
        (1.5, {"x": 1.5}),
        (True, {"x": True}),
        (None, {}),
        ([], {}),
        (["a", "b"], {"x": ["a", "b"]}),
        ((1, 2), {"x": [1, 2]}),
        ({"b", "a"}, {"x": ["a", "b"]}),
        (datetime(2026, 11, 22, tzinfo=UTC), {"x": "2026-11-22T00:00:00+00:00"}),
        ([date(2026, 11, 22)], {"x": ["2026-11-22"]}),
        (Decimal("1.10"), {"x": "1.10"}),
        (ID, {"x": str(ID)}),
        ({"a": {"b": 1}, "c": None}, {"x/a/b": 1}),
        (Price(Decimal(2)), {"x/amount": "2", "x/currency": "EUR"}),
        (["a", None], {"x": '["a", null]'}),
        ([{"a": 1}, {"a": 2}], {"x": '[{"a": 1}, {"a": 2}]'}),
        ([Price(Decimal(2))], {"x": '[{"amount": "2", "currency": "EUR"}]'}),
        (["a", 1], {"x": '["a", 1]'}),
        ([[1], [2]], {"x": "[[1], [2]]"}),
        (1 << 70, {"x": str(1 << 70)}),
        ("\ud800", {"x": "\\ud800"}),
        (LOOP, {"x": '"[[...]]"'}),
    ],
)
def test_features_of_value_depend_on_its_type(value: Any, features: dict[str, Any]) -> None:
    made = features_of({"x": value})
    assert made == features
    asyncrec.encode_example(made)


def test_every_item_type_is_accepted() -> None:
    wanted = {"name": "a", "price": 1}
    item = Product(name="a", price=1)
    assert features_of(item) == features_of(dict(item)) == features_of(OrderedDict(wanted)) == wanted
    assert features_of(Price(Decimal(1))) == {"amount": "1", "currency": "EUR"}


def test_colliding_feature_names_are_both_kept() -> None:
    assert features_of({"a": {"b": 1}, "a/b": 2}) == {"a/b": 1, "a/b_": 2}


def test_arrays_are_stored_unchanged() -> None:
    made = features_of({"x": np.arange(3)})
    assert asyncrec.decode_example(asyncrec.encode_example(made))["x"].tolist() == [0, 1, 2]  # type: ignore[union-attr]  # an array of int64


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.dates() | st.uuids(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), VALUES, max_size=4))
def test_item_with_any_values_is_encoded(item: dict[str, Any]) -> None:
    asyncrec.encode_example(features_of(item))
