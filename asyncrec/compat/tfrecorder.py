"""TFRecorder's examples and factory: ``from asyncrec.compat.tfrecorder import Example, tfrecordable``.

This module stands for ``helpers.marshaller``, ``helpers.decorator`` and ``helpers.checker`` of TFRecorder, and for its
``factory`` (``from asyncrec.compat import tfrecorder as tf_factory``). The work is done by
`asyncrec.write_splits_from_csv` and `asyncrec.write_folds`: splits appear whole, replace what was there, and have a
manifest each. Keyword arguments that a function does not know are for ``load``, ``split`` and ``from_csv_row`` of the
example class.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from inspect import signature
from os import fspath
from typing import Any

import numpy as np

from asyncrec import blocking
from asyncrec.compat.tfrecorder_reading import (
    Path,
    generate_dataset,
    get_examples_list_filepaths,
    get_tfrecord_filepaths,
)
from asyncrec.datasets.partition import deal, weights_of
from asyncrec.example.declared import DeclaredExample, check_round_trip, tfrecordable
from asyncrec.example.declared import IgnoreExample as IgnoreExampleException

__all__ = [
    "Example",
    "IgnoreExampleException",
    "assert_example_serialize_deserialize_is_ok",
    "generate_and_save_tfrecords_files_for_examples_dict",
    "generate_and_save_tfrecords_files_for_examples_file",
    "generate_and_save_tfrecords_files_for_examples_files_dict",
    "generate_and_save_tfrecords_files_for_train_eval_test_examples_files",
    "generate_and_save_train_eval_test_tfrecords_files",
    "generate_and_save_train_eval_test_tfrecords_files_for_examples",
    "generate_dataset",
    "get_examples_list_filepaths",
    "get_tfrecord_filepaths",
    "tfrecordable",
]

_MAX_BYTES = 1e6

Ratio = float | Sequence[float]


class Example(DeclaredExample):
    """`asyncrec.DeclaredExample` under its old name; see there."""

    @classmethod
    def get_tfrecordable_attribute_names(cls) -> list[str]:
        """Of the fields, in the order of declaration."""
        return list(cls.fields())

    @classmethod
    def from_csv_file(cls, filepath: Path, **kwargs: Any) -> list[Any]:
        """An example of each row, not loaded."""
        with open(filepath, encoding="utf-8", newline="") as file:
            return [cls.from_csv_row(row, **kwargs) for row in csv.reader(file) if row]


def generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path: Path,
    example_class: type[DeclaredExample] | None = None,
    examples_list_filepath: Path | None = None,
    examples_train_eval_test_ratio: Ratio = 0.8,
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    *,
    examples_class: type[DeclaredExample] | None = None,
    examples_filepath: Path | None = None,
    examples_shuffle_seed: int = 0,
    **kwargs: Any,
) -> dict[str, int]:
    """Make train, eval and test splits of the rows of a CSV file: `asyncrec.write_splits_from_csv`.

    ``examples_class`` and ``examples_filepath`` are what later versions called the two. One ratio is that of train and
    the rest is eval; two are those of train and eval; three of train, eval and test. ``examples.csv`` is written
    whatever ``examples_log_in_csv_file`` says.

    Returns:
        the number of examples in each split.

    Raises: as `asyncrec.write_splits_from_csv`; TypeError when a keyword argument for the example is an option of it.
    """
    kind, rows = example_class or examples_class, examples_list_filepath or examples_filepath
    if kind is None or rows is None:
        raise TypeError("example_class and examples_list_filepath are needed")
    written = blocking.write_splits_from_csv(
        save_directory_path,
        kind,
        rows,
        ratios=_ratios(examples_train_eval_test_ratio),
        seed=examples_shuffle_seed,
        max_shard_bytes=int(examples_tfrecord_file_max_size_in_bytes),
        **_for_the_example(kwargs),
    )
    return dict(written.examples)


def generate_and_save_tfrecords_files_for_examples_dict(
    save_directory_path: Path,
    examples_dict: Mapping[str, Sequence[DeclaredExample]],
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    **kwargs: Any,
) -> dict[str, int]:
    """Write lists of examples to folders of these names, folds say: `asyncrec.write_folds`. Returns their numbers."""
    written = blocking.write_folds(
        save_directory_path,
        examples_dict,
        max_shard_bytes=int(examples_tfrecord_file_max_size_in_bytes),
        **_for_the_example(kwargs),
    )
    return dict(written.examples)


def generate_and_save_train_eval_test_tfrecords_files_for_examples(
    save_directory_path: Path,
    examples: Sequence[DeclaredExample],
    examples_train_eval_test_ratio: Ratio = 0.8,
    examples_shuffle: bool = True,
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    *,
    examples_shuffle_seed: int = 0,
    **kwargs: Any,
) -> dict[str, int]:
    """As `generate_and_save_train_eval_test_tfrecords_files`, of examples at hand. The list keeps its order."""
    weights = weights_of(_ratios(examples_train_eval_test_ratio))
    if examples_shuffle:
        dealt = deal([None] * len(examples), weights, seed=examples_shuffle_seed)
    else:
        bounds = np.rint(len(examples) * np.cumsum([0, *weights.values()])).astype(int).tolist()
        dealt = {name: list(range(*bounds[i : i + 2])) for i, name in enumerate(weights)}
    splits = {name: [examples[index] for index in indexes] for name, indexes in dealt.items()}
    return generate_and_save_tfrecords_files_for_examples_dict(
        save_directory_path, splits, examples_tfrecord_file_max_size_in_bytes, examples_log_in_csv_file, **kwargs
    )


def generate_and_save_tfrecords_files_for_examples_files_dict(
    save_directory_path: Path,
    example_class: type[Example],
    examples_filepaths_dict: Mapping[str, Path],
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    **kwargs: Any,
) -> dict[str, int]:
    """Write the examples of one CSV file each to folders of these names. Returns their numbers."""
    return generate_and_save_tfrecords_files_for_examples_dict(
        save_directory_path,
        {name: example_class.from_csv_file(path, **kwargs) for name, path in examples_filepaths_dict.items()},
        examples_tfrecord_file_max_size_in_bytes,
        examples_log_in_csv_file,
        **kwargs,
    )


def generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
    save_directory_path: Path,
    example_class: type[Example],
    train_examples_filepath: Path,
    eval_examples_filepath: Path,
    test_examples_filepath: Path | None = None,
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    **kwargs: Any,
) -> dict[str, int]:
    """As `generate_and_save_train_eval_test_tfrecords_files`, from a CSV file for each split."""
    paths = {"train": train_examples_filepath, "eval": eval_examples_filepath}
    if test_examples_filepath is not None:
        paths["test"] = test_examples_filepath
    return generate_and_save_tfrecords_files_for_examples_files_dict(
        save_directory_path,
        example_class,
        paths,
        examples_tfrecord_file_max_size_in_bytes,
        examples_log_in_csv_file,
        **kwargs,
    )


def generate_and_save_tfrecords_files_for_examples_file(
    save_directory_path: Path,
    example_class: type[Example],
    examples_filepath: Path,
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    **kwargs: Any,
) -> dict[str, int]:
    """Write the examples of one CSV file to one folder, without splitting them."""
    folder, _, name = fspath(save_directory_path).rstrip("/").rpartition("/")
    return generate_and_save_tfrecords_files_for_examples_files_dict(
        folder or ".",
        example_class,
        {name: examples_filepath},
        examples_tfrecord_file_max_size_in_bytes,
        examples_log_in_csv_file,
        **kwargs,
    )


def assert_example_serialize_deserialize_is_ok(example: Example | Sequence[Example], **kwargs: Any) -> bool:
    """Load and split each example, and see that it is read as it was written: `asyncrec.check_round_trip`.

    Raises:
        SchemaError: naming the field, and both values.
    """
    for each in [example] if isinstance(example, DeclaredExample) else example:
        each.load(**kwargs)
        parts: Any = each.split(**kwargs)
        for part in parts:
            check_round_trip(part)
    return True


def _ratios(ratio: Ratio) -> Ratio:
    """One ratio was given alone or in a list."""
    return ratio[0] if isinstance(ratio, Sequence) and len(ratio) == 1 else ratio


def _for_the_example(kwargs: dict[str, Any]) -> dict[str, Any]:
    """They are handed on beside asyncrec's own options, which must not take them."""
    taken = sorted(_OPTIONS & kwargs.keys())
    if taken:
        raise TypeError(
            f"{', '.join(taken)}: an option of asyncrec's own has this name, so that load, split and from_csv_row "
            "would not get it; rename it, or set it on the class"
        )
    return kwargs


_OPTIONS = {*signature(blocking.write_splits_from_csv).parameters, *signature(blocking.write_folds).parameters}
