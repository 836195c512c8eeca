"""`asyncrec._sampling.random_access.record_numbers`: blocks that respect shards and GZIP members."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.random_access.record_numbers import record_blocks


@given(st.lists(st.integers(0, 200), max_size=8), st.integers(1, 50))
def test_runs_cover_every_record_once_are_of_like_length_and_stay_in_their_shard(sizes: list[int], block: int) -> None:
    starts = np.cumsum([0, *sizes])
    blocks = record_blocks(starts, {}, block, 1000).tolist()
    assert blocks[-1] == sum(sizes)
    assert all(begin < end for begin, end in pairwise(blocks))
    assert {start for start, size in zip(starts.tolist(), sizes, strict=False) if size} <= set(blocks)
    assert all(end - begin <= 2 * block for begin, end in pairwise(blocks))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 50), st.integers(1, 100))
def test_members_are_whole_unless_they_are_larger_than_what_is_held(members: list[int], block: int, most: int) -> None:
    firsts = np.cumsum([0, *members[:-1]])
    count = sum(members)
    blocks = record_blocks(np.array([0, 7, 7 + count]), {1: firsts}, block, most).tolist()
    assert all(begin < end for begin, end in pairwise(blocks))
    assert blocks[-1] == 7 + count
    inner = [run - 7 for run in blocks if run >= 7]
    for first, size in zip(firsts.tolist(), members, strict=True):
        cut = [run for run in inner if first < run < first + size]
        assert not cut or size > 1
        if size <= max(most, block):
            assert not cut
