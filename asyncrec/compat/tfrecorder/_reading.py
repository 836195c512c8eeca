"""TFRecorder's files read back: `get_tfrecord_filepaths`, `generate_dataset`. The names are those of its factory."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from itertools import islice
from os import PathLike, fspath
from typing import Any, TypeVar

import numpy as np

from asyncrec import blocking
from asyncrec._datasets.from_csv.splitting import EXAMPLES_CSV
from asyncrec._datasets.reading.tuples import stored_schema
from asyncrec._sampling.interleave.shuffle_buffer import ShuffleBuffer
from asyncrec.blocking._portal import current_portal
from asyncrec.compat._tensors import found_tensorflow
from asyncrec.compat.tfrecorder.helpers.marshaller import Path
from asyncrec.errors import ArgumentValueError, ObjectNotFoundError, SchemaError
from asyncrec.example._declared import DeclaredExample
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, Tensor
from asyncrec.example._schema import Schema
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.storage._registry import located
from asyncrec.storage._url import join, local_path, redact, scheme_of

T = TypeVar("T")


class NoDirectoryError(ObjectNotFoundError, ValueError):
    """There is no such folder. TFRecorder raised ValueError."""


def get_tfrecord_filepaths(dirpath: Path, *, sort: bool = True) -> list[str]:
    """List the TFRecord files in a folder, in order, whatever ``sort`` says; those TFRecorder wrote (``*.tfr``), too.

    Raises:
        NoDirectoryError: there is no such folder; of a store that knows no folders, nothing in it.
    """
    try:
        return blocking.get_tfrecord_filepaths(dirpath)
    except ObjectNotFoundError:
        theirs = sorted((len(name), name) for name in _names_in(dirpath, ".tfr"))  # numbered from 0, without zeros
        return [join(fspath(dirpath), name) for _, name in theirs]


def get_examples_list_filepaths(dirpath: Path) -> str:
    """Find the CSV file that says which examples the folder's files hold.

    Raises:
        NoDirectoryError: as `get_tfrecord_filepaths`.
    """
    _names_in(dirpath, EXAMPLES_CSV)
    return join(fspath(dirpath), EXAMPLES_CSV)


def _names_in(dirpath: Path, suffix: str) -> list[str]:
    """List the files of a folder whose names end so."""

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

    With TensorFlow installed a ``tf.data.Dataset``, otherwise an iterator. Arrays come flat, as they always did:
    `asyncrec.datasets.generate_dataset` gives them their shape. Without ``example_class`` the manifest of their folder
    says what the fields are; a field that a record does not have is an error then, and otherwise 0, "" or no value.

    Args:
        dataset_num_shuffled_tfrecord_files: shuffle with a buffer of so many examples.
        dataset_fetching_num_threads: not used: files are read and decoded ahead of the caller.
        num_workers, worker_index: only every ``num_workers``-th example, from the ``worker_index``-th on.

    Raises: as `asyncrec.datasets.generate_dataset`; ValueError for ``num_workers`` without ``worker_index``.
    """
    if num_workers and worker_index is None:
        raise ArgumentValueError("give worker_index, too")
    given = tfrecords_filepaths
    paths = [fspath(given)] if isinstance(given, str | PathLike) else [fspath(path) for path in given]

    def tuples() -> Iterator[tuple[Any, ...]]:
        if not paths and example_class is not None:
            return  # of an empty split
        with blocking.generate_dataset(paths, example_class) as reader:
            mine = islice(reader, worker_index if num_workers else 0, None, num_workers or 1)
            for values in _shuffled(mine, dataset_num_shuffled_tfrecord_files):
                yield tuple(value.reshape(-1) if isinstance(value, np.ndarray) else value for value in values)

    tensorflow = found_tensorflow()
    if tensorflow is None:
        return tuples()
    schema = example_class.schema() if example_class is not None else _stored_schema(paths)
    specs = tuple(_spec(tensorflow, name, entry) for name, entry in schema.features.items())
    return tensorflow.data.Dataset.from_generator(tuples, output_signature=specs)


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


def _stored_schema(paths: list[str]) -> Schema:
    return current_portal().run(stored_schema, paths, None, None)


def _spec(tensorflow: Any, name: str, entry: Entry) -> Any:
    if not isinstance(entry, FixedLen | Tensor):
        raise SchemaError(f"{name}: a {type(entry).__name__} is no field of an Example")
    dtype = tensorflow.string if entry.dtype in ("str", "bytes") else tensorflow.as_dtype(entry.dtype)
    return tensorflow.TensorSpec((None,) if isinstance(entry, Tensor) else entry.shape, dtype, name=name)
