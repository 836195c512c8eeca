"""``@tfrecordable`` and the field types that it accepts, which have the same numbers as in TFRecorder."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

from asyncrec.errors import ArgumentTypeError
from asyncrec.example._fields import FieldType, Recordable
from asyncrec.example._fields import tfrecordable as declare

__all__ = ["NATIVE", "Field", "tfrecordable"]


class Field(enum.IntEnum):
    """The types of a field's values, with TFRecorder's own numbers. asyncrec adds only TYPE_BYTES."""

    TYPE_BOOL = 8
    TYPE_INT32 = 5
    TYPE_INT64 = 3
    TYPE_FLOAT = 2
    TYPE_DOUBLE = 2
    TYPE_STRING = 9
    TYPE_ARRAY_FLOAT32 = 12
    TYPE_ARRAY_INT32 = 121
    TYPE_BYTES = 1012


NATIVE = {field: FieldType[field.name] for field in Field}


def tfrecordable(dtype: int) -> Callable[[Callable[[Any], Any]], Recordable]:
    """Declare a property that is stored as ``dtype``, a member of ``Example.Field``.

    Raises TypeError if ``dtype`` is not a member.
    """
    if isinstance(dtype, FieldType):  # a type of asyncrec.example.DeclaredExample
        return declare(dtype=FieldType.TYPE_FLOAT if dtype == FieldType.TYPE_DOUBLE else dtype)
    try:
        return declare(dtype=NATIVE[Field(dtype)])
    except ValueError:
        raise ArgumentTypeError(f"dtype={dtype!r}: must be a member of Example.Field") from None
