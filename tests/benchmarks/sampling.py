"""Sampling for training: batches over many shards, and interleaved reading, against TensorFlow's ``tf.data``.

The sampler's opponent is the pipeline that TensorFlow Similarity's ``TFRecordDatasetSampler`` builds: shards in random
order, interleaved over all of them, ``example_per_class`` records in turn, mapped, repeated, batched, prefetched. Both
sides deserialise by a function that does nothing, and give batches of 32, two records of each of 100 shards in turn.
tf.data's own batches are tensors, ours lists. ``python tests/benchmarks/sampling_limits.py`` has what has no opponent.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from harness import Case, Job, Target

Main = Callable[[Path], Awaitable[None]]

_BATCH = 32
_PER_CLASS = 2
_SHARDS = {"sample": 100, "interleave": 16}
# Records that are sampled are Examples of some hundred bytes: numbers, a label, a short text.
_SAMPLED = 300


def shards_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-shards")


def prepare(case: Case, path: Path) -> None:
    """``case.count`` records over the shards of the case, a few more in one than in another."""
    import asyncrec

    source = random.Random(3)
    shards = _SHARDS[case.name.split()[0]]
    folder = shards_of(path)
    shutil.rmtree(folder, ignore_errors=True)  # of the case before
    folder.mkdir()
    pool = [source.randbytes(case.size) for _ in range(1000)]

    async def write() -> None:
        left = case.count
        for number in range(shards):
            mean = left / (shards - number)
            count = left if number == shards - 1 else round(mean * source.uniform(0.9, 1.1))
            left -= count
            await asyncrec.write_records(folder / f"class-{number:05}.tfrecord", source.choices(pool, k=count))

    anyio.run(write)


def job_of(main: Main) -> Job:
    return lambda path: anyio.run(main, path)


def our_sampler(case: Case, *, async_cycle: bool) -> Job:
    import asyncrec

    def unchanged(record: bytes) -> bytes:
        return record

    async def main(path: Path) -> None:
        count = 0
        async with asyncrec.InterleaveSampler(
            shards_of(path), unchanged, _PER_CLASS, _BATCH, async_cycle=async_cycle, seed=1
        ) as sampler:
            async for batch in sampler:
                count += len(batch)
                if count >= case.count:
                    break

    return job_of(main)


def similarity_sampler(case: Case, *, async_cycle: bool) -> Job:
    """What TensorFlow Similarity's sampler builds, with its defaults."""
    import tensorflow as tf

    concurrency: dict[str, Any] = {"num_parallel_calls": _BATCH // _PER_CLASS} if async_cycle else {}

    def job(path: Path) -> None:
        paths = [str(each) for each in sorted(shards_of(path).glob("*.tfrec*"))]
        data = (
            tf.data.Dataset.from_tensor_slices(paths)
            .shuffle(len(paths))
            .interleave(
                lambda each: tf.data.TFRecordDataset(each),
                cycle_length=len(paths),
                block_length=_PER_CLASS,
                deterministic=False,
                **concurrency,
            )
            .map(lambda record: record, num_parallel_calls=tf.data.AUTOTUNE)
            .repeat(-1)
            .batch(_BATCH)
            .prefetch(10)
        )
        count = 0
        for batch in data:
            count += int(batch.shape[0])
            if count >= case.count:
                break

    return job


def our_interleave(case: Case, *, parallelism: int) -> Job:
    import asyncrec

    async def main(path: Path) -> None:
        count = 0
        paths = sorted(shards_of(path).iterdir())
        async with asyncrec.interleave(paths, cycle_length=16, block_length=16, parallelism=parallelism) as stream:
            async for records in stream.batches(1024):
                count += len(records)
        expect(count, case)

    return job_of(main)


def tf_interleave(case: Case, *, parallelism: int) -> Job:
    import tensorflow as tf

    def job(path: Path) -> None:
        data = (
            tf.data.Dataset.from_tensor_slices([str(each) for each in sorted(shards_of(path).iterdir())])
            .interleave(
                lambda each: tf.data.TFRecordDataset(each),
                cycle_length=16,
                block_length=16,
                num_parallel_calls=parallelism or None,
                deterministic=True,
            )
            .batch(1024)
        )
        expect(sum(int(batch.shape[0]) for batch in data), case)

    return job


def expect(count: int, case: Case) -> None:
    if count != case.count:
        raise ValueError(f"read {count} records of {case.count}")


CASES = [
    *(
        Case(
            name=f"sample 100 shards, {_SAMPLED} B{', async_cycle' * async_cycle}",
            count=640_000,
            size=_SAMPLED,
            contenders={
                "asyncrec InterleaveSampler": partial(our_sampler, async_cycle=async_cycle),
                "TensorFlow Similarity's pipeline": partial(similarity_sampler, async_cycle=async_cycle),
            },
            prepare=prepare,
            note="20,000 batches of 32",
        )
        for async_cycle in (False, True)
    ),
    Case(
        name="interleave 16 shards, 4 KiB",
        count=200_000,
        size=4096,
        contenders={
            "asyncrec interleave": partial(our_interleave, parallelism=0),
            "asyncrec interleave, parallelism=2": partial(our_interleave, parallelism=2),
            "TensorFlow tf.data": partial(tf_interleave, parallelism=0),
            "TensorFlow tf.data, parallel calls=2": partial(tf_interleave, parallelism=2),
        },
        prepare=prepare,
        note="block 16, batches of 1,024",
    ),
]

_SAMPLER, _SIMILARITY = "asyncrec InterleaveSampler", "TensorFlow Similarity's pipeline"

TARGETS = [
    Target("sample 100 shards, 300 B", _SAMPLER, _SIMILARITY, 3.0),
    Target("sample 100 shards, 300 B, async_cycle", _SAMPLER, _SIMILARITY, 3.0),
    Target("interleave 16 shards, 4 KiB", "asyncrec interleave", "TensorFlow tf.data", 1.0),
]
