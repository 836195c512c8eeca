"""datum's `load` and `Dataset`, which read batches from splits written by datum or by asyncrec's `TFRecordWriter`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from asyncrec._datasets.reading.reader import Found, find_split
from asyncrec._datasets.sidecars import read_table
from asyncrec.blocking._portal import current_portal
from asyncrec.compat._datum_configs import DatasetConfigs
from asyncrec.compat._datum_tensors import ArrayBatches, padded_shapes, parser, records
from asyncrec.compat._tensors import found_tensorflow
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.storage._registry import open_storage
from asyncrec.storage._url import local_path, scheme_of


class InstructionError(ArgumentValueError, AssertionError):
    """An instruction is invalid or selects too few records. Also an AssertionError, because datum raises one."""


def load(path: str | os.PathLike[str], dataset_configs: Any = None) -> Dataset:
    """Open the splits that `TFRecordWriter` or datum itself wrote to a folder, which may be a URL.

    Args:
        dataset_configs: `DatasetConfigs`, or datum's own configurations.

    Raises:
        ValueError: the path is local, but not a folder.
    """
    if scheme_of(path) in ("", "file") and not os.path.isdir(local_path(os.fspath(path))):
        raise ArgumentValueError(
            f"{os.fspath(path)} is not a folder; pass the folder that contains the TFRecord files and their metadata"
        )
    return Dataset(path, dataset_configs or DatasetConfigs())


class Dataset:
    """A folder of splits, opened by `load`. Each method returns batches, which are dicts keyed by feature.

    The first axis of a value indexes the records of the batch. Integers are int64, floats are float32, and text and
    bytes are byte strings. An image is returned as pixels if the example named the image's file. With TensorFlow, a
    method returns a ``tf.data.Dataset`` in datum's order, which is batched, echoed, repeated and mapped according to
    ``dataset_configs``. Without TensorFlow, a method returns an iterable of dicts of NumPy arrays in a different order,
    images stay bytes, and only the options for sizes, the seed and remainders have an effect. Either result can be
    iterated any number of times. Records of different sizes are padded with 0 or ``b""``; datum fails by default.

    ``instruction`` names a split or parts of several splits: ``"train"``, ``"test[:-5%]+train[40%:60%]"``; see
    `asyncrec.parse_split`. ``repeat`` is the number of passes: `None` means one, -1 means forever.

    Raises:
        ValueError: the split does not exist (the message lists the existing splits), or the instruction is malformed
            or selects no records. The error is also an AssertionError.
        SchemaError, StorageError: the files cannot be read.
    """

    def __init__(self, path: str | os.PathLike[str], dataset_configs: Any) -> None:
        self.dataset_configs = dataset_configs
        self._path = path

    def train_fn(self, instruction: str = "train", repeat: int | None = None, shuffle: bool = True) -> Any:
        """Return batches for training, by default only full ones, shuffled with a buffer of 100 and a fixed seed."""
        configs = self.dataset_configs
        return self._read("train", instruction, repeat, shuffle, configs.drop_remainder, configs.echoing)

    def val_fn(self, instruction: str = "val", repeat: int | None = None, shuffle: bool = False) -> Any:
        """Return batches for validation; by default, records are not shuffled."""
        return self._read("val", instruction, repeat, shuffle, self.dataset_configs.drop_remainder_val)

    def test_fn(self, instruction: str = "test", repeat: int | None = 1, shuffle: bool = False) -> Any:
        """Return batches for testing; by default, records are not shuffled."""
        return self._read("test", instruction, repeat, shuffle, self.dataset_configs.drop_remainder_test)

    @property
    def padded_shapes(self) -> dict[str, list[None]]:
        """Return the shapes for ``Dataset.padded_batch``: for each feature, one unknown size per axis."""

        async def table() -> Any:
            async with open_storage(self._path) as folder:
                return await read_table(folder)

        return padded_shapes(current_portal().run(table))

    def _read(
        self,
        purpose: str,
        instruction: str,
        repeat: int | None,
        shuffle: bool,
        drop_remainder: bool,
        echoing: int | None = None,
    ) -> Any:
        configs = self.dataset_configs
        batch_size = getattr(configs, f"batch_size_{purpose}")
        tensorflow = found_tensorflow()
        if tensorflow is None:
            buffer = (configs.buffer_size, configs.seed, configs.reshuffle_each_iteration) if shuffle else None
            batches = ArrayBatches(self._path, instruction, batch_size, drop_remainder, buffer, repeat or 1)
            if self._checked(instruction).slices and next(batches.once(), None) is None:
                raise InstructionError(f"the split {instruction!r} of {self._shown} has too few records for one batch")
            return batches
        found = self._checked(instruction)
        if not found.table:
            raise DatasetError(
                f"{self._shown}: no feature types are stored with the data set, so its records cannot be decoded"
            )
        dataset = records(tensorflow, self._path, found, configs.shuffle_files, configs.read_config)
        dataset = dataset.map(parser(tensorflow, found), num_parallel_calls=tensorflow.data.AUTOTUNE)
        if configs.cache:
            dataset = dataset.cache(configs.cache_filename)
        dataset = _mapped(dataset, getattr(configs, f"pre_batching_callback_{purpose}"))
        if shuffle:
            again = configs.reshuffle_each_iteration
            dataset = dataset.shuffle(configs.buffer_size, seed=configs.seed, reshuffle_each_iteration=again)
        deterministic = getattr(configs, f"deterministic{'' if purpose == 'train' else '_' + purpose}")
        dataset = _batched(tensorflow, dataset, configs, batch_size, drop_remainder, deterministic)
        if echoing:
            dataset = dataset.flat_map(lambda batch: tensorflow.data.Dataset.from_tensors(batch).repeat(echoing))
        if repeat:
            dataset = dataset.repeat(repeat)
        dataset = _mapped(dataset, getattr(configs, f"post_batching_callback_{purpose}"))
        dataset = dataset.prefetch(tensorflow.data.AUTOTUNE)
        return dataset.get_single_element() if configs.full_dataset else dataset

    def _checked(self, instruction: str) -> Found:
        try:
            found = current_portal().run(find_split, self._path, instruction)
        except ArgumentValueError as error:
            raise InstructionError(f"{self._shown}: {error}") from None
        if not found.slices:
            raise InstructionError(f"the split {instruction!r} of {self._shown} has no records")
        return found

    @property
    def _shown(self) -> str:
        return os.fspath(self._path)


def _mapped(dataset: Any, callback: Callable[..., Any] | None) -> Any:
    return dataset if callback is None else dataset.map(callback)


def _batched(tf: Any, dataset: Any, configs: Any, size: int, drop_remainder: bool, deterministic: bool) -> Any:
    shapes = tf.nest.map_structure(lambda spec: getattr(spec, "shape", None), dataset.element_spec)
    if configs.bucket_fn is not None:
        return dataset.bucket_by_sequence_length(
            configs.bucket_fn,
            configs.bucket_op.bucket_boundaries,
            configs.bucket_op.bucket_batch_sizes,
            padded_shapes=shapes,
            drop_remainder=drop_remainder,
        )
    if not size:
        return dataset
    if configs.use_datum_padding and not configs.use_tf_padding:
        shapes = tf.nest.map_structure(lambda spec: [None] * spec.shape.rank, dataset.element_spec)
        return dataset.padded_batch(size, padded_shapes=shapes, drop_remainder=drop_remainder)
    if configs.use_tf_padding or _differ_in_size(tf, dataset.element_spec):
        return dataset.padded_batch(size, padded_shapes=shapes, drop_remainder=drop_remainder)
    return dataset.batch(
        size, drop_remainder=drop_remainder, num_parallel_calls=configs.num_parallel_calls, deterministic=deterministic
    )


def _differ_in_size(tf: Any, element_spec: Any) -> bool:
    """Return whether a batch of these elements may need padding and can be padded."""
    specs = tf.nest.flatten(element_spec)
    paddable = all(isinstance(spec, tf.TensorSpec) and spec.shape.rank is not None for spec in specs)
    return paddable and any(None in spec.shape.as_list() for spec in specs)
