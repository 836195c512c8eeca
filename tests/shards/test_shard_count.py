"""The number of shards of a data set, and their boundaries."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._datasets.from_generator.publishing import MAX_SHARD_BYTES, MIN_SHARD_BYTES, shard_count
from asyncrec._shards.writing.ordered_writer import shard_boundaries

MIB, GIB, TIB = 1 << 20, 1 << 30, 1 << 40


@pytest.mark.parametrize(
    ("payload", "records", "shards"),
    [
        (0, 0, 1), (10 * MIB, 1000, 1), (300 * MIB, 100_000, 4), (128 * GIB, 10_000_000, 1024),
        (100 * GIB, 1_000_000_000, 1024), (3 * TIB, 10_000_000, 4096), (10 * GIB, 20, 16),
    ],
)  # fmt: skip
def test_shard_count_is_round_number_within_limits(payload: int, records: int, shards: int) -> None:
    assert shard_count(payload, records) == shards


def test_shard_count_of_huge_records_is_record_count() -> None:
    """datum loops forever for these sizes."""
    assert shard_count(2 * TIB, 1500) == 1500


def test_shard_count_splits_600_gibibytes_in_1000_records() -> None:
    """datum makes a single shard for these sizes."""
    assert 600 <= shard_count(600 * GIB, 1000) <= 1000


@given(st.integers(0, 1 << 45), st.integers(0, 1 << 34))
def test_shard_sizes_stay_within_bounds(payload: int, records: int) -> None:
    shards = shard_count(payload, records)
    size = payload + 16 * records
    assert 1 <= shards <= max(1, records)
    if shards > 1:
        assert size >= shards * MIN_SHARD_BYTES
    if shards < records:
        assert size <= shards * MAX_SHARD_BYTES


@given(st.integers(0, 10**12), st.integers(1, 5000))
def test_shard_boundaries_divide_all_records_evenly(records: int, shards: int) -> None:
    boundaries = shard_boundaries(records, shards)
    sizes = [after - before for before, after in pairwise(boundaries)]
    assert (boundaries[0], boundaries[-1], len(sizes)) == (0, records, shards)
    assert max(sizes) - min(sizes) <= 1


def test_invalid_sizes_are_rejected() -> None:
    with pytest.raises(ValueError, match="negative"):
        shard_count(-1, 0)
    with pytest.raises(ValueError, match="at least 1"):
        shard_boundaries(1, 0)


@pytest.mark.parametrize(
    ("records", "shards", "boundaries"),
    [
        (5, 2, [0, 2, 5]),
        (7, 2, [0, 4, 7]),
        (1001, 8, [0, 125, 250, 375, 500, 626, 751, 876, 1001]),
        (33, 16, [0, 2, 4, 6, 8, 10, 12, 14, 16, 19, 21, 23, 25, 27, 29, 31, 33]),
    ],
)
def test_shard_boundary_ties_round_to_even(records: int, shards: int, boundaries: list[int]) -> None:
    """datum rounds in the same way, so each shard contains the same records as datum's."""
    assert shard_boundaries(records, shards) == boundaries
