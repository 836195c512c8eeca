"""A state that is accepted yields exactly what the original stream would have yielded.

Every argument of every stream is changed, and every value in a state is damaged, one at a time. Each time, either the
remaining items are the same, or an error explains why they are not.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

import asyncrec
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio

# The number of items that are compared for streams that never end.
MOST = 12
REFUSED = "refused"
ODD: list[Any] = [
    None, True, False, -1, 1 << 62, 1 << 63, 1 << 200, 1.5, float("nan"), "x", [], [[]], [7], {}, {"x": 1},
]  # fmt: skip


def class_of(record: bytes) -> bytes:
    return asyncrec.decode_example(record)["label"].tobytes()


def class_of_example(example: dict[str, Any]) -> int:
    return int(example["label"][0])


class Kind(NamedTuple):
    """A stream, and one or more other values for each of its arguments.

    ``same`` are the arguments that do not affect the remaining items, so a state is accepted when they differ. An
    ``elastic`` stream can be resumed by a different number of workers.
    """

    function: Callable[..., Any]
    arguments: dict[str, Any]
    changes: dict[str, list[Any]]
    same: set[str]
    elastic: bool = False
    given: int = 3
    # Arguments that cannot be compared, such as functions, and those that select the data.
    unchanged: frozenset[str] = frozenset()


SHUFFLING: dict[str, list[Any]] = {
    "seed": [2],
    "epoch": [0, 1, 3, 7],
    "num_repeat": [0, 1, 3, -1],
    "mode": ["block", "buffer", "global"],
    "buffer_size": [3],
    "buffer_bytes": [100],
    "block_bytes": [40],
    "cycle_length": [2],
    "block_length": [3],
    "worker": [(1, 2), (2, 3)],
    "uneven": ["pad"],
    "on_corrupt": ["skip"],
}
INTERLEAVING: dict[str, list[Any]] = {
    "shuffle_buffer": [0, 3],
    "seed": [2],
    "worker": [(1, 2)],
    "on_corrupt": ["skip", "stop"],
    "compression": [""],
    "deterministic": [False],
}
KINDS = (
    {
        f"shuffled-{mode}": Kind(
            asyncrec.Dataset.shuffled,
            {"seed": 1, "epoch": 2, "num_repeat": 2, "mode": mode, "buffer_size": 8},
            {name: [each for each in values if (name, each) != ("mode", mode)] for name, values in SHUFFLING.items()},
            {"on_corrupt", "worker"}
            | ({"block_bytes"} if mode != "block" else set())
            | ({"cycle_length", "block_length"} if mode != "buffer" else set()),
            elastic=True,
        )
        for mode in ("block", "buffer", "global")
    }
    | {
        "balanced": Kind(
            asyncrec.ClassBalancedSampler,
            {"classes_per_batch": 2, "per_class": 2, "class_feature": "label", "seed": 1},
            {
                "classes_per_batch": [1],
                "per_class": [3],
                "class_feature": ["other"],
                "class_fn": [class_of],
                "seed": [2],
                "worker": [(1, 2)],
            },
            {"worker"},
            elastic=True,
            unchanged=frozenset({"dataset"}),
        ),
        "interleave": Kind(
            asyncrec.interleave,
            {"cycle_length": 3, "block_length": 2, "shuffle_buffer": 6, "seed": 1},
            INTERLEAVING
            | {
                "cycle_length": [2],
                "block_length": [1],
                "parallelism": [2],
                "memory_limit": [1 << 20],
            },
            {"on_corrupt", "compression", "parallelism", "memory_limit"},
            given=7,
            unchanged=frozenset({"paths", "max_record_bytes", "cache", "cache_bytes", "storage", "storage_options"}),
        ),
    }
    | {
        f"sampler-{name}": Kind(
            asyncrec.InterleaveSampler,
            {"example_per_class": 2, "batch_size": 4, "num_repeat": 2, "seed": 1, "prefetch_size": 0} | arguments,
            INTERLEAVING
            | {
                "example_per_class": [1],
                "batch_size": [6],
                "shards_per_cycle": [2],
                "parallelism": [2],
                "async_cycle": [True],
                "prefetch_size": [3],
                "shard_suffix": ["p-*[0-1].tfrecord"],
                "num_repeat": [1, 3, -1],
                "drop_remainder": [True],
                "on_exhausted": ["short", "repeat"],
                "class_buffer": [9],
            },
            {"on_corrupt", "compression", "parallelism", "async_cycle", "prefetch_size"} | same,
            unchanged=frozenset(
                {"shard_path", "deserialization_fn", "class_fn", "max_record_bytes", "cache", "cache_bytes", "storage"}
                | {"storage_options"}
            ),
        )
        for name, arguments, same in (
            ("plain", {"shuffle_buffer": 4}, {"on_exhausted", "class_buffer"}),
            ("balanced", {"class_fn": class_of_example, "class_buffer": 8}, {"drop_remainder"}),
        )
    }
)


async def stored() -> MemoryStorage:
    storage = MemoryStorage()
    for shard in range(4):
        await asyncrec.write_records(
            f"data/p-{shard}.tfrecord",
            [asyncrec.encode_example({"label": n % 3, "other": n, "id": 100 * shard + n}) for n in range(11)],
            storage=storage,
        )
    return storage


@asynccontextmanager
async def streaming(storage: MemoryStorage, name: str, arguments: Mapping[str, Any]) -> AsyncIterator[Any]:
    kind, options = KINDS[name], {**KINDS[name].arguments, **arguments}
    if name == "interleave":
        paths = [f"data/p-{shard}.tfrecord" for shard in range(4)]
        async with asyncrec.interleave(paths, storage=storage, **options) as stream:
            yield stream
    elif name.startswith("sampler"):
        async with asyncrec.InterleaveSampler(
            "data", asyncrec.decode_example, storage=storage, **{"shard_suffix": "p-*.tfrecord"} | options
        ) as sampler:
            yield sampler
    else:
        async with asyncrec.open_dataset("data/p-*.tfrecord", storage=storage) as dataset:
            if name == "balanced" and options.get("class_fn") is not None:
                options["class_feature"] = None
            async with kind.function(dataset, **options) as stream:
                yield stream


def plain(item: Any) -> Any:
    """Convert an item to something that can be compared with ==."""
    if isinstance(item, list):
        return [plain(each) for each in item]
    if isinstance(item, dict):
        return {name: plain(value) for name, value in item.items()}
    return item if isinstance(item, bytes) else item.tolist()


async def items_of(stream: Any, most: int) -> list[Any]:
    found: list[Any] = []
    async for item in stream:
        found.append(plain(item))
        if len(found) == most:
            break
    return found


async def state_and_rest(storage: MemoryStorage, name: str) -> tuple[Any, list[Any]]:
    """Return a state, as if loaded from a file, and the items that followed it."""
    async with streaming(storage, name, {}) as stream:
        for _ in range(KINDS[name].given):
            await anext(stream)
        state = json.loads(json.dumps(stream.state_dict()))
        return state, await items_of(stream, MOST if name == "balanced" else 1000)


async def resumed(storage: MemoryStorage, name: str, state: Any, most: int, **changes: Any) -> list[Any]:
    async with streaming(storage, name, changes) as stream:
        stream.load_state_dict(copy.deepcopy(state))
        return await items_of(stream, most)


async def outcome(storage: MemoryStorage, name: str, state: Any, most: int, **changes: Any) -> Any:
    """Return the remaining items, or "refused"; raise any error that is not one of the library's."""
    try:
        return await resumed(storage, name, state, most, **changes)
    except asyncrec.AsyncRecError:
        return REFUSED
    except RuntimeError as error:
        if "deterministic=False" not in str(error):
            raise
        return REFUSED
    except BaseException as error:
        error.add_note(f"{changes} {state}")
        raise


