"""A ``tf.data.Dataset`` of a data set's records, which asyncrec shuffles, batches and decodes with a schema.

    from asyncrec.integrations.tensorflow import shuffled

    dataset = shuffled("s3://crawl/2026/pages", batch_size=64, seed=0).prefetch(2)

TensorFlow can read TFRecord files itself. This module is for the stores and orders that it does not support.
"""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from typing import Any

from asyncrec.integrations._needed import needed

with needed(__name__, "TensorFlow", "tensorflow", install="tensorflow"):
    import tensorflow as tf

from asyncrec._arguments import Size
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec.errors import SchemaError
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, VarLen
from asyncrec.example._schema import Schema
from asyncrec.integrations._snapshot import Snapshot
from asyncrec.storage._cached import CACHE_BYTES

__all__ = ["element_spec", "shuffled"]


def element_spec(schema: Schema) -> dict[str, Any]:
    """Return TensorFlow's spec of a decoded batch: a ``TensorSpec`` for FixedLen, a ``RaggedTensorSpec`` for VarLen.

    Raises:
        SchemaError: a feature has another kind of entry. Pass a schema that omits it or reads it as bytes.
    """
    return {name: _spec(name, entry) for name, entry in schema.features.items()}


def shuffled(
    path: str | PathLike[str] | Manifest,
    *,
    batch_size: int,
    schema: Schema | None = None,
    newest: str | None = None,
    storage_options: dict[str, Any] | None = None,
    cache: str | PathLike[str] | None = None,
    cache_bytes: Size = CACHE_BYTES,
    **shuffling: Any,
) -> Any:
    """Return a ``tf.data.Dataset`` of batches, which are dicts of tensors keyed by feature.

    Each iteration opens the data set when it begins and closes it when it ends or is abandoned.

    Args:
        path: the data set's folder and name, or a `Manifest`. This call takes the snapshot that all epochs read.
        batch_size: the number of records in a batch; the last batch of an epoch may have fewer.
        schema: the schema of the records; by default the manifest's.
        newest: as for `asyncrec.open_dataset`. This call determines the newest version of each key once.
        storage_options: options for the backend.
        cache, cache_bytes: a local cache folder shared by all processes on this machine, and its size limit; see
            `asyncrec.open_dataset`.
        shuffling: the arguments of `asyncrec.Dataset.shuffled`; with ``worker=(i, n)``, this is worker i of n.

    Raises:
        SchemaError: the data set has no schema, or the schema has a feature that `element_spec` does not support.
    """
    reading: dict[str, Any] = {"storage_options": storage_options, "cache": cache, "cache_bytes": cache_bytes}
    past_damage = shuffling.get("on_corrupt") == "skip"
    snapshot = Snapshot(path, {"newest": newest, **reading}, past_damage=past_damage)
    if schema is None and snapshot.manifest.schema is not None:
        schema = Schema.from_json(snapshot.manifest.schema)
    if schema is None:
        raise SchemaError(f"{path}: the data set has no schema; pass schema=, for example Schema.infer(records)")
    decoder: Schema = schema

    def batches() -> Iterator[dict[str, Any]]:
        with snapshot.opened() as dataset, dataset.shuffled(**shuffling) as stream:
            for records in stream.batches(batch_size):
                yield {
                    name: _value(decoder.features[name], value) for name, value in decoder.decode_batch(records).items()
                }

    return tf.data.Dataset.from_generator(batches, output_signature=element_spec(decoder))


def _spec(name: str, entry: Entry) -> Any:
    if isinstance(entry, FixedLen):
        return tf.TensorSpec((None, *entry.shape), _dtype(entry.dtype), name=name)
    if isinstance(entry, VarLen):
        return tf.RaggedTensorSpec((None, None), _dtype(entry.dtype), ragged_rank=1)
    raise SchemaError(
        f"{name}: a {type(entry).__name__} cannot be read as a tensor here; leave the feature out, or read it as bytes"
    )


def _value(entry: Entry, value: Any) -> Any:
    if isinstance(entry, VarLen):
        values = tf.constant(value.values, dtype=_dtype(entry.dtype))
        return tf.RaggedTensor.from_row_splits(values, value.row_splits)
    return value


def _dtype(dtype: str) -> Any:
    return tf.string if dtype in ("bytes", "str") else tf.as_dtype(dtype)
