"""Batches of a shuffled stream leave the event loop in groups; its state is the state after the last returned batch."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import anyio
import pytest

import asyncrec
from asyncrec import blocking

COUNT = 1000
# Successive iterations: the batch size of each, and how many batches are taken before the next one begins.
PLANS = [
    [(1, 300), (1, 1)],
    [(7, 3), (7, 40), (32, 1), (7, 2), (256, 1), (3, 5)],
    [(330, 1), (10, 12), (300, 2), (10, 100)],
    [(64, 10), (64, 10), (64, 10)],
]
Taken = list[tuple[list[bytes], dict[str, Any]]]


@pytest.fixture(scope="module", params=["whole", "damaged"])
def dataset(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("grouped") / "numbers"
    with blocking.open_sharded_writer(path, max_shard_records=250) as writer:
        writer.write_many([b"%d" % number for number in range(COUNT)])
    if request.param == "damaged":
        for shard in blocking.list_shards(path):
            data = bytearray(Path(shard).read_bytes())
            for place in random.Random(1).sample(range(len(data)), 20):
                data[place] ^= 0xFF
            Path(shard).write_bytes(data)
    return str(path)


def options(worker: tuple[int, int], uneven: Literal["drop", "pad"]) -> dict[str, Any]:
    return {"seed": 3, "num_repeat": 2, "worker": worker, "uneven": uneven, "on_corrupt": "skip"}


async def asked(path: str, plan: list[tuple[int, int]], chosen: dict[str, Any]) -> Taken:
    taken: Taken = []
    async with asyncrec.open_dataset(path) as numbers, numbers.shuffled(**chosen) as stream:
        for size, count in plan:
            for _ in range(count):
                batch = await anext(stream.batches(size), None)
                if batch is not None:
                    taken.append((batch, stream.state_dict()))
    return taken


@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize(("worker", "uneven"), [((0, 1), "drop"), ((1, 3), "drop"), ((2, 3), "pad")])
def test_batches_and_states_match_async_streams(
    dataset: str, plan: list[tuple[int, int]], worker: tuple[int, int], uneven: Literal["drop", "pad"]
) -> None:
    chosen = options(worker, uneven)
    expected = anyio.run(asked, dataset, plan, chosen)
    taken: Taken = []
    with blocking.open_dataset(dataset) as numbers, numbers.shuffled(**chosen) as stream:
        for size, count in plan:
            taken += [(batch, stream.state_dict()) for batch in islice(stream.batches(size), count)]
    assert taken == expected
    assert len(taken) > 2


@pytest.mark.parametrize("size", [1, 16])
@pytest.mark.parametrize("given", [0, 1, 5, 31, 32, 62, 63])
def test_different_number_of_workers_resumes_after_any_batch(dataset: str, given: int, size: int) -> None:
    with blocking.open_dataset(dataset) as numbers:
        with numbers.shuffled(seed=1, on_corrupt="skip") as stream:
            batches = stream.batches(size)
            before = [record for batch in islice(batches, given) for record in batch]
            state = json.loads(json.dumps(stream.state_dict()))
            rest = [record for batch in batches for record in batch]
        after: list[bytes] = []
        for number in range(2):
            with numbers.shuffled(seed=1, worker=(number, 2), on_corrupt="skip") as stream:
                stream.load_state_dict(state)
                after += [record for batch in stream.batches(1) for record in batch]
    assert len(before) + len(rest) >= COUNT // 2
    assert set(after) <= set(rest)
    assert len(after) == len(set(after)) >= len(rest) - 1


def records_of(stream: blocking.Stream[bytes], size: int, count: int) -> Iterator[bytes]:
    for batch in islice(stream.batches(size), count):
        yield from batch


def test_stream_mixes_single_records_and_batches(dataset: str) -> None:
    with blocking.open_dataset(dataset) as numbers:
        with numbers.shuffled(seed=1, on_corrupt="skip") as stream:
            everything = list(stream)
        with numbers.shuffled(seed=1, on_corrupt="skip") as stream:
            taken = [*records_of(stream, 8, 3), *records_of(stream, 8, 2), *islice(stream, 5)]
            taken += [*records_of(stream, 3, 2), next(stream), *records_of(stream, 1, 9)]
            assert stream.stats().records >= len(taken)
            taken += stream
            assert stream.stats().records == len(everything)
    assert taken == everything
