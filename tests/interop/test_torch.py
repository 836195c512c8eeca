"""The datasets for PyTorch in real DataLoaders, without workers and with forked and spawned ones."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from asyncrec import blocking
from asyncrec.integrations.torch import RecordDataset, ShuffledDataset, StreamDataset

COUNT = 1024
BATCH = 32


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    with blocking.open_sharded_writer(tmp_path / "numbers", max_shard_records=COUNT // 4) as writer:
        writer.write_many(b"%d" % number for number in range(COUNT))
    return str(tmp_path / "numbers")


def to_ints(records: list[bytes]) -> list[int]:
    return [int(record) for record in records]


class Interleaved:
    """Opens an interleaved stream; a class, so that it can be pickled for a spawned worker."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, worker: tuple[int, int]) -> object:
        return blocking.interleave(blocking.list_shards(self.path), worker=worker)


WORKERS = pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])


def flat(loader: object) -> list[int]:
    return [number for batch in loader for number in batch]  # type: ignore[attr-defined]  # any loader


@WORKERS
def test_workers_yield_every_record_once_per_reshuffled_epoch(numbers: str, workers: int, method: str | None) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH, transform=to_ints, seed=1)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=workers, multiprocessing_context=method, persistent_workers=workers > 0
    )
    first = flat(loader)
    again = flat(loader)
    dataset.set_epoch(1)
    second = flat(loader)
    assert sorted(first) == sorted(second) == list(range(COUNT))
    assert first == again != second


@WORKERS
def test_any_stream_is_shared_among_workers(numbers: str, workers: int, method: str | None) -> None:
    dataset = StreamDataset(Interleaved(numbers), transform=int)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)
    assert sorted(loader) == list(range(COUNT))


@WORKERS
def test_map_style_dataset_serves_sampled_batches(numbers: str, workers: int, method: str | None) -> None:
    dataset = RecordDataset(numbers, transform=int)
    assert len(dataset) == COUNT
    assert dataset[-1] == dataset[COUNT - 1]
    loader = DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=workers, multiprocessing_context=method, collate_fn=list
    )
    assert sorted(flat(loader)) == list(range(COUNT))


def test_pickled_dataset_keeps_snapshot_after_growth(numbers: str) -> None:
    dataset = RecordDataset(numbers, transform=int)
    assert dataset[0] != dataset[1]  # this opens it in the parent
    with blocking.open_sharded_writer(numbers, max_shard_records=10) as writer:
        writer.write(b"0")
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy) == COUNT
    assert [copy[index] for index in (0, 5, -1)] == [dataset[index] for index in (0, 5, -1)]


@WORKERS
def test_workers_and_epochs_read_same_snapshot(numbers: str, workers: int, method: str | None, tmp_path: Path) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH, transform=to_ints, seed=1, cache=tmp_path / "cache")
    with blocking.open_sharded_writer(numbers, max_shard_records=10) as writer:
        writer.write(b"0")
    for manifest in (tmp_path / "_manifest").rglob("*.json"):
        manifest.unlink()  # it is not read again
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)
    for _ in range(2):
        assert sorted(flat(loader)) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("given", [0, 1, 7, 31, 32])
def test_stateful_loader_resumes_after_last_batch(numbers: str, workers: int, given: int) -> None:
    def loader() -> StatefulDataLoader:
        dataset = ShuffledDataset(numbers, batch_size=BATCH, transform=to_ints, seed=1)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    everything = list(loader())
    assert len(everything) == COUNT // BATCH
    first = loader()
    batches = iter(first)
    for _ in range(given):
        next(batches)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    second = loader()
    second.load_state_dict(state)
    assert list(second) == everything[given:]


