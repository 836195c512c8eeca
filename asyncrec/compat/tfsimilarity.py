"""TensorFlow Similarity's sampler: ``from asyncrec.compat.tfsimilarity import TFRecordDatasetSampler``.

Shards that TensorFlow can read go through the same operations of tf.data as in the original, so that the result behaves
like the original's ``tf.data.Dataset`` with several workers, checkpoints and seeds. `asyncrec.InterleaveSampler` does
the rest: stores that TensorFlow cannot read, and the arguments that asyncrec adds.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import count
from typing import Any

from asyncrec import blocking
from asyncrec._sampling.interleave_sampler.sampler import InterleaveSampler
from asyncrec.compat._tensors import found_tensorflow, is_read_by, matching

__all__ = ["TFRecordDatasetSampler"]

_AUTOTUNE = -1  # tf.data.AUTOTUNE, which needs no TensorFlow to be written here
_PREFETCH = 10


def TFRecordDatasetSampler(  # noqa: N802  # the name it has always had
    shard_path: str | os.PathLike[str],
    deserialization_fn: Callable[[Any], Any],
    example_per_class: int = 2,
    batch_size: int = 32,
    shards_per_cycle: int | None = None,
    compression: str | None = None,
    parallelism: int = _AUTOTUNE,
    async_cycle: bool = False,
    prefetch_size: int | None = None,
    shard_suffix: str = "*.tfrec",
    num_repeat: int | None = -1,
    *,
    class_fn: Callable[[bytes], Hashable] | None = None,
    seed: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """A ``tf.data.Dataset`` of batches, ``example_per_class`` records from a shard before the next has its turn.

    tf.data reads the shards if it can, and `asyncrec.InterleaveSampler` if it cannot, or if one of the last
    three arguments is given; then each iteration opens the shards for itself, and closes them when it ends or is
    dropped.

    Args:
        shard_path: the folder of the shards, or a URL of one.
        deserialization_fn: run by ``Dataset.map`` on each record, a scalar string tensor.
        example_per_class, batch_size, shards_per_cycle: see `asyncrec.InterleaveSampler`.
        compression: `None` (uncompressed), ``"GZIP"`` or ``"ZLIB"``.
        parallelism: calls of ``deserialization_fn`` at once; -1 leaves it to TensorFlow.
        async_cycle: fetch the cycle's shards at the same time.
        prefetch_size: batches made ahead; `None` is 10.
        shard_suffix: a pattern for the names of the shards; of shards that TensorFlow reads, its own kind of glob,
            which reaches into folders below (``*/*.tfrec``).
        num_repeat: passes over the shards; -1 or `None`: for ever.
        class_fn: record -> its class. Then each batch holds exactly ``batch_size // example_per_class`` distinct
            classes, wherever their records lie, and there are no tails of a single class.
        seed: the seed for the order of the shards, the same in each iteration. `None`: another for each, drawn from
            ``tf.random.set_seed`` if that was called.
        storage_options: options for the backend.

    Raises:
        ModuleNotFoundError: TensorFlow is not installed.
        ValueError, tf.errors.InvalidArgumentError: a number is out of range, or TensorFlow finds no shard.
        tf.errors.DataLossError: while iterating, a shard that TensorFlow reads is damaged.
        tf.errors.OpError: while iterating, whatever `asyncrec.InterleaveSampler` raises; its message says what.
    """
    tf = found_tensorflow()
    if tf is None:
        raise ModuleNotFoundError(
            "TFRecordDatasetSampler returns a tf.data.Dataset, but TensorFlow is not installed: pip install "
            "tensorflow, or use asyncrec.InterleaveSampler, which does not need it",
            name="tensorflow",
        )
    prefetch = prefetch_size or _PREFETCH
    if class_fn is None and seed is None and storage_options is None and is_read_by(tf, shard_path):
        pattern = os.path.join(shard_path, shard_suffix)
        shards = matching(tf, pattern)
        if not shards:
            raise tf.errors.InvalidArgumentError(None, None, f"no shard matches {pattern}")
        cycle_length = shards_per_cycle or len(shards)

        def open_shard(shard: Any) -> Any:
            return tf.data.TFRecordDataset(shard, compression_type=compression)

        records = (
            tf.data.Dataset.from_tensor_slices(shards)
            .shuffle(len(shards))
            .interleave(
                open_shard,
                cycle_length=cycle_length,
                block_length=example_per_class,
                num_parallel_calls=cycle_length if async_cycle else 1,
                deterministic=True,  # as many of a class, and no others between them
            )
        )
        examples = records.map(deserialization_fn, num_parallel_calls=parallelism).repeat(num_repeat)
        return examples.batch(batch_size).prefetch(prefetch)
    options: dict[str, Any] = {
        "example_per_class": example_per_class,
        # Without classes the records of a batch are those that come, so that one of ours need not be one of theirs.
        "batch_size": batch_size if class_fn is not None else max(batch_size, example_per_class),
        "shards_per_cycle": shards_per_cycle or None,
        "compression": compression or "",
        "async_cycle": async_cycle,
        "prefetch_size": prefetch if prefetch > 0 else _PREFETCH,
        "shard_suffix": shard_suffix,
        "num_repeat": -1 if num_repeat is None else num_repeat or 1,
        "class_fn": class_fn,
        "storage_options": storage_options,
    }
    InterleaveSampler(shard_path, _record, **options)  # wrong options raise here, not with the first batch
    seeds = _seeds(tf, seed)

    def batches() -> Iterator[list[bytes]]:
        with blocking.InterleaveSampler(shard_path, _record, seed=next(seeds), **options) as sampler:
            yield from sampler

    with tf.device("/cpu:0"):
        dataset = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((None,), tf.string))
        examples = dataset.unbatch().map(deserialization_fn, num_parallel_calls=parallelism, deterministic=True)
        # Batches as the sampler made them: all of them are full but the last.
        batched = examples.take(0 if num_repeat == 0 else -1).batch(batch_size)
        if class_fn is None and num_repeat in (None, -1):  # with classes it ends if too few are left
            batched = batched.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return batched.prefetch(prefetch)


def _record(record: bytes) -> bytes:
    return record


def _seeds(tf: Any, seed: int | None) -> Iterator[int | None]:
    """Return one for each iteration: ``seed`` for all, or what follows TensorFlow's own seed, or `None`.

    Workers of one cluster take every n-th batch each, of an order that they must have in common: without any seed they
    have the same ones.
    """
    if seed is not None:
        return (seed for _ in count())
    graph_seed, op_seed = tf.compat.v1.random.get_seed(None)
    if op_seed is not None:
        return count((graph_seed << 32) + op_seed)
    if len(json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {}).get("worker", ())) > 1:
        return count()
    return (None for _ in count())
