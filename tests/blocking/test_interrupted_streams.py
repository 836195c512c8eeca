"""The state after Ctrl-C, which may interrupt a call after it has read records but before it returns them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from asyncrec import blocking
from asyncrec.blocking._portal import current_portal

COUNT = 1000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("numbers")
    with blocking.open_sharded_writer(folder / "numbers", num_shards=4) as writer:
        for number in range(COUNT):
            writer.write(b"%d" % number, key=str(number))
    return str(folder)


@pytest.fixture(scope="module")
def numbers(folder: str) -> Iterator[blocking.Dataset]:
    with blocking.open_dataset(f"{folder}/numbers") as numbers:
        yield numbers


def last_digit(record: bytes) -> int:
    return int(record) % 10


def interleaved(numbers: blocking.Dataset, folder: str) -> Any:
    return blocking.interleave(blocking.list_shards(f"{folder}/numbers"), shuffle_buffer=50, seed=1)


def sampled(**options: Any) -> Callable[[blocking.Dataset, str], Any]:
    options |= {"num_repeat": 1, "seed": 1}
    return lambda numbers, folder: blocking.InterleaveSampler(folder, bytes, 2, 8, **options)


def balanced(numbers: blocking.Dataset, folder: str) -> Any:
    return blocking.ClassBalancedSampler(numbers, 3, 2, class_fn=last_digit, seed=1)


def shuffled(numbers: blocking.Dataset, folder: str) -> Any:
    return numbers.shuffled(seed=1, num_repeat=-1)


def in_sevens(stream: Any) -> Iterator[Any]:
    sevens: Iterator[Any] = stream.batches(7)
    return sevens


KINDS = {
    "interleave": (interleaved, iter),
    "interleave-batches": (interleaved, in_sevens),
    "sampler": (sampled(), iter),
    "sampler-unprefetched": (sampled(prefetch_size=0), iter),
    "sampler-of-classes": (sampled(prefetch_size=0, class_fn=last_digit), iter),
    "balanced": (balanced, iter),
    "shuffled": (shuffled, iter),
    "shuffled-batches": (shuffled, in_sevens),
}


def until_interrupted(items: Iterator[Any], given: int, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Interrupt the next call after ``given`` items once it has read more; return the items that the caller gets."""
    got = [next(items) for _ in range(given)]
    portal = current_portal().portal
    start = portal.start_task_soon

    def interrupted(*args: Any) -> Any:
        monkeypatch.undo()
        start(*args).result()
        raise KeyboardInterrupt

    monkeypatch.setattr(portal, "start_task_soon", interrupted)
    with pytest.raises(KeyboardInterrupt):
        while True:
            got.append(next(items))
    return got


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("given", [0, 3, 10])
def test_state_after_interrupted_call_skips_nothing(
    given: int, kind: str, numbers: blocking.Dataset, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_stream, items_of = KINDS[kind]
    with open_stream(numbers, folder) as stream:
        items = items_of(stream)
        got = until_interrupted(items, given, monkeypatch)
        states = [json.loads(json.dumps(stream.state_dict()))]
        rest = [next(items) for _ in range(20)]
    with open_stream(numbers, folder) as stream:
        stream.load_state_dict(states[0])
        assert until_interrupted(items_of(stream), 0, monkeypatch) == []
        states.append(json.loads(json.dumps(stream.state_dict())))
    for state in states:
        with open_stream(numbers, folder) as stream:
            stream.load_state_dict(state)
            items = items_of(stream)
            assert [next(items) for _ in range(20)] == rest
    with open_stream(numbers, folder) as stream:
        items = items_of(stream)
        assert [next(items) for _ in range(len(got) + 20)] == got + rest


def test_interrupted_batch_must_be_taken_first(
    numbers: blocking.Dataset, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with interleaved(numbers, folder) as stream:
        everything = list(stream)
    with interleaved(numbers, folder) as stream:
        until_interrupted(stream.batches(7), 0, monkeypatch)
        for other in (lambda: next(stream), lambda: stream.batches(8)):
            with pytest.raises(RuntimeError, match=r"batches\(7\)"):
                other()
        assert [record for batch in stream.batches(7) for record in batch] == everything
