"""Ratios and the assignment of rows: each row is in one split, and each split has its share of every stratum."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._datasets.from_csv.splitting import deal, weights_of


@pytest.mark.parametrize(
    ("ratios", "names"),
    [
        (0.8, ["train", "eval"]),
        ([0.8, 0.2], ["train", "eval"]),
        ((0.7, 0.2, 0.1), ["train", "eval", "test"]),
        ([0.1, 0.2, 0.7], ["train", "eval", "test"]),
        ([1 / 3, 1 / 3, 1 / 3], ["train", "eval", "test"]),
        ([0.8, 0, 0.2], ["train", "test"]),
        ([0.5, 0.5, 0.0], ["train", "eval"]),
    ],
)
def test_ratios_with_rounding_error_are_accepted(ratios: object, names: list[str]) -> None:
    assert list(weights_of(ratios)) == names  # type: ignore[arg-type]  # of several types, by the parameters


def test_single_ratio_assigns_remainder_to_eval() -> None:
    assert weights_of(0.75) == {"train": 0.75, "eval": 0.25}


@pytest.mark.parametrize("ratios", [0, 1, 1.5, -0.1, float("nan"), [], [1.0], [1, 0, 0], [0, 0.5, 0.5], [0.25] * 4])
def test_invalid_ratios_are_rejected(ratios: object) -> None:
    with pytest.raises(ValueError, match=r"ratios=.*one ratio between 0 and 1"):
        weights_of(ratios)  # type: ignore[arg-type]  # deliberately wrong


@pytest.mark.parametrize("ratios", [[1.0, 0.0], [0.0, 0.5, 0.5]])
def test_misplaced_zero_ratio_is_rejected_with_advice(ratios: list[float]) -> None:
    with pytest.raises(ValueError, match="greater than 0; of three, the ratio of eval or test may be 0"):
        weights_of(ratios)


def test_ratios_not_summing_to_one_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"sum to 0\.9; they must sum to 1"):
        weights_of([0.7, 0.1, 0.1])


def test_ten_rows_split_into_seven_two_and_one() -> None:
    dealt = deal([None] * 10, weights_of([0.7, 0.2, 0.1]), seed=0)
    assert {name: len(rows) for name, rows in dealt.items()} == {"train": 7, "eval": 2, "test": 1}


def test_deal_depends_only_on_seed() -> None:
    weights = weights_of(0.8)
    first = deal([None] * 100, weights, seed=1)
    assert deal([None] * 100, weights, seed=1) == first
    assert deal([None] * 100, weights, seed=2) != first
    assert first["train"] != sorted(first["train"])


@given(
    st.lists(st.integers(0, 5), max_size=200), st.lists(st.integers(1, 20), min_size=2, max_size=3), st.integers(0, 5)
)
def test_deal_assigns_each_split_share_of_every_stratum(strata: list[int], parts: list[int], seed: int) -> None:
    weights = {str(number): part / sum(parts) for number, part in enumerate(parts)}
    dealt = deal(strata, weights, seed=seed)
    assert sorted(row for rows in dealt.values() for row in rows) == list(range(len(strata)))
    sizes = Counter(strata)
    for name, rows in dealt.items():
        assert abs(len(rows) - weights[name] * len(strata)) < 4 / 3
        for stratum, count in Counter(strata[row] for row in rows).items():
            assert abs(count - weights[name] * sizes[stratum]) < 8 / 3


def test_folds_have_equal_size() -> None:
    dealt = deal([None] * 50, {str(fold): 1 / 5 for fold in range(5)}, seed=3)
    assert [len(rows) for rows in dealt.values()] == [10] * 5


def test_single_row_strata_are_shared_among_splits() -> None:
    """Rounding each stratum separately would assign all of them to train."""
    dealt = deal(list(range(100)), weights_of([0.7, 0.2, 0.1]), seed=0)
    assert [len(rows) for rows in dealt.values()] == [70, 20, 10]
