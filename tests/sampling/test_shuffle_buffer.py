"""`ShuffleBuffer` shuffles randomly, reproducibly by its seed, and within its memory limits."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec import ShuffleBuffer


def chi_squared_p(counts: list[int]) -> float:
    """Return the probability that uniform counts deviate at least this much (Wilson and Hilferty's approximation)."""
    mean, free = sum(counts) / len(counts), len(counts) - 1
    statistic = sum((count - mean) ** 2 for count in counts) / mean
    z = ((statistic / free) ** (1 / 3) - (1 - 2 / (9 * free))) / math.sqrt(2 / (9 * free))
    return math.erfc(z / math.sqrt(2)) / 2


def shuffled(items: list[int], buffer: ShuffleBuffer[int]) -> list[int]:
    out = [buffer.push(item) for item in items]
    return [item for item in out if item is not None] + list(buffer.drain())


@given(st.lists(st.integers(), max_size=60), st.integers(1, 20), st.integers(), st.booleans())
def test_shuffle_buffer_returns_every_item_once_within_bound(
    items: list[int], size: int, seed: int, fill: bool
) -> None:
    buffer: ShuffleBuffer[int] = ShuffleBuffer(size, seed, fill=fill)
    found = []
    for number, item in enumerate(items):
        out = buffer.push(item)
        assert len(buffer) <= size
        if fill:
            assert (out is None) == (number < size)
        if out is not None:
            found.append(out)
    assert sorted(found + list(buffer.drain())) == sorted(items)
    assert len(buffer) == 0


@given(st.lists(st.integers(), max_size=60), st.integers(1, 20), st.integers(0, 60), st.booleans())
def test_restored_buffer_continues_identically(items: list[int], size: int, stop: int, fill: bool) -> None:
    buffer: ShuffleBuffer[int] = ShuffleBuffer(size, 7, fill=fill)
    for item in items[:stop]:
        buffer.push(item)
    again: ShuffleBuffer[int] = ShuffleBuffer(size, 0, fill=fill)
    again.load_state_dict(json.loads(json.dumps(buffer.state_dict())), buffer.items)
    assert shuffled(items[stop:], again) == shuffled(items[stop:], buffer)


def test_restored_buffer_continues_identically_beyond_one_seeding() -> None:
    buffer: ShuffleBuffer[int] = ShuffleBuffer(10, 1)
    for item in range(9000):
        buffer.push(item)
    again: ShuffleBuffer[int] = ShuffleBuffer(10, 0)
    again.load_state_dict(buffer.state_dict(), buffer.items)
    rest = list(range(9000, 20000))
    assert shuffled(rest, again) == shuffled(rest, buffer)


def test_every_order_is_equally_likely() -> None:
    orders = Counter(tuple(shuffled([0, 1, 2, 3], ShuffleBuffer(4, seed))) for seed in range(24_000))
    assert len(orders) == 24
    assert chi_squared_p([orders[order] for order in itertools.permutations(range(4))]) > 0.001


@pytest.mark.slow
def test_item_position_is_uniform_in_roomy_buffer() -> None:
    counts = [0] * 50
    for seed in range(20_000):
        counts[shuffled(list(range(50)), ShuffleBuffer(50, seed)).index(17)] += 1
    assert chi_squared_p(counts) > 0.001


def test_order_depends_on_seed() -> None:
    items = list(range(200))
    first = shuffled(items, ShuffleBuffer(50, 3))
    assert shuffled(items, ShuffleBuffer(50, 3)) == first
    assert shuffled(items, ShuffleBuffer(50, 4)) != first


@given(st.lists(st.binary(max_size=30), max_size=50), st.integers(1, 100))
def test_shuffle_buffer_bounds_total_bytes(items: list[bytes], most: int) -> None:
    buffer: ShuffleBuffer[bytes] = ShuffleBuffer(1000, 5, max_bytes=most)
    found = []
    for item in items:
        found += buffer.push_many([item])
        assert sum(map(len, buffer.items)) <= most or len(buffer) == 1
    assert sorted([*found, *buffer.drain()]) == sorted(items)


def test_unfilled_buffer_yields_from_second_item_on() -> None:
    buffer: ShuffleBuffer[int] = ShuffleBuffer(10, 0, fill=False)
    out = [buffer.push(item) for item in range(30)]
    assert [item is not None for item in out[:6]] == [False, True, False, True, False, True]
    assert None not in out[20:]


def test_sixteen_shards_mix_like_perfect_shuffle() -> None:
    """Neighbours share a shard at most 1.2 times as often as in a perfect shuffle (all shards open, buffer 4,096)."""
    shards = [shard for _ in range(2000) for shard in range(16)]
    found = [shard - 1 for shard in shuffled([shard + 1 for shard in shards], ShuffleBuffer(4096, 11))]
    same = [a == b for a, b in itertools.pairwise(found)]
    perfect = (2000 - 1) / (len(shards) - 1)
    assert sum(same) / len(same) <= 1.2 * perfect
    # A single first batch of 1,024 deviates more by chance alone, so a hundred seeds are averaged.
    first = total = 0
    for seed in range(100):
        buffer: ShuffleBuffer[int] = ShuffleBuffer(4096, seed)
        batch = [out for shard in shards[: 4096 + 1024] if (out := buffer.push(shard + 1)) is not None]
        first += sum(a == b for a, b in itertools.pairwise(batch))
        total += len(batch) - 1
    assert first / total <= 1.2 * perfect


@pytest.mark.parametrize(("size", "most"), [(0, None), (-1, None), (3, 0)])
def test_invalid_bounds_are_rejected(size: int, most: int | None) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        ShuffleBuffer(size, 0, max_bytes=most)


def test_mismatching_state_is_rejected() -> None:
    buffer: ShuffleBuffer[int] = ShuffleBuffer(3, 0)
    with pytest.raises(ValueError, match="do not fit"):
        buffer.load_state_dict(ShuffleBuffer(9, 0).state_dict(), range(9))
    with pytest.raises(ValueError, match="version"):
        buffer.load_state_dict({"version": 2}, [])
    with pytest.raises(IndexError):
        buffer.pop()
