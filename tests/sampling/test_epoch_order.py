"""`asyncrec._sampling.epochs.epoch_order`: each epoch is a permutation, any part of which can be computed."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.epochs.epoch_order import EpochOrder, Mode
from asyncrec._sampling.epochs.permutation import permutation
from asyncrec._sampling.interleave.order import InterleaveOrder

counts = st.lists(st.integers(0, 40), max_size=12)


def order_of(mode: Mode, sizes: list[int], *, window: int, key: int = 1, runs: int = 5) -> EpochOrder:
    starts = np.cumsum([0, *sizes])
    blocks = [begin for first, last in itertools.pairwise(starts) for begin in range(first, last, runs)]
    return EpochOrder(
        mode,
        starts,
        blocks=np.array([*blocks, starts[-1]], np.int64),
        window=window,
        key=key,
        cycle_length=3,
        block_length=2,
    )


@given(st.sampled_from(["block", "buffer", "global"]), counts, st.integers(1, 60), st.randoms())
def test_epoch_contains_every_record_once_and_parts_independently(
    mode: Mode, sizes: list[int], window: int, random: object
) -> None:
    order = order_of(mode, sizes, window=window)
    count = sum(sizes)
    cuts = sorted({0, count, *range(0, count, window), *range(0, count, 7)})
    parts = list(itertools.pairwise(cuts))
    whole = [order.at(first, last).tolist() for first, last in parts]
    assert sorted(record for part in whole for record in part) == list(range(count))
    random.shuffle(parts)  # type: ignore[attr-defined]  # Hypothesis gives a Random
    again = {part: order.at(*part).tolist() for part in parts}
    assert [again[part] for part in sorted(parts)] == whole


@given(counts)
def test_window_contains_next_records_of_tf_data_interleave(sizes: list[int]) -> None:
    order = order_of("buffer", sizes, window=4)
    starts = np.cumsum([0, *sizes])
    shards = permutation(len(sizes), 1)
    left = [list(range(starts[shard], starts[shard + 1])) for shard in shards]
    expected = []
    plain = InterleaveOrder(len(sizes), cycle_length=3, block_length=2)
    while (take := plain.next()) is not None:
        came, left[take.source] = left[take.source][: take.count], left[take.source][take.count :]
        expected += came
        plain.took(len(came), ended=len(came) < take.count)
    for first in range(0, len(expected), 4):
        part = expected[first : first + 4]
        assert sorted(order.at(first, first + len(part)).tolist()) == sorted(part)


def test_block_window_consists_of_whole_runs() -> None:
    order = order_of("block", [40, 40], window=20)
    for first in range(0, 80, 20):
        window = sorted(order.at(first, first + 20).tolist())
        assert [record // 5 for record in window] == sorted([record // 5 for record in window[::5]] * 5)
