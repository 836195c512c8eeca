"""The arguments of streams and samplers are checked; error messages name the parameter and the given value."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import asyncrec
from asyncrec import blocking
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


async def stored() -> MemoryStorage:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("data/pages", max_shard_records=20, storage=storage) as writer:
        for n in range(60):
            await writer.write(asyncrec.encode_example({"label": n % 5, "n": n}))
    return storage


BALANCED: dict[str, Any] = {"class_feature": "label"}
WRONG = [
    ("shuffled", {"seed": "a"}, TypeError, "seed='a': must be an integer, or None for a random one"),
    ("shuffled", {"seed": 1.5}, TypeError, "seed=1.5: must be an integer, or None for a random one"),
    ("shuffled", {"seed": None, "worker": (0, 2)}, ValueError, "seed=None: each worker would choose"),
    ("shuffled", {"worker": 3}, TypeError, "worker=3: pass (i, n) for worker number i of n, counted from 0"),
    ("shuffled", {"worker": (2, 2)}, ValueError, "worker=(2, 2): pass (i, n) for worker number i of n"),
    ("shuffled", {"buffer_size": 0}, ValueError, "buffer_size=0: must be at least 1"),
    ("shuffled", {"block_bytes": 0}, ValueError, "block_bytes=0: must be at least 1, or None"),
    ("shuffled", {"epoch": -1}, ValueError, "epoch=-1: must be at least 0"),
    (
        "shuffled",
        {"num_repeat": "2"},
        TypeError,
        "num_repeat='2': must be an integer, at least 0, or -1 to repeat forever",
    ),
    ("balanced", {"classes_per_batch": "4"}, TypeError, "classes_per_batch='4': must be an integer, at least 1"),
    ("balanced", {"per_class": 0}, ValueError, "per_class=0: must be at least 1"),
    ("balanced", {"seed": "a"}, TypeError, "seed='a': must be an integer, or None for a random one"),
    ("balanced", {"seed": None, "worker": (1, 2)}, ValueError, "seed=None: each worker would choose"),
    (
        "balanced",
        {"class_feature": None, "class_fn": "label"},
        TypeError,
        "class_fn='label': must be a function that returns the class of a record",
    ),
    ("interleaving", {"batch_size": "32"}, TypeError, "batch_size='32': must be an integer, at least 1"),
    ("interleaving", {"batch_size": 0}, ValueError, "batch_size=0: must be at least 1"),
    ("interleaving", {"prefetch_size": -1}, ValueError, "prefetch_size=-1: must be at least 0"),
    ("interleaving", {"num_repeat": 0}, ValueError, "num_repeat=0: must be at least 1, or -1 to repeat forever"),
    ("interleaving", {"shuffle_buffer": -1}, ValueError, "shuffle_buffer=-1: must be at least 0"),
    ("interleaving", {"seed": "a"}, TypeError, "seed='a': must be an integer, or None for a random one"),
    ("interleaving", {"worker": 3}, TypeError, "worker=3: pass (i, n) for worker number i of n"),
    (
        "interleaving",
        {"class_fn": "label"},
        TypeError,
        "class_fn='label': must be a function that returns the class of an example",
    ),
]


def made(dataset: Any, kind: str, **options: Any) -> Any:
    if kind == "shuffled":
        return dataset.shuffled(**options)
    if kind == "balanced":
        return asyncrec.ClassBalancedSampler(dataset, **{"classes_per_batch": 3, "per_class": 2, **BALANCED, **options})
    return asyncrec.InterleaveSampler("", bytes, storage=dataset.folder, **options)


@pytest.mark.parametrize(("kind", "options", "error", "said"), WRONG)
async def test_wrong_parameter_is_rejected_with_name_and_value(
    kind: str, options: dict[str, Any], error: type[Exception], said: str
) -> None:
    async with asyncrec.open_dataset("data/pages", storage=await stored()) as dataset:
        with pytest.raises(error) as raised:
            made(dataset, kind, **options)
    assert said in str(raised.value)


async def test_batch_size_must_be_positive_integer() -> None:
    storage = await stored()
    async with asyncrec.open_dataset("data/pages", storage=storage) as dataset:
        sizes: list[tuple[Any, type[Exception]]] = [("3", TypeError), (0, ValueError)]
        for size, error in sizes:
            async with dataset.shuffled() as stream:
                with pytest.raises(error, match=f"batch_size={size!r}: .*at least 1"):
                    stream.batches(size)
            async with asyncrec.interleave(["data/x"], storage=storage) as interleaved:
                with pytest.raises(error, match=f"batch_size={size!r}: .*at least 1"):
                    interleaved.batches(size)


@pytest.mark.parametrize("kind", ["shuffled", "balanced", "interleaving"])
async def test_missing_seed_is_drawn_and_stored_in_state(kind: str) -> None:
    async with asyncrec.open_dataset("data/pages", storage=await stored()) as dataset:
        async with made(dataset, kind, seed=None) as stream:
            seed = stream.state_dict()["seed"]
            await anext(stream)
            state = json.loads(json.dumps(stream.state_dict()))
            expected = await anext(stream)
        async with made(dataset, kind, seed=None) as stream:
            assert stream.state_dict()["seed"] != seed
            stream.load_state_dict(state)
            assert stream.state_dict()["seed"] == seed
            assert await anext(stream) == expected
        async with made(dataset, kind, seed=np.int64(seed)) as stream:
            stream.load_state_dict(state)
            assert json.loads(json.dumps(stream.state_dict())) == state
            assert await anext(stream) == expected


@pytest.mark.parametrize("kind", ["shuffled", "balanced", "interleaving"])
async def test_invalid_state_is_rejected_with_explanation(kind: str) -> None:
    async with asyncrec.open_dataset("data/pages", storage=await stored()) as dataset:
        for seed in (1, None):
            async with made(dataset, kind, seed=seed) as stream:
                for wrong in (None, "x"):
                    with pytest.raises(
                        TypeError, match=f"a state must be the dict that state_dict returned, not {wrong!r}"
                    ):
                        stream.load_state_dict(wrong)
                with pytest.raises(
                    ValueError,
                    match="load the state into the kind of object that made it, with the release of asyncrec",
                ):
                    stream.load_state_dict({})
                state = stream.state_dict()
                if kind == "interleaving":
                    continue
                for position in (None, "x", -1):
                    with pytest.raises(ValueError, match=f"the state has position={position!r}"):
                        stream.load_state_dict(state | {"position": position})


async def test_dataset_of_wrong_kind_is_rejected(tmp_path: Any) -> None:
    await asyncrec.write_records(tmp_path / "pages-00000-of-00001", [b"x"])
    async with asyncrec.open_dataset(tmp_path / "pages") as dataset:
        with pytest.raises(
            TypeError, match=r"ClassBalancedSampler takes a Dataset from asyncrec\.blocking\.open_dataset, not"
        ):
            blocking.ClassBalancedSampler(dataset, 3, 2, class_feature="label")  # type: ignore[arg-type]  # deliberately wrong
    with pytest.raises(TypeError, match=r"not str; pass its path to open_dataset"):
        asyncrec.ClassBalancedSampler("data/pages", 3, 2, class_feature="label")  # type: ignore[arg-type]  # deliberately wrong


def test_async_sampler_rejects_blocking_dataset(tmp_path: Any) -> None:
    blocking.write_records(tmp_path / "pages-00000-of-00001", [b"x"])
    wrong: Any = "3"
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        with pytest.raises(TypeError, match=r"not asyncrec\.blocking\.Dataset; .* asyncrec\.blocking\.Cl"):
            asyncrec.ClassBalancedSampler(dataset, 3, 2, class_feature="label")  # type: ignore[arg-type]  # deliberately wrong
        with pytest.raises(TypeError, match="worker='3': pass"):
            dataset.shuffled(worker=wrong).__enter__()
        with dataset.shuffled() as stream, pytest.raises(TypeError, match="batch_size='3': must be an integer"):
            next(stream.batches(wrong))
        with dataset.shuffled() as stream, pytest.raises(TypeError, match="a state must be the dict"):
            stream.load_state_dict(wrong)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("nowhere", r"^nowhere: no shard matches .*, because the folder does not exist or is empty$"),
        ("data/pages-*.tfrecord", r"this is a pattern, .* pass 'data' and shard_suffix='pages-\*\.tfrecord'$"),
        ("pages-*", r"this is a pattern, .* pass '\.' and shard_suffix='pages-\*'$"),
    ],
)
async def test_missing_folder_and_pattern_as_folder_are_explained(path: str, said: str) -> None:
    with pytest.raises(ObjectNotFoundError, match=said):
        async with asyncrec.InterleaveSampler(path, bytes, storage=await stored()):
            pass


async def test_first_shard_differing_from_state_is_named() -> None:
    storage = MemoryStorage()
    for n in (1, 2, 4):
        await asyncrec.write_records(f"data/{n}.tfrecord", [b"%d" % n] * 9, storage=storage)

    def sampler() -> Any:
        return asyncrec.InterleaveSampler("data", bytes, storage=storage, seed=1)

    async with sampler() as stream:
        state = stream.state_dict()

    async def refused() -> str:
        async with sampler() as stream:
            with pytest.raises(
                ValueError, match="the state was taken with different shards: their names or their order have changed;"
            ) as raised:
                stream.load_state_dict(state)
        return str(raised.value).partition("; ")[2]

    await asyncrec.write_records("data/5.tfrecord", [b"5"], storage=storage)
    assert await refused() == "there were 3 shards, and now there are 4; the first new shard is data/5.tfrecord"
    await asyncrec.write_records("data/3.tfrecord", [b"3"], storage=storage)
    assert (
        await refused() == "there were 3 shards, and now there are 5; the first shard that differs is data/3.tfrecord"
    )
    for n in (3, 4, 5):
        await storage.delete(f"data/{n}.tfrecord")
    assert await refused() == "there were 3 shards, and now there are 2"
