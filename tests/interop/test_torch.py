"""The datasets for PyTorch in real DataLoaders: without workers, and with forked and spawned ones."""

from __future__ import annotations

import pickle
import subprocess
import sys
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
    """A class, so that it can be sent to a spawned worker."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self, worker: tuple[int, int]) -> object:
        return blocking.interleave(blocking.list_shards(self.path), worker=worker)


WORKERS = pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])


def flat(loader: object) -> list[int]:
    return [number for batch in loader for number in batch]  # type: ignore[attr-defined]  # any loader


@WORKERS
def test_workers_together_give_every_record_once_each_epoch_in_another_order(
    numbers: str, workers: int, method: str | None
) -> None:
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
def test_any_stream_is_dealt_to_the_workers(numbers: str, workers: int, method: str | None) -> None:
    dataset = StreamDataset(Interleaved(numbers), transform=int)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)
    assert sorted(loader) == list(range(COUNT))


@WORKERS
def test_a_map_style_dataset_gives_the_batches_that_the_sampler_asks_for(
    numbers: str, workers: int, method: str | None
) -> None:
    dataset = RecordDataset(numbers, transform=int)
    assert len(dataset) == COUNT
    assert dataset[-1] == dataset[COUNT - 1]
    loader = DataLoader(
        dataset, batch_size=BATCH, shuffle=True, num_workers=workers, multiprocessing_context=method, collate_fn=list
    )
    assert sorted(flat(loader)) == list(range(COUNT))


def test_what_is_sent_to_a_worker_holds_nothing_open_and_the_same_snapshot(numbers: str) -> None:
    dataset = RecordDataset(numbers, transform=int)
    assert dataset[0] != dataset[1]  # it is open here
    with blocking.open_sharded_writer(numbers, max_shard_records=10) as writer:
        writer.write(b"0")
    copy = pickle.loads(pickle.dumps(dataset))
    assert len(copy) == COUNT
    assert [copy[index] for index in (0, 5, -1)] == [dataset[index] for index in (0, 5, -1)]


@WORKERS
def test_all_workers_and_epochs_read_the_snapshot_that_was_sent(
    numbers: str, workers: int, method: str | None, tmp_path: Path
) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH, transform=to_ints, seed=1, cache=tmp_path / "cache")
    with blocking.open_sharded_writer(numbers, max_shard_records=10) as writer:
        writer.write(b"0")
    for manifest in (tmp_path / "_manifest").rglob("*.json"):
        manifest.unlink()  # nobody asks for it again
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)
    for _ in range(2):
        assert sorted(flat(loader)) == list(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("given", [0, 1, 7, 31, 32])
def test_a_stateful_loader_goes_on_behind_its_last_batch(numbers: str, workers: int, given: int) -> None:
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
    """What each of two ranks gave, line by line."""
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
def test_ranks_are_found_by_themselves_and_no_record_comes_twice(
    numbers: str, tmp_path: Path, kind: str, method: str, workers: tuple[int, int]
) -> None:
    given = of_two_ranks(tmp_path, numbers, kind, method, workers)
    if kind == "shuffled":
        assert [len(batches) for batches in given] == [COUNT // BATCH // 2] * 2
    found = [int(number) for batches in given for batch in batches for number in batch.split()]
    assert sorted(found) == list(range(COUNT))


@pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork")])
@pytest.mark.parametrize("chosen", [None, 2])
def test_a_state_of_a_later_epoch_is_gone_on_from(
    numbers: str, workers: int, method: str | None, chosen: int | None
) -> None:
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


def test_leaving_a_loader_early_ends_its_workers(numbers: str) -> None:
    dataset = ShuffledDataset(numbers, batch_size=BATCH, transform=to_ints, num_repeat=-1)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    batches = iter(loader)
    next(batches)
    workers = list(batches._workers)
    del batches
    assert [worker.is_alive() for worker in workers] == [False, False]
