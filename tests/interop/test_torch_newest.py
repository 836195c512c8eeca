"""PyTorch's loaders read the newest version of each key, without workers and with forked and spawned ones."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest
from torch.utils.data import DataLoader

from asyncrec import FixedLen, Schema, blocking, decode_example
from asyncrec.integrations.torch import RecordDataset, ShuffledDataset

SCHEMA = Schema({"n": FixedLen((), "int64"), "date": FixedLen((), "str")})
WORKERS = pytest.mark.parametrize(("workers", "method"), [(0, None), (2, "fork"), (2, "spawn")])
# 300 pages. A third of them also have a second version; for every other one of those, the second version is newer.
NEWEST = [n for n in range(300) if n % 3 or n % 6] + [300 + n // 3 for n in range(0, 300, 6)]


@pytest.fixture
def pages(tmp_path: Path) -> str:
    path = str(tmp_path / "pages")
    for numbers in (range(300), range(0, 300, 3)):
        with blocking.open_sharded_writer(path, schema=SCHEMA, max_shard_records=40, on_duplicate="write") as writer:
            for n in numbers:
                number = n if len(numbers) == 300 else 300 + n // 3
                date = "2" if number < 300 else "3" if n % 6 == 0 else "1"
                writer.write({"n": number, "date": date}, key=f"page {n}")
    return path


def number(record: bytes) -> int:
    return int(decode_example(record)["n"][0])


def numbers(records: list[bytes]) -> list[int]:
    return [number(record) for record in records]


def flat(batches: object) -> list[int]:
    return [each for batch in batches for each in batch]  # type: ignore[attr-defined]  # any loader


@WORKERS
def test_workers_together_return_each_newest_version_once(pages: str, workers: int, method: str | None) -> None:
    """The workers receive the list of newest versions, because they can no longer determine it."""
    dataset = ShuffledDataset(pages, batch_size=7, transform=numbers, seed=1, newest="date")
    shutil.rmtree(Path(pages).parent / "_keys")
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, multiprocessing_context=method)
    first = flat(loader)
    assert sorted(first) == sorted(NEWEST)
    assert len(dataset) == -(-len(NEWEST) // 7)
    dataset.set_epoch(1)
    assert sorted(second := flat(loader)) == sorted(NEWEST)
    assert second != first


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 1), (1, 0)])
def test_newest_stream_resumes_with_other_worker_count(pages: str, before: int, after: int) -> None:
    def loader(workers: int) -> tuple[ShuffledDataset, DataLoader[object]]:
        dataset = ShuffledDataset(pages, batch_size=7, transform=numbers, seed=1, newest="date")
        return dataset, DataLoader(dataset, batch_size=None, num_workers=workers)

    dataset, batches = loader(before)
    done = flat(islice(batches, 12))
    state = dataset.stream_state(12)
    dataset, batches = loader(after)
    dataset.load_stream_state(state)
    assert sorted(done + flat(batches)) == sorted(NEWEST)
    with pytest.raises(ValueError, match="taken with newest='date', but this stream has None"):
        ShuffledDataset(pages, batch_size=7, seed=1).load_stream_state(state)


@WORKERS
def test_map_style_dataset_contains_newest_versions(pages: str, workers: int, method: str | None) -> None:
    dataset = RecordDataset(pages, transform=number, newest="date")
    assert len(dataset) == len(NEWEST)
    assert dataset[-1] == dataset[len(NEWEST) - 1]
    with pytest.raises(IndexError):
        dataset[len(NEWEST)]
    loader = DataLoader(
        dataset, batch_size=9, shuffle=True, num_workers=workers, multiprocessing_context=method, collate_fn=list
    )
    assert sorted(flat(loader)) == sorted(NEWEST)
