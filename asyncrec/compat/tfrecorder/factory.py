"""TFRecorder's factory, which writes splits of given examples, or of examples listed in CSV files.

Additional keyword arguments are passed to the example class's ``load``, ``split`` and ``from_csv_row``.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from os import fspath
from typing import Any, TypeVar

from asyncrec.compat.tfrecorder._reading import (
    NoDirectoryError,
    generate_dataset,
    get_examples_list_filepaths,
    get_tfrecord_filepaths,
)
from asyncrec.compat.tfrecorder.config import CONFIG_FILENAME, config_of
from asyncrec.compat.tfrecorder.engine import logger, write_examples
from asyncrec.compat.tfrecorder.helpers.marshaller import Example, Path, read_examples, write_file
from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.example._declared import DeclaredExample
from asyncrec.storage._url import join

__all__ = [
    "generate_and_save_tfrecords_files_for_examples_dict",
    "generate_and_save_tfrecords_files_for_examples_file",
    "generate_and_save_tfrecords_files_for_examples_files_dict",
    "generate_and_save_tfrecords_files_for_train_eval_test_examples_files",
    "generate_and_save_train_eval_test_tfrecords_files",
    "generate_and_save_train_eval_test_tfrecords_files_for_examples",
    "generate_dataset",
    "get_examples_list_filepaths",
    "get_tfrecord_filepaths",
    "split_examples_list",
]

_MAX_BYTES = 1e6
_SPLITS = ("train", "eval", "test")

Ratio = float | Sequence[float]
E = TypeVar("E")


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
    examples_shuffle_seed: int | None = None,
    examples_concurrency: int = 1,
    **kwargs: Any,
) -> dict[str, int]:
    """Write train, eval and test splits of the rows of a CSV file or URL, and ``tfrecord_files_config.txt``.

    ``examples_class`` and ``examples_filepath`` are later versions' names for ``example_class`` and
    ``examples_list_filepath``. For the other arguments, see
    `generate_and_save_train_eval_test_tfrecords_files_for_examples`.
    """
    kind, rows = example_class or examples_class, examples_list_filepath or examples_filepath
    if kind is None or rows is None:
        raise ArgumentTypeError("example_class and examples_list_filepath are required; pass both")
    counts = generate_and_save_train_eval_test_tfrecords_files_for_examples(
        save_directory_path,
        _examples_of(kind, rows, kwargs),
        examples_train_eval_test_ratio,
        True,
        examples_tfrecord_file_max_size_in_bytes,
        examples_log_in_csv_file,
        examples_shuffle_seed=examples_shuffle_seed,
        examples_concurrency=examples_concurrency,
        **kwargs,
    )
    config = config_of(
        kind,
        rows,
        examples_train_eval_test_ratio,
        examples_tfrecord_file_max_size_in_bytes,
        examples_log_in_csv_file,
        counts,
        kwargs,
    )
    write_file(join(fspath(save_directory_path), CONFIG_FILENAME), config.encode("utf-8"))
    return counts


def generate_and_save_tfrecords_files_for_examples_dict(
    save_directory_path: Path,
    examples_dict: Mapping[str, Sequence[DeclaredExample]],
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    *,
    examples_concurrency: int = 1,
    **kwargs: Any,
) -> dict[str, int]:
    """Write each list of examples, such as a fold, to the folder named by its key.

    A list may be empty, and the same example may be in several lists.

    Args:
        examples_log_in_csv_file: whether to also write ``examples.csv``, with a row for each example, to each folder.
        examples_concurrency: the number of examples whose methods are called concurrently, in threads; 1 calls them in
            the caller's thread.

    Returns:
        The number of examples in each list.

    Raises:
        Exception: the error of an example's method, with a note that names the method and the example. The folders are
            unchanged.
        StorageError: a store failed. The folders are unchanged unless a note says otherwise.
    """
    write_examples(
        save_directory_path,
        examples_dict,
        max_bytes=examples_tfrecord_file_max_size_in_bytes,
        csv=examples_log_in_csv_file,
        concurrency=examples_concurrency,
        kwargs=kwargs,
    )
    return {name: len(examples) for name, examples in examples_dict.items()}


def generate_and_save_train_eval_test_tfrecords_files_for_examples(
    save_directory_path: Path,
    examples: Sequence[DeclaredExample],
    examples_train_eval_test_ratio: Ratio = 0.8,
    examples_shuffle: bool = True,
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    *,
    examples_shuffle_seed: int | None = None,
    **kwargs: Any,
) -> dict[str, int]:
    """Split examples as `split_examples_list` does, and write the splits as `..._for_examples_dict` does.

    As in TFRecorder, a list of examples is shuffled in place with ``random.shuffle``; ``random.seed`` or
    ``examples_shuffle_seed`` makes the order reproducible. If the ratios produce no test split, the test split of an
    earlier run is kept, and a warning is logged.
    """
    examples = examples if isinstance(examples, list) else list(examples)
    if examples_shuffle:
        source = random if examples_shuffle_seed is None else random.Random(examples_shuffle_seed)
        source.shuffle(examples)
    split = zip(_SPLITS, split_examples_list(examples, examples_train_eval_test_ratio), strict=True)
    splits = {name: part for name, part in split if part is not None}
    if "test" not in splits:
        _tell_of_an_old_test_split(save_directory_path)
    return generate_and_save_tfrecords_files_for_examples_dict(
        save_directory_path, splits, examples_tfrecord_file_max_size_in_bytes, examples_log_in_csv_file, **kwargs
    )


def split_examples_list(
    examples: Sequence[E], examples_train_eval_test_ratio: Ratio
) -> tuple[Sequence[E], Sequence[E], Sequence[E] | None]:
    """Split examples, in order, into train, eval and test. Test is `None` if it is empty.

    A single ratio is for train, and eval gets the rest. Two ratios are for train and eval, three for train, eval and
    test. Sizes are rounded down, and the last split gets the rest.

    Raises:
        ValueError: there are more than three ratios, or they do not sum to 1 within rounding.
    """
    given = examples_train_eval_test_ratio
    ratios = list(given) if isinstance(given, Sequence) else [given]
    if not 1 <= len(ratios) <= 3:
        raise ArgumentValueError(f"There should be only 3 ratios for train, test and eval, not {ratios}.")
    if len(ratios) > 1 and not math.isclose(math.fsum(ratios), 1, abs_tol=1e-6):
        raise ArgumentValueError(f"Train, eval, test ratio shall sum up to 1.0 (found {math.fsum(ratios):g}).")
    train = int(len(examples) * ratios[0])
    end = train + int(len(examples) * ratios[1]) if len(ratios) == 3 else len(examples)
    return examples[:train], examples[train:end], examples[end:] or None


def generate_and_save_tfrecords_files_for_examples_files_dict(
    save_directory_path: Path,
    example_class: type[DeclaredExample],
    examples_filepaths_dict: Mapping[str, Path],
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    *,
    examples_concurrency: int = 1,
    **kwargs: Any,
) -> dict[str, int]:
    """Write the examples of each CSV file to the folder named by its key, as `..._for_examples_dict` does."""
    return generate_and_save_tfrecords_files_for_examples_dict(
        save_directory_path,
        {name: _examples_of(example_class, path, kwargs) for name, path in examples_filepaths_dict.items()},
        examples_tfrecord_file_max_size_in_bytes,
        examples_log_in_csv_file,
        examples_concurrency=examples_concurrency,
        **kwargs,
    )


def generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
    save_directory_path: Path,
    example_class: type[DeclaredExample],
    train_examples_filepath: Path,
    eval_examples_filepath: Path,
    test_examples_filepath: Path | None = None,
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    **kwargs: Any,
) -> dict[str, int]:
    """Write train, eval and test splits from one CSV file each."""
    given = zip(_SPLITS, (train_examples_filepath, eval_examples_filepath, test_examples_filepath), strict=True)
    return generate_and_save_tfrecords_files_for_examples_files_dict(
        save_directory_path,
        example_class,
        {name: path for name, path in given if path},
        examples_tfrecord_file_max_size_in_bytes,
        examples_log_in_csv_file,
        **kwargs,
    )


def generate_and_save_tfrecords_files_for_examples_file(
    save_directory_path: Path,
    example_class: type[DeclaredExample],
    examples_filepath: Path,
    examples_tfrecord_file_max_size_in_bytes: float = _MAX_BYTES,
    examples_log_in_csv_file: bool = True,
    *,
    examples_concurrency: int = 1,
    **kwargs: Any,
) -> int:
    """Write the examples of one CSV file to one folder, without a split. Return the number of examples."""
    examples = _examples_of(example_class, examples_filepath, kwargs)
    write_examples(
        save_directory_path,
        {"": examples},
        max_bytes=examples_tfrecord_file_max_size_in_bytes,
        csv=examples_log_in_csv_file,
        concurrency=examples_concurrency,
        kwargs=kwargs,
    )
    return len(examples)


def _examples_of(kind: type[DeclaredExample], path: Path, kwargs: Mapping[str, Any]) -> list[Any]:
    """Read examples with ``from_csv_file``, which their class may override."""
    if issubclass(kind, Example):
        return kind.from_csv_file(path, **kwargs)
    return read_examples(kind, path, **kwargs)


def _tell_of_an_old_test_split(save_directory_path: Path) -> None:
    folder = join(fspath(save_directory_path), "test")
    try:
        found = get_tfrecord_filepaths(folder)
    except NoDirectoryError:
        return
    if found:
        logger.warning(
            "%s holds a split of an earlier partition that these ratios do not write. It was kept, so its examples "
            "may now be in two splits; delete it if you do not need it",
            folder,
        )
