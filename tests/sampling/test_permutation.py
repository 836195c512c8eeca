"""`asyncrec._sampling.epochs.permutation`: permutations determined by a key, the same in all releases."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.epochs.permutation import key_of, mix64, permutation, permuted

keys = st.integers(0, 2**64 - 1)


@given(st.integers(0, 3000), keys)
def test_permutation_contains_every_number_once(count: int, key: int) -> None:
    assert sorted(permutation(count, key)) == list(range(count))


@given(st.integers(1, 3000), keys)
def test_permuted_positions_contain_every_number_once(count: int, key: int) -> None:
    assert sorted(permuted(np.arange(count), count, key)) == list(range(count))


@given(st.integers(1, 2**50), keys, st.lists(st.integers(0, 2**50), max_size=50))
def test_part_of_huge_permutation_is_consistent_without_duplicates(count: int, key: int, wanted: list[int]) -> None:
    positions = np.array([position % count for position in wanted], np.int64)
    found = permuted(positions, count, key)
    assert ((found >= 0) & (found < count)).all()
    assert len(set(found.tolist())) == len(set(positions.tolist()))
    assert [int(permuted(position[None], count, key)[0]) for position in positions] == found.tolist()


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 500), keys), min_size=1, max_size=5))
def test_batched_permutations_equal_single_permutations(several: list[tuple[int, int]]) -> None:
    positions = np.concatenate([np.arange(count) for count, _ in several])
    counts = np.repeat([count for count, _ in several], [count for count, _ in several])
    all_keys = np.repeat(np.array([key for _, key in several], np.uint64), [count for count, _ in several])
    one_by_one = [permuted(np.arange(count), count, key) for count, key in several]
    assert permuted(positions, counts, all_keys).tolist() == np.concatenate(one_by_one).tolist()


def test_permutations_are_fixed_across_releases() -> None:
    """If they changed, every saved state would resume in a different order."""
    assert key_of("snapshot", 7, 0) == 4777934137263876199
    assert mix64(np.array([0, 1], np.uint64)).tolist() == [16294208416658607535, 10451216379200822465]
    assert permutation(10, 42).tolist() == [7, 4, 0, 2, 6, 5, 1, 8, 3, 9]
    assert permuted(np.arange(10), 10, 42).tolist() == [0, 5, 3, 8, 1, 7, 4, 2, 6, 9]


def test_permutations_of_different_keys_are_uncorrelated() -> None:
    """On average, one of 1,000 numbers stays at its place, and one is at the same place under two keys."""
    for make in (lambda key: permutation(1000, key), lambda key: permuted(np.arange(1000), 1000, key)):
        orders = [make(key) for key in range(50)]
        assert np.mean([(order == np.arange(1000)).sum() for order in orders]) < 2
        assert np.mean([(one == two).sum() for one, two in pairwise(orders)]) < 2


@pytest.mark.parametrize("count", [3, 5, 10, 40])
def test_every_position_is_equally_likely(count: int) -> None:
    """For 20,000 orders, the chi-square with (count - 1)^2 degrees of freedom is within four standard deviations."""
    keys = mix64(np.arange(20_000, dtype=np.uint64))
    at_once = permuted(np.tile(np.arange(count), 20_000), count, np.repeat(keys, count)).reshape(-1, count)
    one_by_one = np.array([permutation(count, int(key)) for key in keys[:5000]])
    for orders in (at_once, one_by_one):
        mean = len(orders) / count
        counts = np.array([np.bincount(column, minlength=count) for column in orders.T])
        freedom = (count - 1) ** 2
        assert ((counts - mean) ** 2 / mean).sum() < freedom + 4 * (2 * freedom) ** 0.5
