"""Sampled records are drawn from all parts of the data set, and none is read twice."""

from __future__ import annotations

from asyncrec_report.gather import plan
from hypothesis import given
from hypothesis import strategies as st


def test_plan_skips_sampling_for_few_records() -> None:
    assert plan([10, 0, 5], 15) is None
    assert plan([], 1) is None


@given(st.lists(st.integers(0, 5000), max_size=12), st.integers(1, 3000))
def test_plan_orders_stretches_and_matches_requested_count(counts: list[int], most: int) -> None:
    stretches = plan(counts, most)
    if stretches is None:
        assert sum(counts) <= most
        return
    ended = (0, 0)
    for stretch in stretches:
        assert ended <= (stretch.shard, stretch.first)
        assert 0 <= stretch.first < stretch.first + stretch.count <= counts[stretch.shard]
        ended = (stretch.shard, stretch.first + stretch.count)
    places = min(200, most)
    assert sum(stretch.count for stretch in stretches) == most // places * places


def test_plan_samples_every_part_of_large_set() -> None:
    stretches = plan([1000] * 1000, 20_000)
    assert stretches is not None
    assert len({stretch.shard // 10 for stretch in stretches}) == 100
    assert sum(stretch.count for stretch in stretches) == 20_000
