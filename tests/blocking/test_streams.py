from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

import asyncrec
from asyncrec import blocking
from asyncrec.blocking._owner import Opened
from asyncrec.errors import DatasetError

COUNT = 1000


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    with blocking.open_sharded_writer(tmp_path / "numbers", num_shards=4) as writer:
        for number in range(COUNT):
            writer.write(b"%d" % number, key=str(number))
    return str(tmp_path / "numbers")


def test_data_set_returns_records_by_number_and_key(dataset: str) -> None:
    with blocking.open_dataset(dataset) as numbers:
        assert len(numbers) == COUNT
        assert numbers.get_many([5, 0, -1]) == [numbers[5], numbers.get(0), numbers[COUNT - 1]]
        assert numbers.get_by_key("77") == b"77"
        assert numbers[numbers.find("78")] == b"78"
        assert numbers.locate(0).offset == 0
        with pytest.raises(IndexError):
            numbers[COUNT]


def test_data_set_rejects_reads_after_with_block(dataset: str) -> None:
    with blocking.open_dataset(dataset) as numbers:
        numbers.get_by_key("77")
    for read in (
        lambda: numbers[0],
        lambda: numbers.get_many([0]),
        lambda: numbers.find("77"),
        lambda: numbers.locate(0),
        lambda: list(numbers),
    ):
        with pytest.raises(anyio.ClosedResourceError, match="open_dataset is closed; use it inside its `with`"):
            read()


def test_batches_follow_order_of_single_records(dataset: str) -> None:
    with blocking.open_dataset(dataset) as numbers:
        with numbers.shuffled(seed=3) as stream:
            one_by_one = list(stream)
        with numbers.shuffled(seed=3) as stream:
            in_batches = [record for records in stream.batches(64) for record in records]
    assert one_by_one == in_batches
    assert sorted(map(int, one_by_one)) == list(range(COUNT))
    paths = blocking.list_shards(dataset)
    with blocking.interleave(paths, cycle_length=2, block_length=3) as interleaved:
        first = [next(interleaved) for _ in range(6)]
    one, other = (blocking.read_records(path, limit=3) for path in paths[:2])
    assert first == one + other


@pytest.mark.parametrize("given", [0, 1, 100, 255, 256, 257, 999, 1000])
@pytest.mark.parametrize("kind", ["shuffled", "interleave"])
def test_stream_resumes_after_any_record(dataset: str, given: int, kind: str) -> None:
    def open_stream(numbers: blocking.Dataset) -> Opened[blocking.Stream[bytes]]:
        if kind == "shuffled":
            return numbers.shuffled(seed=1)
        return blocking.interleave(blocking.list_shards(dataset), shuffle_buffer=50, seed=1)

    with blocking.open_dataset(dataset) as numbers:
        with open_stream(numbers) as stream:
            everything = list(stream)
        with open_stream(numbers) as stream:
            for _ in range(given):
                next(stream)
            state = json.loads(json.dumps(stream.state_dict()))
        with open_stream(numbers) as stream:
            stream.load_state_dict(state)
            assert stream.state_dict() == state
            assert list(stream) == everything[given:]


@pytest.mark.parametrize("given", [0, 1, 100, 255, 256, 300])
def test_other_readers_resume_from_state_between_transfers(given: int, dataset: str) -> None:
    """The other readers read in batches, on an event loop, or again before the end of the list."""
    paths = blocking.list_shards(dataset)
    with blocking.interleave(paths, cycle_length=2) as stream:
        everything = list(stream)
    with blocking.interleave(paths, cycle_length=2) as stream:
        for _ in range(given):
            next(stream)
        state = json.loads(json.dumps(stream.state_dict()))
    with blocking.interleave(paths, cycle_length=2) as stream:
        stream.load_state_dict(state)
        assert [record for batch in stream.batches(7) for record in batch] == everything[given:]

    async def read() -> list[bytes]:
        async with asyncrec.interleave(paths, cycle_length=2) as stream:
            stream.load_state_dict(state)
            return [record async for record in stream]

    assert anyio.run(read) == everything[given:]
    for more in (1, 254, 255, 256):
        with blocking.interleave(paths, cycle_length=2) as stream:
            stream.load_state_dict(state)
            for _ in range(more):
                next(stream)
            later = json.loads(json.dumps(stream.state_dict()))
        with blocking.interleave(paths, cycle_length=2) as stream:
            stream.load_state_dict(later)
            assert list(stream) == everything[given + more :]


def numbered_shards(folder: Path, *, shards: int = 10, records: int = 60) -> list[Path]:
    paths = [folder / f"s{shard}.tfrecord" for shard in range(shards)]
    for shard, path in enumerate(paths):
        blocking.write_records(path, [b"%d/%03d" % (shard, number) for number in range(records)])
    return paths


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize(("given", "shard"), [(1, 0), (2, 1), (121, 0), (121, 2), (255, 4), (256, 4), (257, 5)])
def test_stream_state_detects_replaced_shard(given: int, shard: int, goes_on: bool, tmp_path: Path) -> None:
    """This covers shards read to their end since the list began, and a stream that was itself resumed."""
    paths = numbered_shards(tmp_path)
    with blocking.interleave(paths, cycle_length=2) as stream:
        for _ in range(0 if goes_on else given):
            next(stream)
        state = json.loads(json.dumps(stream.state_dict()))
    if goes_on:
        with blocking.interleave(paths, cycle_length=2) as stream:
            stream.load_state_dict(state)
            for _ in range(given):
                next(stream)
            state = json.loads(json.dumps(stream.state_dict()))
    blocking.write_records(paths[shard], [b"N/%03d" % number for number in range(60)])
    with blocking.interleave(paths, cycle_length=2) as stream:
        with pytest.raises(DatasetError, match=rf"s{shard}.tfrecord: the shard was replaced after the state was taken"):
            stream.load_state_dict(state)
            next(stream)