@pytest.mark.parametrize("workers", [(0, 2), (2, 3), (3, 1), (3, 0)])
def test_training_loop_resumes_with_different_number_of_workers(numbers: str, workers: tuple[int, int]) -> None:
    def loader(count: int) -> tuple[ShuffledDataset, DataLoader]:
        dataset = ShuffledDataset(numbers, batch_size=BATCH, transform=to_ints, seed=1)
        return dataset, DataLoader(dataset, batch_size=None, num_workers=count, persistent_workers=count > 0)

    whole = {}
    dataset, batches = loader(0)
    for epoch in (1, 2):
        dataset.set_epoch(epoch)
        whole[epoch] = list(batches)

    def go_on(count: int, state: dict[str, object], stop: int) -> tuple[list[list[int]], dict[str, object]]:
        dataset, batches = loader(count)
        dataset.load_stream_state(json.loads(json.dumps(state)))
        given = list(islice(batches, stop))
        return given, dataset.stream_state(len(given))

    dataset, batches = loader(workers[0])
    dataset.set_epoch(1)
    given = list(islice(batches, 7))  # not a multiple of the number of workers
    second, state = go_on(workers[1], dataset.stream_state(7), 4)
    third, state = go_on(workers[0], state, 100)
    assert given + second + third == whole[1]
    dataset, batches = loader(workers[1])
    dataset.load_stream_state(state)  # the state at the end
    dataset.set_epoch(1)
    assert list(batches) == []
    with pytest.raises(RuntimeError, match="set_epoch"):
        list(batches)
    dataset.set_epoch(2)
    assert list(batches) == whole[2]


def test_loaded_state_works_with_or_without_set_epoch(numbers: str) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH, seed=1)
    dataset.set_epoch(2)
    rest, state = list(dataset)[5:], dataset.stream_state(5)
    for sets in (False, True):
        dataset = ShuffledDataset(numbers, batch_size=BATCH, seed=1)
        dataset.load_stream_state(state)
        if sets:
            dataset.set_epoch(2)
        assert list(dataset) == rest
        assert len(dataset) == len(rest) + 5


@pytest.mark.parametrize("workers", [0, 2])
def test_single_rank_reads_every_record_of_epoch(numbers: str, workers: int) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH - 1, transform=to_ints, seed=1)
    batches = list(DataLoader(dataset, batch_size=None, num_workers=workers))
    assert sorted(number for batch in batches for number in batch) == list(range(COUNT))
    assert len(batches) == len(dataset)


def test_loader_state_resumes_data_set_stream(numbers: str) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH, seed=1)
    dataset.set_epoch(3)
    everything = list(dataset)
    state = dataset.stream_state(5)
    with blocking.open_dataset(numbers) as records, records.shuffled(seed=1) as stream:
        stream.load_state_dict(state)
        assert list(stream.batches(BATCH)) == everything[5:]


