"""A check that writing and reading examples does not change their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from asyncrec.compat.tfrecorder.helpers.marshaller import Example

__all__ = ["assert_example_serialize_deserialize_is_ok"]


def assert_example_serialize_deserialize_is_ok(
    example: Example | Sequence[Example], tfrecords_files_max_size_in_bytes: float = 1e6, **kwargs: Any
) -> bool:
    """Load and split each example, and check that encoding and decoding its parts preserves their values.

    No file is written. Arrays are compared without their shapes.

    Raises:
        AssertionError: an attribute differs. The message names the attribute and both values.
        FieldError: a value does not fit its field.
    """
    for each in [example] if isinstance(example, Example) else example:
        each.load(**kwargs)
        parts: Any = each.split(**kwargs)
        for part in parts:
            for name, read in zip(part.fields(), part.decode(part.serialize_to_string()), strict=True):
                given = getattr(part, name)
                if not _same(given, read):
                    raise AssertionError(
                        f"Attribute {name} has different values in example and protobuf ({given!r} vs. {read!r})."
                    )
    return True


def _same(given: Any, read: Any) -> bool:
    if isinstance(given, np.ndarray):
        return bool(np.array_equal(given.reshape(-1), read, equal_nan=given.dtype.kind == "f"))
    if isinstance(given, float | np.floating):
        return bool(np.array_equal(np.float32(given), np.float32(read), equal_nan=True))
    return bool(given == read)
