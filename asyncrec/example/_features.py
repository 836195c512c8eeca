"""The protobuf messages, and helpers that each return a Feature.

The messages are copies of tf.train's under asyncrec's own package name (see ``proto/example.proto``). They have the
same encoding as TensorFlow's, and one process can use both. The helpers, which are named as in TensorFlow's tutorial,
make the features of a message:

    Example(features=Features(feature={"label": int64_feature(3), "emb": float_list_feature(array)}))

``encode_example`` does the same without messages and is many times faster. Both convert values by the same rules (see
`_values`). An array is packed as a whole rather than element by element, and a value that would change raises a
SchemaError.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.example._codec import feature_bytes
from asyncrec.example._values import raw_of
from asyncrec.example._wire import BYTES, FLOAT, INT64, KINDS, NONE
from asyncrec.example.proto.example_pb2 import Feature


def int64_feature(value: object) -> Feature:
    """Return a Feature with an integer or bool. Raises SchemaError for other types and TypeError for several values."""
    return _feature(INT64, _one(value, "int64_list_feature"))


def bytes_feature(value: object) -> Feature:
    """Return a Feature with one bytes value, or a str as UTF-8.

    Raises SchemaError for other types and TypeError for several values.
    """
    return _feature(BYTES, _one(value, "bytes_list_feature"))


def int64_list_feature(values: object) -> Feature:
    """Return a Feature with the integers or bools of an array, in C order, or of any iterable.

    Raises SchemaError for values of other types.
    """
    return _feature(INT64, _several(values))


def bytes_list_feature(values: object) -> Feature:
    """Return a Feature with the bytes or str values (as UTF-8) of an array or any iterable.

    Raises SchemaError for values of other types.
    """
    return _feature(BYTES, _several(values))


def float_list_feature(values: object, *, narrow: bool = True) -> Feature:
    """Return a Feature with the numbers of an array, in C order, or of any iterable, rounded to float32.

    Floats and integers may be mixed. Raises SchemaError if a value would become infinite or has another type. With
    ``narrow=False``, also raises SchemaError if rounding would change a value of an array.
    """
    several = _several(values)
    if isinstance(several, list):
        several = [float(value) if type(value) is int else value for value in several]
    elif several.dtype.kind in "iu":
        several = _floats(several, narrow)
    return _feature(FLOAT, several, narrow)


def _floats(integers: np.ndarray[Any, Any], narrow: bool) -> np.ndarray[Any, Any]:
    floats = integers.astype(np.float32)
    # Compare Python numbers, because Python compares int and float exactly.
    if not narrow and floats.astype(object).tolist() != integers.astype(object).tolist():
        raise SchemaError(
            f"the array of {integers.dtype.name} contains integers that float32 cannot represent exactly; omit "
            "narrow=False to round them"
        )
    return floats


def _feature(kind: int, value: object, narrow: bool = True) -> Feature:
    found, payload = raw_of(value, narrow)
    if found == NONE:  # an empty list, which gets the kind of the helper
        found, payload = kind, [] if kind == BYTES else b""
    if found != kind:
        raise SchemaError(f"expected {KINDS[kind]}, not {KINDS[found]}: {value!r:.80}")
    return Feature.FromString(feature_bytes((found, payload)))


def _one(value: object, plural: str) -> object:
    if isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
        raise ArgumentTypeError(f"a {type(value).__name__} holds several values; use {plural}")
    return value


def _several(values: object) -> list[object] | np.ndarray[Any, Any]:
    if isinstance(values, np.ndarray):
        return values
    if isinstance(values, str | bytes | bytearray) or not isinstance(values, Iterable):
        raise ArgumentTypeError(f"expected a list of values or an array, not a single {type(values).__name__}")
    return list(values)
