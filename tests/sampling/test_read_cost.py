"""The cost of reading a remote store is estimated from earlier reads, within bounds, however long they took."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.random_access.range_read import ReadCost


def test_unmeasured_read_cost_allows_half_mebibyte_gap() -> None:
    assert ReadCost("memory://").gap == 512 << 10


def test_gap_grows_with_latency_and_bandwidth() -> None:
    far, near = ReadCost("memory://"), ReadCost("memory://")
    for _ in range(40):
        far.took(1000, 0.1, records=1, wanted=1)
        far.took(1 << 20, 0.1 + (1 << 20) / 20e6, records=1, wanted=1)
        near.took(1000, 0.001, records=1, wanted=1)
    assert 1_900_000 < far.gap < 2_100_000
    assert near.gap < 64 << 10


@given(st.lists(st.tuples(st.integers(0, 1 << 40), st.floats(0, 1e6))))
def test_gap_stays_within_its_bounds(reads: list[tuple[int, float]]) -> None:
    cost = ReadCost("memory://")
    for size, seconds in reads:
        cost.took(size, seconds, records=1, wanted=1)
        assert 32 << 10 <= cost.gap <= 4 << 20
