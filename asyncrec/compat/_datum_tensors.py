"""datum's reader, built from the same tf.data operations in the same order, so that seeds have the same effect.

tf.data reads the files if TensorFlow has a file system for them. Otherwise asyncrec reads them, several shards at once,
in the same order. Compressed files are also supported, as are schemas with more detail than datum's table.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from typing import Any

from asyncrec import blocking
from asyncrec._datasets.reading.reader import Found
from asyncrec.compat._tensors import is_read_by, read_here
from asyncrec.example._schema import FixedLen

_FILE_BUFFER = 8 << 20
_TYPES = {"int": "int64", "float": "float32", "string": "string"}


def records(tf: Any, path: str | os.PathLike[str], found: Found, shuffle_files: bool, read: Any) -> Any:
    """Return a ``tf.data.Dataset`` of the stored records, with a known number of elements."""
    shards = {os.path.join(path, each.key): each for each in found.slices}
    files = [{"filename": os.path.join(path, each.key), "skip": each.skip, "take": each.take} for each in found.slices]
    if read.experimental_interleave_sort_fn is not None:
        files = read.experimental_interleave_sort_fn(files)
    columns: dict[str, list[Any]] = {name: [file[name] for file in files] for name in ("filename", "skip", "take")}
    # datum's own files are in no manifest and are uncompressed.
    columns["compression"] = [
        shards[name].compression.replace("auto", "") if name in shards else "" for name in columns["filename"]
    ]
    for name in ("skip", "take"):
        columns[name] = tf.constant(columns[name], tf.int64)
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    if shuffle_files:
        dataset = dataset.shuffle(
            len(files), seed=read.seed, reshuffle_each_iteration=read.shuffle_reshuffle_each_iteration
        )

    def batches(filename: bytes) -> Iterator[list[bytes]]:
        name = filename.decode()
        compression: Any = shards[name].compression
        with blocking.open_reader(
            name, compression=compression, max_record_bytes=shards[name].max_record_bytes
        ) as reader:
            yield from reader.batches()

    theirs = is_read_by(tf, path)

    def open_file(file: dict[str, Any]) -> Any:
        if theirs:
            opened = tf.data.TFRecordDataset(file["filename"], file["compression"], _FILE_BUFFER, num_parallel_reads=1)
        else:
            opened = read_here(tf, batches, file["filename"])
        return opened.skip(file["skip"]).take(file["take"])

    dataset = dataset.interleave(
        open_file,
        cycle_length=read.interleave_cycle_length,
        block_length=read.interleave_block_length,
        num_parallel_calls=tf.data.AUTOTUNE,
    )
    number = sum(each.take for each in found.slices)
    return dataset.apply(tf.data.experimental.assert_cardinality(number)).with_options(read.options)


def parser(tf: Any, found: Found) -> Callable[[Any], dict[str, Any]]:
    """Return a function that parses a record into a dict of tensors.

    A single string whose feature has the two or three axes of an image holds the bytes of an image file, and is
    decoded.
    """
    entries = found.schema.features if found.schema is not None else {}
    table = found.table
    images, shapes, features = set(), {}, {}
    for name, feature in table.items():
        shape, dtype = feature["shape"], tf.as_dtype(_TYPES[feature["type"]])
        if not feature["dense"]:
            features[name] = tf.io.VarLenFeature(dtype)
            shapes[name] = shape
            continue
        entry = entries.get(name)
        # datum's table cannot say which strings are images: its own reader takes every dense string for one value.
        if feature["type"] == "string" and not (isinstance(entry, FixedLen) and entry.shape):
            shapes[name] = []
            if len(shape) in (2, 3):
                images.add(name)
        else:
            shapes[name] = shape
        features[name] = tf.io.FixedLenFeature([math.prod(shapes[name])] if shapes[name] else [], dtype)

    def parse(record: Any) -> dict[str, Any]:
        values = tf.io.parse_single_example(record, features)
        parsed = {}
        for name, value in values.items():
            if name in images:
                channels = 3 if len(table[name]["shape"]) == 3 else 1
                parsed[name] = tf.io.decode_jpeg(value, channels, dct_method="INTEGER_ACCURATE")
                continue
            dense = tf.sparse.to_dense(value) if isinstance(value, tf.SparseTensor) else value
            if len(shapes[name]) >= 2:
                dense = tf.reshape(dense, values.get(f"{name}_shape", shapes[name]))
            parsed[name] = dense
        return parsed

    return parse


def padded_shapes(table: dict[str, dict[str, Any]]) -> dict[str, list[None]]:
    """Return an unknown size for each axis of each feature."""
    return {name: [None] * len(feature["shape"]) for name, feature in table.items()}
