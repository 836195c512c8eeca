"""Examples of {int64, bytes, float[256]}: built and serialized, and read from a file into NumPy batches.

The bytes are a page's URL of 25 to 200 characters, so that no two records have the same layout. Building ends with the
serialized bytes, which are not written. Reading starts with an opened file, and ends with one array or list per feature
for every 1,024 records, with all three features, and with checksums verified unless the name says otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import anyio
import numpy as np
from harness import Case, Job, Target
from records import expect

BATCH = 1024

# Few distinct rows, which are reused, so that a round's memory is that of its records.
_DISTINCT = 2048

Row = dict[str, Any]
_Build = Callable[[Row], bytes]


def rows(case: Case, *, lists: bool = False) -> list[Row]:
    """Return ``case.count`` rows, whose vectors are arrays or lists of Python floats."""
    source = random.Random(0)
    vectors = np.random.default_rng(0).random((_DISTINCT, 256), np.float32)
    pool = [
        {
            "label": source.randrange(1000),
            "url": b"https://example.org/" + b"x" * source.randrange(5, 180),
            "emb": vector.tolist() if lists else vector,
        }
        for vector in vectors
    ]
    return [pool[i % _DISTINCT] for i in range(case.count)]


def batched(batches: Iterable[list[bytes]]) -> Iterator[list[bytes]]:
    """Yield the same records in lists of `BATCH`, except for the last one."""
    pending: list[bytes] = []
    for batch in batches:
        pending += batch
        while len(pending) >= BATCH:
            yield pending[:BATCH]
            del pending[:BATCH]
    if pending:
        yield pending


# Building -----------------------------------------------------------------------------------------------------------


def building(make: Callable[[], _Build], *, lists: bool = False) -> Callable[[Case], Job]:
    """Return a contender that builds every record with a function."""

    def maker(case: Case) -> Job:
        build, items = make(), rows(case, lists=lists)

        def job(path: Path) -> None:
            for row in items:
                build(row)

        return job

    return maker


def our_example() -> _Build:
    import asyncrec

    return asyncrec.encode_example


def tensorflow_example() -> _Build:
    import tensorflow as tf

    Example, Features, Feature = tf.train.Example, tf.train.Features, tf.train.Feature  # noqa: N806  # classes
    BytesList, FloatList, Int64List = tf.train.BytesList, tf.train.FloatList, tf.train.Int64List  # noqa: N806

    def build(row: Row) -> bytes:
        features = {
            "label": Feature(int64_list=Int64List(value=[row["label"]])),
            "url": Feature(bytes_list=BytesList(value=[row["url"]])),
            "emb": Feature(float_list=FloatList(value=row["emb"])),
        }
        data: bytes = Example(features=Features(feature=features)).SerializeToString()
        return data

    return build


def tfrecord_example() -> _Build:
    from tfrecord.writer import TFRecordWriter

    def build(row: Row) -> bytes:
        data: bytes = TFRecordWriter.serialize_tf_example(
            {"label": (row["label"], "int"), "url": (row["url"], "byte"), "emb": (row["emb"], "float")}
        )
        return data

    return build


# Reading ------------------------------------------------------------------------------------------------------------


def prepare(case: Case, path: Path) -> None:
    """Write the file that all readers share."""
    import asyncrec
    from asyncrec._framing.frames import encode_frames

    records = [asyncrec.encode_example(row) for row in rows(case)]
    with open(path, "wb") as file:
        for batch in batched([records]):
            file.writelines(encode_frames(batch))


def our_batches(case: Case) -> Job:
    import asyncrec

    schema = asyncrec.Schema(
        {
            "label": asyncrec.FixedLen((), "int64"),
            "url": asyncrec.FixedLen((), "bytes"),
            "emb": asyncrec.FixedLen((256,), "float32"),
        }
    )

    async def main(path: Path) -> None:
        count = 0
        pending: list[bytes] = []

        async def decode(records: list[bytes]) -> int:
            # In a thread, as the how-to recommends: a thousand records take some milliseconds.
            columns = await anyio.to_thread.run_sync(schema.decode_batch, records)
            assert columns["emb"].shape == (len(records), 256)
            return len(columns["url"])

        async with asyncrec.open_reader(str(path)) as reader:
            async for records in reader.batches():
                pending += records
                while len(pending) >= BATCH:
                    count += await decode(pending[:BATCH])
                    del pending[:BATCH]
        if pending:
            count += await decode(pending)
        expect(count, case)

    return lambda path: anyio.run(main, path)


def tensorflow_batches(*, tuned: bool) -> Callable[[Case], Job]:
    def maker(case: Case) -> Job:
        import tensorflow as tf

        spec = {
            "label": tf.io.FixedLenFeature((), tf.int64),
            "url": tf.io.FixedLenFeature((), tf.string),
            "emb": tf.io.FixedLenFeature((256,), tf.float32),
        }

        def job(path: Path) -> None:
            data = tf.data.TFRecordDataset(str(path)).batch(BATCH)
            if tuned:
                data = data.map(lambda records: tf.io.parse_example(records, spec), tf.data.AUTOTUNE)
                data = data.prefetch(tf.data.AUTOTUNE)
            else:
                data = data.map(lambda records: tf.io.parse_example(records, spec))
            count = 0
            for batch in data:
                columns = {name: column.numpy() for name, column in batch.items()}
                count += len(columns["url"])
            expect(count, case)

        return job

    return maker


def tfrecord_loader(case: Case) -> Job:
    from tfrecord.reader import tfrecord_loader

    kinds = {"label": "int", "url": "byte", "emb": "float"}

    def job(path: Path) -> None:
        # Not stacked: it yields one dict per record, and only its own work is measured.
        expect(sum(1 for _ in tfrecord_loader(str(path), None, kinds)), case)

    return job


# Cases --------------------------------------------------------------------------------------------------------------

_COUNT, _SIZE = 50_000, 1180  # the mean size of a record in bytes

_BUILT, _READ = "examples built", "examples into batches"
_OURS = "asyncrec encode_example, arrays"
_LISTS, _ARRAYS = "tf.train.Example, lists", "tf.train.Example, arrays"
_OUR_BATCHES = "asyncrec open_reader, decode_batch"
_PARSED, _TUNED = "TensorFlow batch.map(parse_example)", "TensorFlow, autotuned, prefetched"
_LOADER = "tfrecord loader (no CRC, no batches)"

CASES = [
    Case(
        name=_BUILT,
        count=_COUNT,
        size=_SIZE,
        contenders={
            _OURS: building(our_example),
            "asyncrec encode_example, lists": building(our_example, lists=True),
            _LISTS: building(tensorflow_example, lists=True),
            _ARRAYS: building(tensorflow_example),
            "tfrecord serialize_tf_example, lists": building(tfrecord_example, lists=True),
        },
        note="and serialised: an int64, bytes, 256 floats in an array or a list",
    ),
    Case(
        name=_READ,
        count=_COUNT,
        size=_SIZE,
        contenders={
            _OUR_BATCHES: our_batches,
            _PARSED: tensorflow_batches(tuned=False),
            _TUNED: tensorflow_batches(tuned=True),
            _LOADER: tfrecord_loader,
        },
        prepare=prepare,
        note=f"NumPy, {BATCH} a batch, all three features",
    ),
]

# An embedding is an array at its source. A list is the faster of the two ways to give it to tf.train.Example.
TARGETS = [
    Target(_BUILT, _OURS, _LISTS, 6.0),
    Target(_BUILT, _OURS, _ARRAYS, 15.0),
    Target(_READ, _OUR_BATCHES, _PARSED, 0.8),
    Target(_READ, _OUR_BATCHES, _LOADER, 4.0),
]