@pytest.mark.parametrize("name", KINDS)
def test_every_stream_argument_is_covered_by_these_tests(name: str) -> None:
    kind = KINDS[name]
    assert set(kind.changes) | kind.unchanged == set(inspect.signature(kind.function).parameters) - {"self"}


@pytest.mark.parametrize(("name", "argument"), [(name, argument) for name in KINDS for argument in KINDS[name].changes])
async def test_changed_argument_keeps_remainder_or_rejects_state(name: str, argument: str) -> None:
    storage, kind = await stored(), KINDS[name]
    state, rest = await state_and_rest(storage, name)
    assert await resumed(storage, name, state, len(rest) + 1 if name != "balanced" else MOST) == rest
    for value in kind.changes[argument]:
        if kind.elastic and argument == "worker":
            _, workers = value
            parts = [
                await resumed(storage, name, state, MOST if name == "balanced" else 1000, worker=(number, workers))
                for number in range(workers)
            ]
            together = [item for turn in zip(*parts, strict=True) for item in turn]
            assert together[:MOST] == rest[:MOST]
            if name != "balanced":
                assert len(rest) - 2 * workers < len(together) <= len(rest)
            continue
        most = MOST if name == "balanced" else len(rest) + 1
        found = await outcome(storage, name, state, most, **{argument: value})
        assert found == rest or (found == REFUSED and argument not in kind.same), value


