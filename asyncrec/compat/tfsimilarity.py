"""TensorFlow Similarity's sampler: ``from asyncrec.compat.tfsimilarity import TFRecordDatasetSampler``.

The shards are found, read, checked, interleaved and repeated by `asyncrec.InterleaveSampler`, wherever they are stored;
tf.data reads no file. What is left to it is to run ``deserialization_fn``, which is written for its graphs, and to hand
batches to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from os import PathLike
from typing import Any

from asyncrec import blocking
from asyncrec.compat.tensors import found_tensorflow
from asyncrec.sampling.sampler import InterleaveSampler

__all__ = ["TFRecordDatasetSampler"]

_AUTOTUNE = -1  # tf.data.AUTOTUNE, which needs no TensorFlow to be written here
_PREFETCH = 10


def TFRecordDatasetSampler(  # noqa: N802  # the name it has always had
    shard_path: str | PathLike[str],
    deserialization_fn: Callable[[Any], Any],
    example_per_class: int = 2,
    batch_size: int = 32,
    shards_per_cycle: int | None = None,
    compression: str | None = None,
    parallelism: int = _AUTOTUNE,
    async_cycle: bool = False,
    prefetch_size: int | None = None,
    shard_suffix: str = "*.tfrec",
    num_repeat: int = -1,
    *,
    class_fn: Callable[[bytes], Hashable] | None = None,
    seed: int | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Any:
    """A ``tf.data.Dataset`` of batches, ``example_per_class`` records from a shard before the next has its turn.

    Each iteration opens the shards for itself, and closes them when it ends or is dropped.

    Args:
        shard_path: the folder of the shards, or a URL of one.
        deserialization_fn: run by ``Dataset.map`` on each record, a scalar string tensor.
        example_per_class, batch_size, shards_per_cycle: see `asyncrec.InterleaveSampler`.
        compression: `None` (uncompressed), ``"GZIP"`` or ``"ZLIB"``.
        parallelism: calls of ``deserialization_fn`` at once; -1 leaves it to TensorFlow.
        async_cycle: fetch the cycle's shards at the same time, ``batch_size // example_per_class`` of them.
        prefetch_size: batches made ahead; `None` is 10.
        shard_suffix: a pattern for the names of the shards.
        num_repeat: passes over the shards; -1: for ever.
        class_fn: record -> its class. Then each batch holds exactly ``batch_size // example_per_class`` distinct
            classes, wherever their records lie, and there are no tails of a single class.
        seed: of the order of the shards. `None`: another for each iteration.
        storage_options: for the backend.

    Raises:
        ModuleNotFoundError: TensorFlow is not installed.
        ValueError: numbers that cannot be.
        tf.errors.OpError: while iterating, whatever `asyncrec.InterleaveSampler` raises; its message says what.
    """
    tf = found_tensorflow()
    if tf is None:
        raise ModuleNotFoundError(
            "TFRecordDatasetSampler gives a tf.data.Dataset, and there is no TensorFlow: pip install tensorflow, or "
            "use asyncrec.InterleaveSampler, which does without",
            name="tensorflow",
        )
    options: dict[str, Any] = {
        "example_per_class": example_per_class,
        "batch_size": batch_size,
        "shards_per_cycle": shards_per_cycle or None,
        "compression": compression or "",
        "async_cycle": async_cycle,
        "prefetch_size": prefetch_size or _PREFETCH,
        "shard_suffix": shard_suffix,
        "num_repeat": num_repeat,
        "class_fn": class_fn,
        "seed": seed,
        "storage_options": storage_options,
    }
    InterleaveSampler(shard_path, _record, **options)  # what cannot be is told here, not by the first batch

    def batches() -> Iterator[list[bytes]]:
        with blocking.InterleaveSampler(shard_path, _record, **options) as sampler:
            yield from sampler

    with tf.device("/cpu:0"):
        records = tf.data.Dataset.from_generator(batches, output_signature=tf.TensorSpec((None,), tf.string))
        examples = records.unbatch().map(deserialization_fn, num_parallel_calls=parallelism, deterministic=True)
        # Batches as the sampler made them: all of them are full but the last.
        return examples.batch(batch_size).prefetch(prefetch_size or _PREFETCH)


def _record(record: bytes) -> bytes:
    return record
