"""datum's writer and reader: ``from asyncrec.compat.datum import TFRecordWriter, load``.

`TFRecordWriter` makes datum's files (``{split}-{i:05d}-of-{k:05d}.tfrecord``, ``shard_info.json`` and
``datum_to_type_and_shape_mapping.json``), which datum reads, by `asyncrec.DatasetWriter`: a split appears whole, with a
manifest, and replaces what was there. `load` reads them, and what datum wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count, islice
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncrec import blocking
from asyncrec.compat.tensors import found_tensorflow
from asyncrec.datasets.source import Serializer
from asyncrec.errors import DatasetError
from asyncrec.example.entries import Ragged
from asyncrec.sampling.shuffle import ShuffleBuffer

__all__ = ["Dataset", "DatasetConfigs", "TFRecordWriter", "load"]

Batch = dict[str, NDArray[Any]]


class TFRecordWriter(blocking.DatasetWriter):
    """Makes one split of a generator's examples. See `asyncrec.DatasetWriter`, of which this has all methods.

    Args:
        generator: called with ``gen_kwargs`` and ``split``; yields ``(key, features)``.
        serializer: makes bytes of the features; `None` for an Example of them.
        path: the folder, local or a URL.
        split: its name.
        total_examples: for the progress bar.
        sparse_features: arrays whose shapes differ from example to example.
        gen_kwargs: all for the generator.
        writer_options: for `asyncrec.DatasetWriter`: ``{"compression": "GZIP"}``, ``num_shards`` and the others.
    """

    def __init__(
        self,
        generator: Callable[..., Any],
        serializer: Serializer | None,
        path: str | PathLike[str],
        split: str,
        total_examples: int | None,
        sparse_features: list[str] | None = None,
        *,
        writer_options: Mapping[str, Any] | None = None,
        **gen_kwargs: Any,
    ) -> None:
        # Bound here, so that no keyword of the generator is taken for an option.
        bound = partial(generator, **gen_kwargs)
        super().__init__(
            bound, serializer, fspath(path), split, total_examples, sparse_features, **(writer_options or {})
        )

    def add_shape_fields(self, datum: Mapping[str, Any]) -> dict[str, Any]:
        """The features with ``<name>_shape`` for each sparse feature of two axes or more; as in datum, in ``datum``."""
        shaped = super().add_shape_fields(datum)
        if not isinstance(datum, dict):
            return shaped
        datum.update(shaped)
        return datum


@dataclass(slots=True)
class DatasetConfigs:
    """What of datum's configuration has a meaning here, with its defaults; anything else is an AttributeError.

    The rest is a method of the ``tf.data.Dataset`` that is given: ``cache``, ``map``, ``bucket_by_sequence_length``.
    """

    buffer_size: int = 100
    seed: int = 6052020
    reshuffle_each_iteration: bool = False
    batch_size_train: int = 32
    batch_size_val: int = 32
    batch_size_test: int = 32
    drop_remainder: bool = True  # of train: what is left for a last, short batch
    drop_remainder_val: bool = False
    drop_remainder_test: bool = False


def load(path: str | PathLike[str], dataset_configs: DatasetConfigs | None = None) -> Dataset:
    """The splits in a folder, local or a URL, that `TFRecordWriter` or datum itself wrote."""
    return Dataset(path, dataset_configs or DatasetConfigs())


class Dataset:
    """Made by `load`. Each method gives batches: dicts of arrays by feature, the number of records first.

    Integers are int64, floats float32, text and bytes `bytes`. Where sizes differ within a batch, arrays are padded
    with 0 or ``b""`` at their ends. With TensorFlow installed it is a ``tf.data.Dataset``, otherwise an iterable of
    NumPy arrays; both may be iterated any number of times. ``instruction`` is a split or parts of several:
    ``"train"``, ``"test[:-5%]+train[40%:60%]"``; see `asyncrec.parse_split`. ``repeat`` is the number of passes:
    `None` is one, -1 for ever.

    Raises:
        ValueError: there is no such split; the message says which there are. Or the instruction leaves no record.
        SchemaError, StorageError: the files cannot be read.
    """

    def __init__(self, path: str | PathLike[str], dataset_configs: DatasetConfigs) -> None:
        self.dataset_configs = dataset_configs
        self._path = path

    def train_fn(self, instruction: str = "train", repeat: int | None = None, shuffle: bool = True) -> Any:
        """For training: whole batches, shuffled by a buffer of 100 records and a fixed seed, unless configured."""
        configs = self.dataset_configs
        return self._read(instruction, repeat, shuffle, configs.batch_size_train, configs.drop_remainder)

    def val_fn(self, instruction: str = "val", repeat: int | None = None, shuffle: bool = False) -> Any:
        """For validation: in the order in which they are stored."""
        configs = self.dataset_configs
        return self._read(instruction, repeat, shuffle, configs.batch_size_val, configs.drop_remainder_val)

    def test_fn(self, instruction: str = "test", repeat: int | None = 1, shuffle: bool = False) -> Any:
        """For testing: in the order in which they are stored."""
        configs = self.dataset_configs
        return self._read(instruction, repeat, shuffle, configs.batch_size_test, configs.drop_remainder_test)

    def _read(self, instruction: str, repeat: int | None, shuffle: bool, batch_size: int, drop: bool) -> Any:
        configs = self.dataset_configs
        batches = _Batches(
            path=self._path,
            instruction=instruction,
            batch_size=batch_size,
            drop_remainder=drop,
            shuffle=(configs.buffer_size, configs.seed, configs.reshuffle_each_iteration) if shuffle else None,
        )
        first = next(batches.once(), None)
        if first is None:
            raise ValueError(f"{instruction!r} of {fspath(self._path)} has no batch of {batch_size} records")
        passes = 1 if repeat is None or repeat == 0 else repeat
        tensorflow = found_tensorflow()
        if tensorflow is None:
            return _Repeated(batches, passes)
        signature = {
            name: tensorflow.TensorSpec(
                (None, *(None for _ in array.shape[1:])) if name in batches.ragged else (None, *array.shape[1:]),
                tensorflow.string if array.dtype == object else array.dtype,
                name=name,
            )
            for name, array in first.items()
        }
        dataset = tensorflow.data.Dataset.from_generator(batches.once, output_signature=signature)
        return dataset.repeat(passes).prefetch(tensorflow.data.AUTOTUNE)


@dataclass
class _Batches:
    """Padded batches of parts of splits; `once` opens them anew each time."""

    path: str | PathLike[str]
    instruction: str
    batch_size: int
    drop_remainder: bool
    shuffle: tuple[int, int, bool] | None

    def __post_init__(self) -> None:
        self.ragged: set[str] = set()
        self._passes = count()

    def once(self) -> Iterator[Batch]:
        with blocking.open_split(self.path, self.instruction) as reader:
            if reader.schema is None:
                raise DatasetError(f"{fspath(self.path)}: no types are stored with it, so that nothing can be decoded")
            records: Iterator[bytes] = (record for records in reader.batches() for record in records)
            if self.shuffle is not None:
                records = self._shuffled(records, *self.shuffle)
            while batch := list(islice(records, self.batch_size)):
                if len(batch) < self.batch_size and self.drop_remainder:
                    return
                columns = reader.schema.decode_batch(batch)
                self.ragged |= {name for name, value in columns.items() if _differs(value)}
                yield {name: _padded(value) for name, value in columns.items()}

    def _shuffled(self, records: Iterator[bytes], size: int, seed: int, reshuffle: bool) -> Iterator[bytes]:
        buffer: ShuffleBuffer[bytes] = ShuffleBuffer(size, seed + (next(self._passes) if reshuffle else 0))
        for record in records:
            out = buffer.push(record)
            if out is not None:
                yield out
        yield from buffer.drain()


@dataclass(frozen=True)
class _Repeated:
    """Iterated any number of times."""

    batches: _Batches
    passes: int

    def __iter__(self) -> Iterator[Batch]:
        for _ in count() if self.passes < 0 else range(self.passes):
            yield from self.batches.once()


def _differs(value: Any) -> bool:
    """Whether sizes may differ from record to record: VarLen and Tensor decode to these."""
    return isinstance(value, Ragged) or (
        value.dtype == object and bool(len(value)) and isinstance(value[0], np.ndarray)
    )


def _padded(value: Any) -> NDArray[Any]:
    if not _differs(value):
        return _plain(value)
    each = np.split(value.values, value.row_splits[1:-1]) if isinstance(value, Ragged) else value
    rows = [_plain(row) for row in each]
    shape = [max(sizes) for sizes in zip(*(row.shape for row in rows), strict=True)]
    padded = np.full((len(rows), *shape), b"" if rows[0].dtype == object else 0, rows[0].dtype)
    for into, row in zip(padded, rows, strict=True):
        into[tuple(slice(size) for size in row.shape)] = row
    return padded


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Of the three types that datum has."""
    if array.dtype.kind in "biu":
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float32)
    flat = [value.encode() if isinstance(value, str) else bytes(value) for value in array.reshape(-1).tolist()]
    plain = np.empty(len(flat), object)
    plain[:] = flat
    return plain.reshape(array.shape)