def test_mismatching_state_is_rejected_before_iteration(numbers: str) -> None:
    def made(**options: object) -> ShuffledDataset:
        return ShuffledDataset(numbers, **{"batch_size": BATCH, "seed": 1} | options)

    dataset = made()
    dataset.set_epoch(2)
    state = dataset.stream_state(5)
    for other in (made(seed=2), made(num_repeat=2), made(mode="global"), made(uneven="pad")):
        with pytest.raises(ValueError, match=r"seed=|num_repeat=|mode=|uneven="):
            other.load_stream_state(state)
    for damaged in (
        {},
        {**state, "position": COUNT + 1},
        {**state, "epoch": 0},
        {**state, "list_position": 3},
        "state",
    ):
        with pytest.raises((ValueError, TypeError)):
            dataset.load_stream_state(damaged)  # type: ignore[arg-type]  # deliberately wrong
    dataset.load_stream_state(state)
    for epoch in (0, 1, 3):
        with pytest.raises(ValueError, match=r"set_epoch\(2\)"):
            dataset.set_epoch(epoch)
    dataset.set_epoch(2)
    for wrong in (-1, COUNT // BATCH - 4, 1.5, None):
        with pytest.raises((ValueError, TypeError), match="batches_done"):
            dataset.stream_state(wrong)  # type: ignore[arg-type]  # deliberately wrong
    with pytest.raises(ValueError, match="num_repeat"):
        made(num_repeat=-1).stream_state(0)


def test_arguments_are_checked_on_dataset_construction(numbers: str, tmp_path: Path) -> None:
    for wrong in (
        {"batch_size": 0}, {"seed": "a"}, {"seed": None}, {"mode": "full"}, {"shuffle": True}, {"epoch": 1},
        {"worker": (0, 2)}, {"buffer_size": 0}, {"num_repeat": -2}, {"uneven": "keep"}, {"transform": 3},
        {"cache_bytes": -1, "cache": tmp_path},
    ):  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            ShuffledDataset(numbers, **{"batch_size": BATCH} | wrong)
    with pytest.raises(TypeError, match="open_stream"):
        StreamDataset("data/numbers")  # type: ignore[arg-type]  # deliberately wrong


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("uneven", ["drop", "pad"])
def test_length_of_epoch_is_independent_of_workers(numbers: str, workers: int, uneven: str) -> None:
    dataset = ShuffledDataset(numbers, batch_size=100, transform=to_ints, uneven=uneven)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert len(loader) == len(dataset) == 11
    assert sorted(flat(loader)) == list(range(COUNT))
    with pytest.raises(TypeError, match="num_repeat"):
        len(ShuffledDataset(numbers, batch_size=100, num_repeat=2))


RANK = """
import sys
import torch.distributed
from torch.utils.data import DataLoader
from asyncrec import blocking
from asyncrec.integrations.torch import ShuffledDataset, StreamDataset


class Opening:
    def __init__(self, path):
        self.path = path

    def __call__(self, worker):
        return blocking.interleave(blocking.list_shards(self.path), worker=worker)


def joined(records):
    return b" ".join(records).decode()


if __name__ == "__main__":
    path, rendezvous, kind, method, rank, workers = sys.argv[1:]
    torch.distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=int(rank), world_size=2)
    if kind == "shuffled":
        dataset = ShuffledDataset(path, batch_size=32, transform=joined, seed=1)
    else:
        dataset = StreamDataset(Opening(path), transform=bytes.decode)
    method = method if int(workers) else None
    for batch in DataLoader(dataset, batch_size=None, num_workers=int(workers), multiprocessing_context=method):
        print(batch)
    torch.distributed.destroy_process_group()
"""


def of_two_ranks(folder: Path, path: str, kind: str, method: str, workers: tuple[int, int]) -> list[list[str]]:
    """Return the lines that each of two ranks printed."""
    script = folder / "rank.py"
    script.write_text(RANK)
    command = [sys.executable, str(script), path, str(folder / "rendezvous"), kind, method]
    ranks = [
        subprocess.Popen([*command, str(rank), str(count)], stdout=subprocess.PIPE, text=True)
        for rank, count in enumerate(workers)
    ]
    given = [rank.communicate(timeout=200)[0].splitlines() for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0]
    return given


@pytest.mark.parametrize("kind", ["shuffled", "interleaved"])
@pytest.mark.parametrize(
    ("method", "workers"),
    [("fork", (0, 0)), ("fork", (2, 2)), ("spawn", (2, 2)), ("forkserver", (2, 2)), ("fork", (2, 1))],
)
def test_ranks_are_detected_and_share_no_record(
    numbers: str, tmp_path: Path, kind: str, method: str, workers: tuple[int, int]
) -> None:
    given = of_two_ranks(tmp_path, numbers, kind, method, workers)
    if kind == "shuffled":  # for any number of workers in each rank
        assert [len(batches) for batches in given] == [COUNT // BATCH // 2] * 2
    found = [int(number) for batches in given for batch in batches for number in batch.split()]
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork")])
@pytest.mark.parametrize("chosen", [None, 2])
def test_state_of_later_epoch_is_resumed(numbers: str, workers: int, method: str | None, chosen: int | None) -> None:
    def loader(epoch: int | None, **options: object) -> StatefulDataLoader:
        dataset = ShuffledDataset(numbers, **{"batch_size": BATCH, "transform": to_ints, "seed": 1} | options)
        if epoch is not None:
            dataset.set_epoch(epoch)
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)

    first = loader(2)
    batches = iter(first)
    for _ in range(5):
        next(batches)
    state = pickle.loads(pickle.dumps(first.state_dict()))
    rest = list(batches)
    assert len(rest) == COUNT // BATCH - 5
    second = loader(chosen)
    second.load_state_dict(state)
    assert list(second) == rest
    for other in (loader(0), loader(3), loader(None, num_repeat=2), loader(None, seed=2), loader(None, batch_size=16)):
        other.load_state_dict(state)
        with pytest.raises((ValueError, RuntimeError), match=r"set_epoch\(2\)|num_repeat=|seed=|batch_size="):
            list(other)


def test_abandoned_loader_ends_its_workers(numbers: str) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH, transform=to_ints, num_repeat=-1)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    batches = iter(loader)
    next(batches)
    workers = list(batches._workers)
    del batches
    assert [worker.is_alive() for worker in workers] == [False, False]
