"""All workers together get each position once, wherever they stopped and however many of them resume."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._sampling.epochs.worker_batches import WorkerBatches, WorkerOfRank


def dealt(count: int, worker: int, workers: int, size: int, place: tuple[int, int] = (0, 0), **options: Any) -> Any:
    """Return a worker's batches, each with the position that follows it."""
    defaults: dict[str, Any] = {"epoch": 0, "num_repeat": 1, "uneven": "pad"}
    options = {**defaults, **options}
    batches = WorkerBatches(count, worker=(worker, workers), **options)
    batches.go_on(*place, run=(options["epoch"], options["num_repeat"]))
    batches.count_batches(size)
    found = []
    while (batch := batches.batch()) is not None:
        batches.took()
        found.append((batch, batches.place))
    return found


@given(st.integers(1, 60), st.integers(1, 9), st.lists(st.integers(1, 6), min_size=1, max_size=4), st.data())
def test_positions_are_assigned_once_across_changing_worker_counts(
    count: int, size: int, workers: list[int], data: st.DataObject
) -> None:
    """With padding, all workers get equally many batches; the repeated positions are from the start of the epoch."""
    place = (0, 0)
    given_out: list[int] = []
    for phase, number in enumerate(workers):
        each = [dealt(count, worker, number, size, place) for worker in range(number)]
        assert len({len(batches) for batches in each}) == 1
        if not each[0]:
            break
        rounds = len(each[0]) if phase == len(workers) - 1 else data.draw(st.integers(1, len(each[0])))
        for turn in range(rounds):
            assert len({batches[turn][1] for batches in each}) == 1  # all workers are at the same position
            for batches in each:
                given_out += range(*batches[turn][0])
        place = each[0][rounds - 1][1]
        if place == (1, 0):
            break
    assert given_out[:count] == list(range(count))[: len(given_out)]
    padding = given_out[count:]
    assert all(position < count for position in padding)
    assert len(padding) < max(workers) * size


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 6), st.integers(0, 3))
def test_unpadded_epoch_drops_incomplete_last_round(count: int, size: int, workers: int, num_repeat: int) -> None:
    batches = -(-count // size)
    if num_repeat and batches < workers:
        with pytest.raises(ValueError, match="fewer than"):
            dealt(count, 0, workers, size, uneven="drop", num_repeat=num_repeat)
        return
    each = [dealt(count, worker, workers, size, uneven="drop", num_repeat=num_repeat) for worker in range(workers)]
    given_out = [range(*batch) for turn in zip(*each, strict=True) for batch, _ in turn]
    epoch = [range(begin, min(begin + size, count)) for begin in range(0, count, size)][: batches // workers * workers]
    assert given_out == epoch * num_repeat


@given(st.integers(1, 60), st.integers(1, 9), st.integers(1, 5), st.integers(1, 20), st.data())
def test_positions_read_equal_positions_assigned(
    count: int, size: int, workers: int, window: int, data: st.DataObject
) -> None:
    worker = data.draw(st.integers(0, workers - 1))
    batches = WorkerBatches(count, epoch=0, num_repeat=2, worker=(worker, workers), uneven="pad")
    batches.count_batches(size)
    read = []
    for each in batches.ranges(window):
        if each.counted_from is None:
            read += range(each.first, each.last)
        else:
            assert each.last - each.first <= window
            read += [at for at in range(each.first, each.last) if at // size % workers == worker]
    given_out = [at for batch, _ in dealt(count, worker, workers, size, num_repeat=2) for at in range(*batch)]
    assert read == given_out


@given(
    st.integers(0, 60), st.integers(1, 9), st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.sampled_from(["drop", "pad"]), st.data(),
)  # fmt: skip
def test_ranks_get_equal_batch_counts_for_any_workers(
    count: int, size: int, workers: list[int], uneven: str, data: st.DataObject
) -> None:
    """Batches are in the order in which a loader polls its workers; a position after some of them fits all ranks."""
    ranks = len(workers)
    if count and uneven == "drop" and -(-count // size) < ranks:
        return
    place = (0, 0)
    for phase in range(2):
        alone = [
            batches_of(count, WorkerOfRank(rank, ranks, ranks=ranks), size, place, uneven) for rank in range(ranks)
        ]
        assert len({len(batches) for batches in alone}) == 1
        for rank, batches in enumerate(alone):
            shares = [
                batches_of(
                    count, WorkerOfRank(rank + ranks * one, ranks * workers[rank], ranks=ranks), size, place, uneven
                )
                for one in range(workers[rank])
            ]
            assert [share[turn] for turn in range(count + 1) for share in shares if turn < len(share)] == batches
        if not alone[0] or phase:
            break
        done = data.draw(st.integers(0, len(alone[0])))
        dealt_out = WorkerBatches(
            count, epoch=0, num_repeat=1, worker=WorkerOfRank(0, ranks, ranks=ranks), uneven=uneven
        )
        dealt_out.count_batches(size)
        assert dealt_out.rounds == len(alone[0])
        dealt_out.took(done)
        place = dealt_out.place
        assert place == ((1, 0) if done == len(alone[0]) else (0, done * ranks * size))


def batches_of(
    count: int, worker: tuple[int, int], size: int, place: tuple[int, int], uneven: Any
) -> list[tuple[int, int]]:
    batches = WorkerBatches(count, epoch=0, num_repeat=1, worker=worker, uneven=uneven)
    batches.go_on(*place, run=(0, 1))
    batches.count_batches(size)
    found = []
    while (batch := batches.batch()) is not None:
        batches.took()
        found.append(batch)
    return found