@pytest.mark.parametrize("given", [0, 1, 255])
def test_stream_state_tolerates_replacement_of_unread_shard(given: int, tmp_path: Path) -> None:
    paths = numbered_shards(tmp_path)
    with blocking.interleave(paths, cycle_length=2) as stream:
        everything = [next(stream) for _ in range(given)]
        state = json.loads(json.dumps(stream.state_dict()))
    blocking.write_records(paths[9], [b"new"] * 3)
    with blocking.interleave(paths, cycle_length=2) as stream:
        stream.load_state_dict(state)
        everything += stream
    assert len(everything) == 9 * 60 + 3
    assert everything.count(b"new") == 3


def test_stream_rejects_batches_while_single_records_are_buffered(dataset: str) -> None:
    with blocking.interleave(blocking.list_shards(dataset)) as stream:
        next(stream)
        with pytest.raises(RuntimeError, match="record by record"):
            stream.batches(10)


def test_splits_and_tuples_round_trip(tmp_path: Path) -> None:
    def generator(split: str) -> list[tuple[str, dict[str, int]]]:
        return [(f"{split}{number}", {"n": number}) for number in range(600)]

    writer = blocking.DatasetWriter(generator, None, tmp_path, "train", progress=False)
    writer.create_records()
    assert writer.current_examples == 600
    with blocking.open_split(tmp_path, "train[:50%]") as split:
        assert len(split) == 300
        found = [int(features["n"]) for features in split]
    paths = blocking.get_tfrecord_filepaths(tmp_path)
    with blocking.generate_dataset(paths, None) as tuples:
        assert tuples.names == ("n",)
        everything = [int(number) for (number,) in tuples]
    assert found == everything[:300]
    assert sorted(everything) == list(range(600))


def test_stream_yields_all_records_before_damage(dataset: str) -> None:
    path = blocking.list_shards(dataset)[0]
    data = bytearray(Path(path).read_bytes())
    data[-5] ^= 1
    Path(path).write_bytes(data)
    records = 0
    with pytest.raises(asyncrec.CorruptRecordError), blocking.interleave([path]) as stream:
        for _ in stream:
            records += 1
    assert records == blocking.read_manifest(dataset).shards[0].records - 1


def test_balanced_batches_resume_from_state(dataset: str) -> None:
    def last_digit(record: bytes) -> int:
        return int(record) % 10

    def sampler() -> Opened[blocking.Stream[list[bytes]]]:
        return blocking.InterleaveSampler(
            str(Path(dataset).parent), bytes, 2, 8, num_repeat=2, seed=1, class_fn=last_digit
        )

    with sampler() as stream:
        batches = [next(stream) for _ in range(20)]
    assert all(len({last_digit(record) for record in batch}) == 4 for batch in batches)
    with sampler() as stream:
        for _ in range(7):
            next(stream)
        state = json.loads(json.dumps(stream.state_dict()))
        assert stream.stats().batches >= 7
    with sampler() as stream:
        stream.load_state_dict(state)
        assert [next(stream) for _ in range(13)] == batches[7:]


def test_balanced_batches_mix_classes_scattered_over_shards(dataset: str) -> None:
    with (
        blocking.open_dataset(dataset) as numbers,
        blocking.ClassBalancedSampler(numbers, 3, 2, class_fn=lambda record: int(record) % 10) as stream,
    ):
        for _ in range(5):
            assert len({int(record) % 10 for record in next(stream)}) == 3


def test_nondeterministic_stream_reads_but_rejects_state(dataset: str) -> None:
    paths = blocking.list_shards(dataset)
    with blocking.interleave(paths, parallelism=2, deterministic=False) as stream:
        next(stream)
        with pytest.raises(RuntimeError, match="deterministic"):
            stream.state_dict()
        assert len(list(stream)) == COUNT - 1


def test_stream_lists_skipped_damage_with_path(dataset: str) -> None:
    path = blocking.list_shards(dataset)[2]
    content = bytearray(Path(path).read_bytes())
    content[14] ^= 1  # the data of its first record
    Path(path).write_bytes(content)
    with blocking.open_dataset(dataset) as numbers, numbers.shuffled(on_corrupt="skip") as stream:
        assert len(list(stream)) == COUNT - 1
        assert [(lost.path, lost.damage.reason) for lost in stream.damage] == [(path, "data")]
    with blocking.interleave(blocking.list_shards(dataset), on_corrupt="skip") as interleaved:
        assert len(list(interleaved)) == COUNT - 1
        assert [(lost.path, lost.damage.reason) for lost in interleaved.damage] == [(path, "data")]
