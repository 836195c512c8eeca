"""`ClassQueues` returns exactly P classes with K records of each, in bounded memory, for any input."""

from __future__ import annotations

import json
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.interleave_sampler.class_queues import ClassQueues

Item = tuple[int, int]


def pushed(queues: ClassQueues[Item], classes: list[int], begin: int = 0) -> list[list[Item]]:
    batches = [queues.push(cls, (cls, begin + number)) for number, cls in enumerate(classes)]
    return [batch for batch in batches if batch is not None]


@given(st.lists(st.integers(0, 12), max_size=300), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10))
def test_batches_contain_k_items_of_p_classes_without_repeats(classes: list[int], p: int, k: int, extra: int) -> None:
    queues: ClassQueues[Item] = ClassQueues(p, k, p * k + extra)
    found: list[Item] = []
    for number, cls in enumerate(classes):
        batch = queues.push(cls, (cls, number))
        assert len(queues) <= p * k + extra
        if batch is not None:
            assert list(Counter(cls for cls, _ in batch).values()) == [k] * p
            assert [cls for cls, _ in batch] == [batch[i * k][0] for i in range(p) for _ in range(k)]
            found += batch
    assert len(set(found)) == len(found)
    assert len(found) + len(queues) + queues.dropped == len(classes)
    for cls in range(13):
        numbers = [number for found_cls, number in found if found_cls == cls]
        assert numbers == sorted(numbers)


@given(st.lists(st.integers(0, 9), max_size=200), st.integers(0, 200), st.integers(1, 3), st.integers(1, 3))
def test_restored_queues_continue_identically(classes: list[int], stop: int, p: int, k: int) -> None:
    queues: ClassQueues[Item] = ClassQueues(p, k, p * k + 5)
    pushed(queues, classes[:stop])
    again: ClassQueues[Item] = ClassQueues(p, k, p * k + 5)
    state = json.loads(json.dumps(queues.state_dict()))
    again.load_state_dict(state, [(item[0], item) for item in queues.items()])
    assert pushed(again, classes[stop:], stop) == pushed(queues, classes[stop:], stop)
    assert again.items() == queues.items()
    assert again.dropped == queues.dropped


def test_longest_queue_drops_oldest_item() -> None:
    queues: ClassQueues[Item] = ClassQueues(2, 2, 5)
    pushed(queues, [7, 7, 7, 7, 1, 2])
    assert queues.dropped == 1
    assert queues.items() == [(1, 4), (2, 5), (7, 1), (7, 2), (7, 3)]


def test_complete_class_is_not_dropped_for_incomplete_class() -> None:
    queues: ClassQueues[Item] = ClassQueues(2, 2, 4)
    pushed(queues, [1, 1, 2, 3, 4, 5])
    assert queues.ready == 1
    assert queues.dropped == 2
    assert pushed(queues, [4], 6) == [[(1, 0), (1, 1), (4, 4), (4, 6)]]


@pytest.mark.slow
def test_batches_continue_despite_too_many_classes() -> None:
    source = random.Random(3)
    queues: ClassQueues[Item] = ClassQueues(16, 2, 1000)
    halves = [len(pushed(queues, [source.randrange(10_000) for _ in range(50_000)])) for _ in range(4)]
    assert min(halves) > 50


def test_state_of_other_classes_is_rejected() -> None:
    queues: ClassQueues[Item] = ClassQueues(2, 2, 10)
    pushed(queues, [1, 1, 1, 2])
    state = queues.state_dict()
    with pytest.raises(ValueError, match="class_fn"):
        queues.load_state_dict(state, [(number, item) for number, item in enumerate(queues.items())])
    with pytest.raises(ValueError, match=r"class buffer: .*; pass the parameters that the state was taken with"):
        queues.load_state_dict(state, [])


@pytest.mark.parametrize(("p", "k", "room"), [(0, 1, 10), (1, 0, 10), (3, 2, 5)])
def test_invalid_numbers_are_rejected(p: int, k: int, room: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        ClassQueues(p, k, room)
