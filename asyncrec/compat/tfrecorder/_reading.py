"""The functions of TFRecorder's factory that read its files, such as `generate_dataset`."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from os import PathLike, fspath
from typing import Any, TypeVar

import numpy as np

from asyncrec import blocking
from asyncrec._datasets.from_csv.splitting import EXAMPLES_CSV
from asyncrec._datasets.reading.tuples import stored_schema
from asyncrec._framing.compression.options import detect_compression
from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer
from asyncrec.blocking._portal import current_portal
from asyncrec.compat._tensors import found_tensorflow, is_read_by, read_here
from asyncrec.compat.tfrecorder.helpers.marshaller import Example, Path, tensors
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError, SchemaError
from asyncrec.example._declared import DeclaredExample
from asyncrec.example._fields import ENTRIES, FieldType
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, local_path, redact, scheme_of

T = TypeVar("T")
_HEAD = 12  # the number of bytes that identify a file's compression


class NoDirectoryError(ObjectNotFoundError, ValueError):
    """The folder does not exist. This is also a ValueError, because TFRecorder raises one."""


def get_tfrecord_filepaths(dirpath: Path, *, sort: bool = True) -> list[str]:
    """Return the sorted paths of a folder's TFRecord files or, if it has none, of its TFRecorder files (``*.tfr``).

    Raises:
        NoDirectoryError: the folder does not exist; in a store without folders, it has no objects.
    """
    try:
        return blocking.get_tfrecord_filepaths(dirpath)
    except ObjectNotFoundError:
        theirs = sorted((len(name), name) for name in _names_in(dirpath, ".tfr"))  # their numbers have no leading zeros
        return [join(fspath(dirpath), name) for _, name in theirs]


def get_examples_list_filepaths(dirpath: Path) -> str:
    """Return the path of the CSV file that lists a folder's examples.

    Raises:
        NoDirectoryError: the folder does not exist; in a store without folders, it has no objects.
    """
    _names_in(dirpath, EXAMPLES_CSV)
    return join(fspath(dirpath), EXAMPLES_CSV)


def _names_in(dirpath: Path, suffix: str) -> list[str]:
    """Return the names of the folder's files that end with ``suffix``."""

    keys = 0

    async def names() -> list[str]:
        nonlocal keys
        found: list[str] = []
        async with located(join(fspath(dirpath), "_")) as (store, key):
            prefix = key.rpartition("/")[0]
            folder = PrefixedStorage(store, prefix) if prefix else store
            async for info in folder.list_objects():
                keys += 1
                if info.key.endswith(suffix) and "/" not in info.key:
                    found.append(info.key)
        return found

    found = current_portal().run(names)
    is_local = scheme_of(dirpath) in ("", "file")
    if not keys and not (is_local and os.path.isdir(local_path(fspath(dirpath)))):
        raise NoDirectoryError(f"There is no directory at {redact(fspath(dirpath))}.")
    return found


def generate_dataset(
    tfrecords_filepaths: Path | Sequence[Path],
    example_class: type[DeclaredExample] | None = None,
    dataset_num_shuffled_tfrecord_files: int | None = None,
    dataset_fetching_num_threads: int | None = None,
    *,
    num_workers: int | None = None,
    worker_index: int | None = None,
) -> Any:
    """Read the examples as tuples of their fields, in the order of declaration.

    If TensorFlow is installed, return a ``tf.data.Dataset`` built from TFRecorder's operations, otherwise an iterator.
    Arrays are flat, as in TFRecorder; `asyncrec.datasets.generate_dataset` restores their shapes. Without
    ``example_class``, the folder's manifest defines the fields. A field that is missing from a record is 0, "" or an
    empty array, but raises an error if there is neither TensorFlow nor ``example_class``.

    Args:
        dataset_num_shuffled_tfrecord_files: the size of the shuffle buffer in examples. With TensorFlow,
            ``tf.random.set_seed`` makes the order repeatable.
        dataset_fetching_num_threads: with TensorFlow, the number of concurrent calls to ``parse_from_string``.
        num_workers, worker_index: return only every ``num_workers``-th example, beginning with number ``worker_index``.

    Raises: the errors of `asyncrec.datasets.generate_dataset`, or ValueError for ``num_workers`` without
        ``worker_index``. While iterating with TensorFlow, tf.errors.DataLossError if a file that TensorFlow itself
        reads is damaged.
    """
    if num_workers and worker_index is None:
        raise ArgumentValueError("num_workers requires worker_index; pass both")
    given = tfrecords_filepaths
    paths = [fspath(given)] if isinstance(given, str | PathLike) else [fspath(path) for path in given]
    tensorflow = found_tensorflow()
    if tensorflow is None:
        return _tuples(paths, example_class, dataset_num_shuffled_tfrecord_files, num_workers or 1, worker_index or 0)
    dataset = _records(tensorflow, paths)
    if num_workers:
        dataset = dataset.shard(num_workers, worker_index)
    if dataset_num_shuffled_tfrecord_files:
        dataset = dataset.shuffle(dataset_num_shuffled_tfrecord_files)
    if example_class is not None and issubclass(example_class, Example):
        parse: Callable[[Any], Any] = example_class.parse_from_string
    else:
        fields = _stored_fields(paths) if example_class is None else example_class.fields()
        parse = partial(tensors, tensorflow, fields)
    return dataset.map(parse, num_parallel_calls=dataset_fetching_num_threads)


def _records(tensorflow: Any, paths: list[str]) -> Any:
    """Return a ``tf.data.Dataset`` of the files' records, one file after the other."""
    filenames = tensorflow.constant(paths, tensorflow.string)
    if not all(is_read_by(tensorflow, path) for path in paths):
        return tensorflow.data.Dataset.from_tensor_slices(filenames).flat_map(partial(read_here, tensorflow, _batches))
    compression = ""
    if paths and tensorflow.io.gfile.exists(paths[0]):  # as in the original, reading a missing file raises an error
        with tensorflow.io.gfile.GFile(paths[0], "rb") as file:
            compression = detect_compression(file.read(_HEAD))
    return tensorflow.data.TFRecordDataset(filenames, compression)


def _batches(filename: bytes) -> Iterator[list[bytes]]:
    with blocking.open_reader(filename.decode()) as reader:
        yield from reader.batches()


def _tuples(
    paths: list[str], example_class: type[DeclaredExample] | None, buffer_size: int | None, workers: int, worker: int
) -> Iterator[tuple[Any, ...]]:
    if not paths and example_class is not None:
        return  # an empty split
    with blocking.generate_dataset(paths, example_class) as reader:
        for values in _shuffled(islice(reader, worker, None, workers), buffer_size):
            yield tuple(value.reshape(-1) if isinstance(value, np.ndarray) else value for value in values)


def _shuffled(items: Iterator[T], buffer_size: int | None) -> Iterator[T]:
    if not buffer_size:
        yield from items
        return
    buffer: ShuffleBuffer[T] = ShuffleBuffer(buffer_size, random.randrange(1 << 32))
    for item in items:
        out = buffer.push(item)
        if out is not None:
            yield out
    yield from buffer.drain()


def _stored_fields(paths: list[str]) -> dict[str, FieldType]:
    kinds = {entry: kind for kind, entry in ENTRIES.items()}
    features = current_portal().run(stored_schema, paths, None, None).features
    for name, entry in features.items():
        if entry not in kinds:
            raise SchemaError(
                f"{name}: no field of a TFRecorder Example is stored as {entry}; to read this schema, use "
                "asyncrec.integrations.tensorflow"
            )
    return {name: kinds[entry] for name, entry in features.items()}
