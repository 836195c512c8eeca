"""Numbers are summarized exactly where possible, and their distribution is drawn."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from asyncrec_report.numbers import Numbers
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays


def numbers_of(*parts: object, dtype: str = "float32") -> Numbers:
    found = Numbers()
    for part in parts:
        found.add(np.asarray(part, dtype))
    return found


def test_numbers_summarise_all_values() -> None:
    found = numbers_of([1.0, np.nan, 3.0], [np.inf, -np.inf, 0.0])
    assert (found.count, found.nan, found.infinite, found.zeros, found.finite) == (6, 1, 2, 1, 3)
    assert (found.minimum, found.maximum) == (0, 3)
    assert found.mean == pytest.approx(4 / 3)
    assert found.deviation == pytest.approx(np.std([1, 3, 0]))
    assert found.total == pytest.approx(4)


def test_deviation_of_close_large_integers_is_exact() -> None:
    found = numbers_of([10**15, 10**15 + 2], dtype="int64")
    assert found.deviation == pytest.approx(1)
    assert found.values == {10**15: 1, 10**15 + 2: 1}


def test_numbers_without_finite_values_have_no_extremes() -> None:
    for found in (numbers_of(), numbers_of([np.nan])):
        assert math.isnan(found.minimum)
        assert math.isnan(found.mean)
        assert math.isnan(found.deviation)
        assert all(map(math.isnan, found.quantiles(0.5, 0.9)))
        assert found.histogram().bins == ()


def test_histogram_has_one_bin_per_integer_in_small_range() -> None:
    histogram = numbers_of([0, 0, 3], dtype="int64").histogram()
    assert histogram.scale == "each"
    assert [(each.low, each.count) for each in histogram.bins] == [(0, 2), (1, 0), (2, 0), (3, 1)]


def test_histogram_bins_of_many_integers_do_not_overlap() -> None:
    histogram = numbers_of(range(1000), dtype="int64").histogram()
    assert [each.low for each in histogram.bins[1:]] == [each.high + 1 for each in histogram.bins[:-1]]
    assert (histogram.bins[0].low, histogram.bins[-1].high) == (0, 999)
    assert sum(each.count for each in histogram.bins) == 1000


def test_histogram_of_wide_range_is_logarithmic_with_zero_bin() -> None:
    values = np.geomspace(1, 1e6, 1000)
    assert numbers_of(values).histogram().scale == "log"
    histogram = numbers_of(values, np.zeros(7)).histogram()
    assert histogram.scale == "log"
    assert (histogram.bins[0].high, histogram.bins[0].count) == (0, 7)


def test_histogram_counts_far_outliers_without_drawing_bars() -> None:
    histogram = numbers_of(np.linspace(-1, 1, 10_000), [1e6, -1e6, 2e6]).histogram()
    assert (histogram.below, histogram.above) == (1, 2)
    assert histogram.bins[-1].high < 2


def test_numbers_sample_millions_and_scale_counts_up() -> None:
    found = Numbers()
    for part in range(30):
        found.add(np.arange(part * 50_000, (part + 1) * 50_000, dtype=np.int64))
    assert found.count == 1_500_000
    assert found.values is None
    assert found._sample().size <= 1 << 15
    histogram = found.histogram()
    assert sum(each.count for each in histogram.bins) == pytest.approx(1_500_000, rel=0.001)
    assert max(each.count for each in histogram.bins[:-1]) < 1.4 * min(each.count for each in histogram.bins[:-1])
    (median,) = found.quantiles(0.5)
    assert median == pytest.approx(750_000, rel=0.03)


def test_quantiles_are_observed_values() -> None:
    assert numbers_of([1, 2, 100], dtype="int64").quantiles(0.5, 0.95, 0.99) == [2, 100, 100]


@given(
    st.lists(
        arrays(np.float32, st.integers(0, 20), elements=st.floats(width=32))
        | arrays(np.int64, st.integers(0, 20))
        | arrays(np.int64, st.integers(0, 20), elements=st.integers(2**60, 2**60 + 500)),
        max_size=5,
    )
)
def test_histogram_accounts_for_each_finite_number(parts: list[np.ndarray]) -> None:  # type: ignore[type-arg]  # of either type
    found = Numbers()
    for part in parts:
        found.add(part)
    histogram = found.histogram()
    assert sum(each.count for each in histogram.bins) + histogram.below + histogram.above == found.finite
    assert all(each.low <= each.high for each in histogram.bins)
    assert all(each.low <= after.low for each, after in pairwise(histogram.bins))
