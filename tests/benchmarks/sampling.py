"""Sampling for training: batches over many shards, and interleaved reading, compared with TensorFlow's ``tf.data``.

The sampler is compared with the pipeline of TensorFlow Similarity's ``TFRecordDatasetSampler``: shards in random order
are all interleaved, ``example_per_class`` records from each in turn, mapped, repeated, batched and prefetched. Both
sides deserialize with a function that does nothing, and return batches of 32, with two records from each of 100 shards
in turn. tf.data's batches are tensors, ours are lists.

The following have nothing to compare with: a store that responds after 20 ms; the memory used by 1,000 shards, which
fails if it is above a limit; opening a data set of 10,000 shards.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
from harness import MIB, Case, Job, Target, _status
from random_access import make_manifest

Main = Callable[[Path], Awaitable[None]]

_BATCH = 32
_PER_CLASS = 2
_SHARDS = {"sample": 100, "interleave": 16, "far": 16, "memory:": 1000}
# Sampled records are Examples of some hundred bytes: numbers, a label, a short text.
_SAMPLED = 300


def shards_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-shards")


def prepare(case: Case, path: Path) -> None:
    """Write ``case.count`` records to the case's shards, which have slightly different numbers of records."""
    import asyncrec

    source = random.Random(3)
    shards = _SHARDS[case.name.split()[0]]
    folder = shards_of(path)
    shutil.rmtree(folder, ignore_errors=True)  # from the previous case
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
    """Return the pipeline of TensorFlow Similarity's sampler, with its defaults."""
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


def far_sampler(case: Case, *, async_cycle: bool) -> Job:
    import asyncrec
    from asyncrec.storage._local.storage import LocalStorage
    from asyncrec.testing._faults import SlowStorage

    async def main(path: Path) -> None:
        far = SlowStorage(LocalStorage(shards_of(path).parent), latency=0.020)
        count = 0
        async with asyncrec.InterleaveSampler(
            shards_of(path).name, bytes, _PER_CLASS, _BATCH, async_cycle=async_cycle, num_repeat=1, storage=far
        ) as sampler:
            async for batch in sampler:
                count += len(batch)
        expect(count, case)

    return job_of(main)


def bounded(case: Case, *, parallelism: int = 0, shuffle_buffer: int = 0) -> Job:
    """Interleave all shards. Fails if that takes more memory than allowed for the record batches and the buffer."""
    import asyncrec

    async def main(path: Path) -> None:
        before = _status("VmRSS")
        paths = sorted(shards_of(path).iterdir())
        count = 0
        async with asyncrec.interleave(
            paths, cycle_length=len(paths), parallelism=parallelism, shuffle_buffer=shuffle_buffer
        ) as stream:
            async for records in stream.batches(1024):
                count += len(records)
        expect(count, case)
        # A shard needs at least 5/4 of a batch of 64 KiB, or with a pool four batches of 16 KiB. A record in the buffer
        # also has a position. Twice that is allowed, because the records leave gaps in the blocks from which they were
        # cut.
        each = 4 * (16 << 10) if parallelism else 5 * (64 << 10) // 4
        allowed = (len(paths) + parallelism) * each + shuffle_buffer * (case.size + 512)
        if (grown := _status("VmHWM") - before) > 2 * allowed + 16 * MIB:
            raise ValueError(f"{grown / MIB:.0f} MiB; at most twice {allowed / MIB:.0f} MiB are allowed")

    return job_of(main)


def prepare_manifest(case: Case, path: Path) -> None:
    shutil.rmtree(shards_of(path), ignore_errors=True)
    anyio.run(make_manifest, shards_of(path), case.count)


def our_opening(case: Case) -> Job:
    import asyncrec

    async def main(path: Path) -> None:
        async with asyncrec.open_dataset(shards_of(path) / "pages") as dataset:
            expect(len(dataset.manifest.shards), case)

    return job_of(main)


def two_seconds(case: Case) -> Job:
    return lambda path: time.sleep(2)


CASES = [
    Case(
        name=f"sample 100 shards, {_SAMPLED} B",
        count=640_000,
        size=_SAMPLED,
        contenders={
            "asyncrec": partial(our_sampler, async_cycle=False),
            "asyncrec, async_cycle": partial(our_sampler, async_cycle=True),
            "TensorFlow Similarity": partial(similarity_sampler, async_cycle=False),
            "TensorFlow Similarity, async_cycle": partial(similarity_sampler, async_cycle=True),
        },
        prepare=prepare,
        note="20,000 batches of 32",
    ),
    Case(
        name="interleave 16 shards, 4 KiB",
        count=200_000,
        size=4096,
        contenders={
            "asyncrec": partial(our_interleave, parallelism=0),
            "asyncrec, parallelism=2": partial(our_interleave, parallelism=2),
            "tf.data": partial(tf_interleave, parallelism=0),
            "tf.data, parallel calls=2": partial(tf_interleave, parallelism=2),
        },
        prepare=prepare,
        note="block 16, batches of 1,024",
    ),
    Case(
        name="far sampling",
        count=6000,
        size=4096,
        contenders={
            "asyncrec": partial(far_sampler, async_cycle=False),
            "asyncrec, async_cycle": partial(far_sampler, async_cycle=True),
        },
        prepare=prepare,
        note="16 shards of 1.5 MiB in a store that answers after 20 ms",
    ),
    Case(
        name="memory: 1,000 shards, 1 KiB",
        count=300_000,
        size=1024,
        contenders={
            "asyncrec interleave": bounded,
            "asyncrec interleave, parallelism=16": partial(bounded, parallelism=16),
            "asyncrec interleave, shuffled": partial(bounded, shuffle_buffer=20_000),
        },
        prepare=prepare,
        rounds=1,
        note="all in one cycle",
    ),
    Case(
        name="open a data set",
        count=10_000,
        size=1,
        contenders={"asyncrec open_dataset": our_opening, "limit: 2 s": two_seconds},
        prepare=prepare_manifest,
        rounds=3,
        note="by its manifest of 10,000 shards; times are for a shard",
    ),
]

_SAMPLE = f"sample 100 shards, {_SAMPLED} B"

TARGETS = [
    Target(_SAMPLE, "asyncrec", "TensorFlow Similarity", 3.0),
    Target(_SAMPLE, "asyncrec, async_cycle", "TensorFlow Similarity, async_cycle", 3.0),
    Target(_SAMPLE, "asyncrec, async_cycle", "asyncrec", 1 / 1.3),
    Target("interleave 16 shards, 4 KiB", "asyncrec", "tf.data", 1.0),
    Target("far sampling", "asyncrec, async_cycle", "asyncrec", 8.0),
    Target("open a data set", "asyncrec open_dataset", "limit: 2 s", 1.0),
]
