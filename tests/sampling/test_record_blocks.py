"""`asyncrec._sampling.random_access.record_numbers` makes blocks that respect shards and GZIP members."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.random_access.record_numbers import record_blocks

# The stored size of a record in bytes.
EACH = 10


@given(st.lists(st.integers(0, 200), max_size=8), st.integers(1, 50), st.integers(1, 60))
def test_blocks_cover_shards_evenly_without_crossing_boundaries(sizes: list[int], block: int, most: int) -> None:
    starts = np.cumsum([0, *sizes])
    blocks = record_blocks(starts, np.diff(starts) * EACH, {}, block * EACH, most).tolist()
    assert blocks[-1] == sum(sizes)
    assert all(begin < end for begin, end in pairwise(blocks))
    assert {start for start, size in zip(starts.tolist(), sizes, strict=False) if size} <= set(blocks)
    assert all(end - begin <= min(2 * block, most) for begin, end in pairwise(blocks))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=20), st.integers(1, 50), st.integers(1, 100))
def test_blocks_keep_members_undivided_up_to_limit(members: list[int], block: int, most: int) -> None:
    firsts = np.cumsum([0, *members[:-1]])
    count = sum(members)
    starts = np.array([0, 7, 7 + count])
    blocks = record_blocks(starts, np.diff(starts) * EACH, {1: (firsts, firsts * EACH)}, block * EACH, most).tolist()
    assert all(begin < end for begin, end in pairwise(blocks))
    assert all(end - begin <= most for begin, end in pairwise(blocks))
    assert blocks[-1] == 7 + count
    borders = {7 + int(first) for first in firsts} | {7 + count}
    inner = [begin for begin in blocks if begin >= 7]
    for first, size in zip(firsts.tolist(), members, strict=True):
        cut = [begin - 7 for begin in inner if first < begin - 7 < first + size]
        assert not cut or size > most
    # Blocks are as large as possible: no two neighbours would have fitted into one.
    whole = [(begin, end) for begin, end in pairwise(inner) if {begin, end} <= borders]
    for (begin, middle), (same, end) in pairwise(whole):
        if middle == same:
            assert end - begin > min(block, most) or max(members) > most