@pytest.mark.parametrize("mode", ["block", "buffer", "global"])
@pytest.mark.parametrize("given", [0, 3, 44, 88])
@pytest.mark.parametrize("first", [0, 2])
async def test_stream_without_epoch_resumes_at_state_position(mode: Any, given: int, first: int) -> None:
    """This includes the end of an epoch, and the end of the last one, after which nothing is left."""
    async with asyncrec.open_dataset("data/p-*.tfrecord", storage=await stored()) as dataset:
        async with dataset.shuffled(seed=1, mode=mode, epoch=first, num_repeat=2) as stream:
            before = await items_of(stream, given) if given else []
            state = json.loads(json.dumps(stream.state_dict()))
            rest = await items_of(stream, 1000)
        assert len(before) + len(rest) == 88
        for epoch in (None, first):
            async with dataset.shuffled(seed=1, mode=mode, epoch=epoch, num_repeat=2) as stream:
                stream.load_state_dict(state)
                assert await items_of(stream, 1000) == rest


async def test_state_of_finished_epoch_starts_next_epoch() -> None:
    """A training loop that counts epochs saves a state after the last batch, and continues with the next epoch."""
    async with asyncrec.open_dataset("data/p-*.tfrecord", storage=await stored()) as dataset:
        async with dataset.shuffled(seed=1, epoch=2) as stream:
            assert len(await items_of(stream, 1000)) == 44
            state = stream.state_dict()
        async with dataset.shuffled(seed=1, epoch=3) as stream:
            whole = await items_of(stream, 1000)
        async with dataset.shuffled(seed=1, epoch=3) as stream:
            stream.load_state_dict(state)
            assert await items_of(stream, 1000) == whole


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every value in a state, but only of the first two items of a list, since the rest are alike."""
    if path:
        yield path
    inner = value if isinstance(value, dict) else range(min(len(value), 2)) if isinstance(value, list) else ()
    for key in inner:
        yield from places(value[key], (*path, key))


def damaged(state: Any, path: tuple[Any, ...]) -> Iterator[Any]:
    """Yield copies of the state in which the value at a path is missing or replaced."""
    for odd in (..., *ODD):
        whole = copy.deepcopy(state)
        part = whole
        for key in path[:-1]:
            part = part[key]
        if odd is ...:
            del part[path[-1]]
        else:
            part[path[-1]] = odd
        yield whole


@pytest.mark.slow(but=["interleave"])
@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("shuffled-buffer", "shuffled-global")])
async def test_damaged_state_is_rejected_with_library_error(name: str) -> None:
    storage = await stored()
    state, _ = await state_and_rest(storage, name)
    refused = 0
    for path in places(state):
        for broken in damaged(state, path):
            refused += await outcome(storage, name, broken, 3) == REFUSED
    assert refused > 200
    for odd in [*ODD, b"", ()]:
        with pytest.raises(asyncrec.AsyncRecError):
            await resumed(storage, name, odd, 3)
