"""``tfrecord_files_config.txt``: the arguments of a run of TFRecorder's factory, in the format of `configparser`."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Mapping
from configparser import ConfigParser
from os import PathLike, fspath
from typing import Any

from asyncrec.storage._url import redact

__all__ = ["CONFIG_FILENAME", "config_of"]

CONFIG_FILENAME = "tfrecord_files_config.txt"


def config_of(
    example_class: type,
    examples_filepath: str | PathLike[str],
    ratio: object,
    max_size_in_bytes: float,
    log_in_csv_file: bool,
    counts: Mapping[str, int],
    kwargs: Mapping[str, Any],
) -> str:
    """Return the text of the file. The examples' keyword arguments come first. Paths are absolute; lists are JSON."""
    values = {name.replace("examples_", ""): _shown(name, value) for name, value in kwargs.items()}
    values |= {
        "class_name": example_class.__name__,
        "list_filepath": _absolute(fspath(examples_filepath)),
        "train_eval_test_ratio": str(ratio),
        "tfrecord_file_max_size_in_mb": f"{max_size_in_bytes / 1e6:.2e}",
        "log_in_csv_file": str(log_in_csv_file),
    }
    values |= {f"{name}_count": str(count) for name, count in counts.items()}
    config = ConfigParser()
    # In this format, "%" begins an interpolation, so a percent sign is written as "%%".
    config.read_dict({"examples": {name: value.replace("%", "%%") for name, value in values.items()}})
    text = io.StringIO()
    config.write(text)
    return text.getvalue()


def _shown(name: str, value: Any) -> str:
    if isinstance(value, list):
        try:
            value = json.dumps(value)
        except TypeError:  # a value that JSON cannot represent
            value = str(value)
    return _absolute(fspath(value)) if "path" in name and isinstance(value, str | PathLike) else str(value)


def _absolute(path: str) -> str:
    return redact(path) if "://" in path else os.path.abspath(path)
