"""TensorFlow Similarity's sampler: ``from asyncrec.compat.tfsimilarity import TFRecordDatasetSampler``.

Shards that TensorFlow can read are read by the same tf.data operations as in the original, so that the result behaves
like the original's ``tf.data.Dataset`` with several workers, checkpoints and seeds. For stores that TensorFlow cannot
read, or if an argument that asyncrec adds is passed, `asyncrec.InterleaveSampler` reads the shards.
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

_AUTOTUNE = -1  # tf.data.AUTOTUNE, without importing TensorFlow
_PREFETCH = 10


def TFRecordDatasetSampler(  # noqa: N802  # TensorFlow Similarity's name
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
    """Return a ``tf.data.Dataset`` of batches, with ``example_per_class`` records from each shard in turn.

    tf.data reads the shards if it can. If it cannot, or if one of the last three arguments is passed,
    `asyncrec.InterleaveSampler` reads them. In that case, each iteration reopens the shards, and closes them when it
    ends or is abandoned.

    Args:
        shard_path: the folder of the shards, a local path or a URL.
        deserialization_fn: called by ``Dataset.map`` with each record, as a scalar string tensor.
        example_per_class, batch_size, shards_per_cycle: see `asyncrec.InterleaveSampler`.
        compression: `None` (uncompressed), ``"GZIP"`` or ``"ZLIB"``.
        parallelism: the number of concurrent calls to ``deserialization_fn``; with -1, TensorFlow chooses the number.
        async_cycle: whether to read the shards of a cycle concurrently.
        prefetch_size: the number of batches to prefetch; 10 by default.
        shard_suffix: a pattern for the names of the shards. If TensorFlow reads the shards, it also expands the
            pattern, which can then match in subfolders (``*/*.tfrec``).
        num_repeat: the number of passes over the shards; -1 or `None` means forever.
        class_fn: returns the class of a record. If passed, each batch has exactly ``batch_size // example_per_class``
            distinct classes, regardless of which shards contain their records, and no pass ends with batches of a
            single class.
        seed: the seed for the order of the shards, which is then the same in each iteration. With `None`, each
            iteration has a different seed, derived from ``tf.random.set_seed`` if that was called.
        storage_options: options for the backend.

    Raises:
        ModuleNotFoundError: TensorFlow is not installed.
        ValueError, tf.errors.InvalidArgumentError: a number is out of range, or TensorFlow finds no shards.
        tf.errors.DataLossError: while iterating, a shard that TensorFlow reads is damaged.
        tf.errors.OpError: while iterating, `asyncrec.InterleaveSampler` raised an error, which the message describes.
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
                deterministic=True,  # keep a class's records together
            )
        )
        examples = records.map(deserialization_fn, num_parallel_calls=parallelism).repeat(num_repeat)
        return examples.batch(batch_size).prefetch(prefetch)
    options: dict[str, Any] = {
        "example_per_class": example_per_class,
        # Without classes, the sampler's batches are unbatched below, so their size may differ from the result's.
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
    InterleaveSampler(shard_path, _record, **options)  # raise its errors now rather than at the first batch
    seeds = _seeds(tf, seed)

    def batches() -> Iterator[list[bytes]]:
        with blocking.InterleaveSampler(shard_path, _record, seed=next(seeds), **options) as sampler:
            yield from sampler

    with tf.device("/cpu:0"):
        dataset = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((None,), tf.string))
        examples = dataset.unbatch().map(deserialization_fn, num_parallel_calls=parallelism, deterministic=True)
        # This restores the sampler's batches. All but the last are full.
        batched = examples.take(0 if num_repeat == 0 else -1).batch(batch_size)
        if class_fn is None and num_repeat in (None, -1):  # with class_fn, a pass ends when too few classes remain
            batched = batched.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return batched.prefetch(prefetch)


def _record(record: bytes) -> bytes:
    return record


def _seeds(tf: Any, seed: int | None) -> Iterator[int | None]:
    """Return an iterator with a seed for each iteration: always ``seed``, seeds derived from TensorFlow's, or `None`.

    In a cluster, each of n workers reads every n-th batch, so all workers need the same order. If the user has not set
    a seed, every worker therefore uses the seeds 0, 1, 2 and so on.
    """
    if seed is not None:
        return (seed for _ in count())
    graph_seed, op_seed = tf.compat.v1.random.get_seed(None)
    if op_seed is not None:
        return count((graph_seed << 32) + op_seed)
    if len(json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {}).get("worker", ())) > 1:
        return count()
    return (None for _ in count())
