"""`asyncrec.interleave` yields tf.data's order in 300 random cases, compared with TensorFlow itself."""

from __future__ import annotations

import random
from pathlib import Path

import anyio
import tensorflow as tf

import asyncrec


async def ours(paths: list[str], cycle: int, block: int, reads: int) -> list[bytes]:
    async with asyncrec.interleave(paths, cycle_length=cycle, block_length=block, parallelism=reads) as stream:
        return [record for batch in [batch async for batch in stream.batches(50)] for record in batch]


def test_interleave_order_matches_tensorflow_in_random_cases(tmp_path: Path) -> None:
    source = random.Random(8)
    shards = []
    for number in range(12):
        path = str(tmp_path / f"s{number}.tfrecord")
        with tf.io.TFRecordWriter(path) as writer:
            for i in range(source.randrange(15)):
                writer.write(b"%d:%d" % (number, i))
        shards.append(path)
    for case in range(300):
        paths = source.sample(shards, source.randrange(1, 13))
        cycle, block, reads = source.randrange(1, 14), source.randrange(1, 7), source.choice([0, 2])
        theirs = tf.data.Dataset.from_tensor_slices(paths).interleave(
            tf.data.TFRecordDataset, cycle_length=cycle, block_length=block
        )
        expected = list(theirs.as_numpy_iterator())
        assert anyio.run(ours, paths, cycle, block, reads) == expected, (case, paths, cycle, block)
