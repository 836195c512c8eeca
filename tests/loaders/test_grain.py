"""Grain with our records: a global shuffle yields each record once, and states resume exactly, on any store.

The functions at module level are those that are sent to grain's workers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import grain.samplers
import grain.sources
import grain.transforms
import pytest

from asyncrec import blocking
from asyncrec.integrations.grain import RecordDataSource

COUNT = 1000


@pytest.fixture
def source(numbers: str) -> Iterator[RecordDataSource]:
    made = RecordDataSource(numbers)
    yield made
    made.close()


def batches(source: RecordDataSource, *, seed: int = 7, workers: int = 0) -> Any:
    """Return a shuffled epoch in lists of 64."""
    records = grain.MapDataset.source(source).seed(seed).shuffle().map(int)
    read = records.to_iter_dataset(grain.ReadOptions(num_threads=4, prefetch_buffer_size=50))
    listed = read.batch(64, batch_fn=list)
    return listed.mp_prefetch(grain.multiprocessing.MultiprocessingOptions(workers)) if workers else listed


def flat(lists: Any) -> list[int]:
    return [number for numbers in lists for number in numbers]


def test_source_satisfies_grain_protocol(source: RecordDataSource) -> None:
    assert isinstance(source, grain.sources.RandomAccessDataSource)


@pytest.mark.parametrize("workers", [0, 2])
def test_shuffled_epoch_returns_each_record_once_by_seed(source: RecordDataSource, workers: int) -> None:
    found = flat(batches(source, workers=workers))
    assert sorted(found) == list(range(COUNT))
    assert found != sorted(found)
    assert flat(batches(source, workers=workers)) == found
    assert flat(batches(source, seed=8, workers=workers)) != found


@pytest.mark.parametrize("workers", [0, 2])
def test_state_resumes_exactly_in_another_source_of_snapshot(
    source: RecordDataSource, numbers: str, workers: int
) -> None:
    expected = flat(batches(source, workers=workers))
    for taken in (0, 7, 16):
        first = iter(batches(source, workers=workers))
        given = flat(next(first) for _ in range(taken))
        state = json.loads(json.dumps(first.get_state()))
        again = RecordDataSource(numbers)
        second = iter(batches(again, workers=workers))
        second.set_state(state)
        assert given + flat(second) == expected
        again.close()
        del first, second


class Decode(grain.transforms.Map):  # type: ignore[misc]  # grain is not there when types are checked
    def map(self, element: bytes) -> int:
        return int(element)


def loader(source: RecordDataSource, workers: int) -> Any:
    sampler = grain.samplers.IndexSampler(len(source), shard_options=grain.sharding.NoSharding(), shuffle=True, seed=3,
                                          num_epochs=1)  # fmt: skip
    return grain.DataLoader(data_source=source, sampler=sampler, operations=[Decode()], worker_count=workers)


@pytest.mark.parametrize("workers", [0, 2])
def test_older_grain_loader_resumes_exactly(source: RecordDataSource, numbers: str, workers: int) -> None:
    expected = [int(each) for each in loader(source, workers)]
    assert sorted(expected) == list(range(COUNT))
    first = iter(loader(source, workers))
    given = [int(next(first)) for _ in range(300)]
    state = first.get_state()
    again = RecordDataSource(numbers)
    second = iter(loader(again, workers))
    second.set_state(state)
    assert given + [int(each) for each in second] == expected
    again.close()


def test_state_of_another_snapshot_is_rejected(source: RecordDataSource, tmp_path: Path) -> None:
    state = iter(loader(source, 0)).get_state()
    with blocking.open_sharded_writer(tmp_path / "another" / "numbers") as writer:
        writer.write_many(b"%d" % number for number in range(COUNT))
    another = RecordDataSource(tmp_path / "another" / "numbers")
    with pytest.raises(ValueError, match="snapshot="):
        iter(loader(another, 0)).set_state(state)
    another.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_damage_error_names_record(tmp_path: Path, workers: int) -> None:
    with blocking.open_sharded_writer(tmp_path / "pages") as writer:
        writer.write_many(b"%d" % number for number in range(100))
    source = RecordDataSource(tmp_path / "pages")
    (shard,) = tmp_path.glob("*.tfrecord")
    content = bytearray(shard.read_bytes())
    content[content.index(b"57")] ^= 1
    shard.write_bytes(content)
    with pytest.raises(Exception, match=r"record 57"):
        flat(batches(source, workers=workers))
    source.close()
