"""A `RecordSet` behaves like a list of numbers, and uses one bit per record."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.record_set import RecordSet, all_bits, clear


@st.composite
def sets(draw: st.DrawFn) -> tuple[int, list[int]]:
    """Draw a number of records and the numbers of those in the set.

    The set has few, some or nearly all of the records, and there are fewer or more than 512 of them.
    """
    size = draw(st.integers(0, 1600))
    chance = draw(st.sampled_from([0.0, 0.01, 0.5, 0.99, 1.0]))
    seed = draw(st.integers(0, 1000))
    return size, np.flatnonzero(np.random.default_rng(seed).random(size) < chance).tolist()


def without(size: int, left_out: Any) -> RecordSet:
    bits = all_bits(size)
    clear(bits, left_out)
    return RecordSet(size, bits)


def made(size: int, there: list[int]) -> RecordSet:
    return without(size, np.setdiff1d(np.arange(size), there))


@given(sets())
def test_set_contains_added_numbers(drawn: tuple[int, list[int]]) -> None:
    size, there = drawn
    found = made(size, there)
    assert (len(found), found.size) == (len(there), size)
    assert found.numbers(np.arange(len(there))).tolist() == there
    assert np.flatnonzero(found.has(np.arange(size))).tolist() == there
    assert pickle.loads(pickle.dumps(found)).between(0, size).tolist() == there
    assert found.ranks(np.arange(size + 1)).tolist() == [
        0, *np.cumsum(np.isin(np.arange(size), there)).tolist()
    ]  # fmt: skip


@given(sets(), st.data())
def test_range_query_returns_set_members_within_range(drawn: tuple[int, list[int]], data: st.DataObject) -> None:
    size, there = drawn
    first = data.draw(st.integers(0, size))
    last = data.draw(st.integers(first, size))
    assert made(size, there).between(first, last).tolist() == [each for each in there if first <= each < last]


@pytest.mark.parametrize("size", [8191, 8192, 20_000])
def test_lookups_work_beyond_one_step(size: int) -> None:
    found = without(size, np.arange(0, size, 3))
    there = np.setdiff1d(np.arange(size), np.arange(0, size, 3))
    order = np.random.default_rng(1).permutation(len(there))
    assert found.numbers(order).tolist() == there[order].tolist()
    assert found.ranks(there).tolist() == list(range(len(there)))
