"""`asyncrec._sampling.interleave.order` produces the same order as tf.data; tf.data itself is not needed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.interleave.order import InterleaveOrder


def interleaved(
    lengths: list[int], cycle: int, block: int, *, at_most: Callable[[int], int] = lambda n: n
) -> list[str]:
    """Return the records in interleaved order as "input:record"; ``at_most`` limits how many are taken at once."""
    order = InterleaveOrder(len(lengths), cycle_length=cycle, block_length=block)
    taken = [0] * len(lengths)
    found = []
    while (take := order.next()) is not None:
        left = lengths[take.source] - taken[take.source]
        count = min(left, at_most(take.count))
        found += [f"{take.source}:{taken[take.source] + i}" for i in range(count)]
        taken[take.source] += count
        order.took(count, ended=count == 0)
    return found


def tf_data(lengths: list[int], cycle: int, block: int) -> list[str]:
    """Return the order from a second implementation, which works record by record as TensorFlow's kernel does."""
    slots: list[int | None] = [None] * cycle
    taken = [0] * len(lengths)
    found, slot, in_block, next_input = [], 0, 0, 0
    while next_input < len(lengths) or any(source is not None for source in slots):
        source = slots[slot]
        if source is not None:
            if taken[source] < lengths[source]:
                found.append(f"{source}:{taken[source]}")
                taken[source] += 1
                in_block += 1
                if in_block == block:
                    slot, in_block = (slot + 1) % cycle, 0
            else:
                slots[slot] = None
                slot, in_block = (slot + 1) % cycle, 0
        elif next_input < len(lengths):
            slots[slot] = next_input
            next_input += 1
        else:
            slot, in_block = (slot + 1) % cycle, 0
    return found


def test_interleave_order_matches_recorded_tensorflow_orders(vectors: Path) -> None:
    cases = json.loads((vectors / "manifest.json").read_text())["interleave"]
    assert len(cases) == 12
    for case in cases:
        found = interleaved(case["lengths"], case["cycle_length"], case["block_length"])
        assert found == case["order"], case["folder"]


@given(st.lists(st.integers(0, 9), max_size=9), st.integers(1, 12), st.integers(1, 6), st.integers(1, 6))
def test_interleave_order_follows_rule_for_pieces_of_any_size(
    lengths: list[int], cycle: int, block: int, piece: int
) -> None:
    expected = tf_data(lengths, cycle, block)
    assert interleaved(lengths, cycle, block) == expected
    assert interleaved(lengths, cycle, block, at_most=lambda count: min(count, piece)) == expected


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6), st.integers(1, 7), st.integers(1, 4), st.integers(0, 40))
def test_interleave_order_resumes_from_state(lengths: list[int], cycle: int, block: int, stop: int) -> None:
    def run(order: InterleaveOrder, taken: list[int], limit: int | None) -> list[str]:
        found: list[str] = []
        while (limit is None or len(found) < limit) and (take := order.next()) is not None:
            count = min(1, lengths[take.source] - taken[take.source])
            found += [f"{take.source}:{taken[take.source]}"] * count
            taken[take.source] += count
            order.took(count, ended=count == 0)
        return found

    order, taken = InterleaveOrder(len(lengths), cycle_length=cycle, block_length=block), [0] * len(lengths)
    first = run(order, taken, stop)
    again = InterleaveOrder(len(lengths), cycle_length=cycle, block_length=block)
    again.load_state_dict(json.loads(json.dumps(order.state_dict())))
    assert first + run(again, taken, None) == tf_data(lengths, cycle, block)


def test_state_of_another_interleave_is_rejected() -> None:
    state = InterleaveOrder(5, cycle_length=3, block_length=1).state_dict()
    with pytest.raises(
        ValueError, match="the state belongs to an interleave with different inputs or a different cycle_length"
    ):
        InterleaveOrder(5, cycle_length=2, block_length=1).load_state_dict(state)


@pytest.mark.parametrize(("cycle", "block"), [(0, 1), (1, 0), (-1, 1)])
def test_invalid_cycle_and_block_lengths_are_rejected(cycle: int, block: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        InterleaveOrder(1, cycle_length=cycle, block_length=block)
