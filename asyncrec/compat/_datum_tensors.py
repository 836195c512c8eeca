"""datum's reader, built from the same tf.data operations in the same order, so that a seed gives the same batches.

tf.data reads the files if TensorFlow has a file system for them. Otherwise asyncrec reads them, several shards at once,
in the same order. Compressed files and schemas with more detail than datum's own table of features are also supported.
If TensorFlow is not installed, the batches are `ArrayBatches`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec import blocking
from asyncrec._datasets.reading.reader import Found
from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer
from asyncrec.compat._tensors import is_read_by, read_here
from asyncrec.errors import DatasetError
from asyncrec.example._entries import Ragged
from asyncrec.example._schema import FixedLen, Tensor

_FILE_BUFFER = 8 << 20
_TYPES = {"int": "int64", "float": "float32", "string": "string"}


def records(tf: Any, path: str | os.PathLike[str], found: Found, shuffle_files: bool, read: Any) -> Any:
    """Return a ``tf.data.Dataset`` of the stored records, with a known number of elements."""
    shards = {os.path.join(path, each.key): each for each in found.slices}
    files = [{"filename": os.path.join(path, each.key), "skip": each.skip, "take": each.take} for each in found.slices]
    if read.experimental_interleave_sort_fn is not None:
        files = read.experimental_interleave_sort_fn(files)
    columns: dict[str, list[Any]] = {name: [file[name] for file in files] for name in ("filename", "skip", "take")}
    # Files written by datum itself are uncompressed, and no manifest lists them.
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

    A dense string feature with two or three axes, as images have, contains an image file, which is decoded.
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
        # datum's table does not mark strings that are images. datum's reader parses every dense string as one value.
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
    """Return the shape of each feature, with an unknown size (`None`) for every axis."""
    return {name: [None] * len(feature["shape"]) for name, feature in table.items()}


Batch = dict[str, NDArray[Any]]


@dataclass
class ArrayBatches:
    """An iterable of padded batches of the records that ``instruction`` selects. Each iteration reopens the files.

    Args:
        passes: the number of passes; -1 means forever.
        shuffle: the buffer size, the seed, and whether each pass has a different order; `None` for no shuffling.
    """

    path: str | PathLike[str]
    instruction: str
    batch_size: int
    drop_remainder: bool
    shuffle: tuple[int, int, bool] | None
    passes: int

    def __post_init__(self) -> None:
        self._number = count()

    def __iter__(self) -> Iterator[Batch]:
        for _ in count() if self.passes < 0 else range(self.passes):
            yield from self.once()

    def once(self) -> Iterator[Batch]:
        """Yield the batches of one pass."""
        with blocking.open_split(self.path, self.instruction) as reader:
            if reader.schema is None:
                raise DatasetError(
                    f"{fspath(self.path)}: no feature types are stored with the data set, so its records cannot be "
                    "decoded"
                )
            tensors = [name for name, entry in reader.schema.features.items() if isinstance(entry, Tensor)]
            records: Iterator[bytes] = (record for records in reader.batches() for record in records)
            if self.shuffle is not None:
                records = self._shuffled(records, *self.shuffle)
            while batch := list(islice(records, self.batch_size)):
                if len(batch) < self.batch_size and self.drop_remainder:
                    return
                columns = reader.schema.decode_batch(batch)
                shapes = {f"{name}_shape": np.array([each.shape for each in columns[name]]) for name in tensors}
                yield {name: _padded(value) for name, value in {**columns, **shapes}.items()}

    def _shuffled(self, records: Iterator[bytes], size: int, seed: int, reshuffle: bool) -> Iterator[bytes]:
        buffer: ShuffleBuffer[bytes] = ShuffleBuffer(size, seed + (next(self._number) if reshuffle else 0))
        for record in records:
            out = buffer.push(record)
            if out is not None:
                yield out
        yield from buffer.drain()


def _padded(value: Any) -> NDArray[Any]:
    """Return a feature's values as one array. Pad those of a VarLen or Tensor, whose sizes differ between records."""
    if not isinstance(value, Ragged) and not (
        value.dtype == object and len(value) and isinstance(value[0], np.ndarray)
    ):
        return _plain(value)
    each = np.split(value.values, value.row_splits[1:-1]) if isinstance(value, Ragged) else value
    rows = [_plain(row) for row in each]
    shape = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
    padded = np.full((len(rows), *shape), b"" if rows[0].dtype == object else 0, rows[0].dtype)
    for into, row in zip(padded, rows, strict=True):
        into[tuple(slice(size) for size in row.shape)] = row
    return padded


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an array to one of datum's three types."""
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    flat = [value.encode() if isinstance(value, str) else bytes(value) for value in array.reshape(-1).tolist()]
    plain = np.empty(len(flat), object)
    plain[:] = flat
    return plain.reshape(array.shape)
