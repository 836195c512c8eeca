"""The types of a schema's features, and their conversion to and from the types of the format.

An Example stores int64, float (32 bits) and bytes. Other types are converted: bool and the other integers are stored
as int64, float16 and float64 as float, and str as UTF-8. On reading, each value is checked against the type's range.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec.errors import SchemaError
from asyncrec.example._wire import BYTES, FLOAT, INT64

Array: TypeAlias = npt.NDArray[Any]

_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("float16", "float32", "float64")
_KINDS = {
    "bool": INT64,
    **dict.fromkeys(_INTEGERS, INT64),
    **dict.fromkeys(_FLOATS, FLOAT),
    "bytes": BYTES,
    "str": BYTES,
}


class Misfit(Exception):
    """Raised if record ``row`` of the batch does not match the schema. `Schema` turns this error into a SchemaError."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row
        self.reason = reason


def dtype_name(dtype: object) -> str:
    """Return the name of a dtype, passed as a name, a NumPy type, bytes or str. Raises SchemaError for other values."""
    if dtype in (bytes, str):
        return "bytes" if dtype is bytes else "str"
    try:
        name = dtype if isinstance(dtype, str) and dtype in _KINDS else np.dtype(dtype).name  # type: ignore[call-overload]  # raises TypeError if it is not a type
    except (TypeError, ValueError, SyntaxError):  # NumPy parses text, and raises the errors of Python's parser
        name = None
    if name not in _KINDS:
        raise SchemaError(f"{dtype!r} is not a valid dtype; the dtypes are {', '.join(_KINDS)}")
    return str(name)


def kind_of(dtype: str) -> int:
    """Return the kind of a feature that stores values of this type."""
    return _KINDS[dtype]


def common_dtype(one: str, other: str) -> str | None:
    """Return the smallest type of the same kind that can represent the values of both types, or `None` if none can."""
    if one == other:
        return one
    pair = {one, other}
    if pair == {"bytes", "str"}:
        return "bytes"
    if pair <= {*_INTEGERS} or pair <= {*_FLOATS}:
        name = np.promote_types(one, other).name
        return name if _KINDS[name] == _KINDS[one] else None  # int64 and uint64 have only float64 in common
    return None


def cast(flat: Any, dtype: str, counts: npt.NDArray[np.int64]) -> Array:
    """Return a column's values as an array of this type. ``counts`` is used to find the row for a Misfit."""
    if dtype == "bytes":
        return _objects(flat)
    if dtype == "str":
        return _objects([_text(value, index, counts) for index, value in enumerate(flat)])
    if flat.dtype.name == dtype:
        return flat  # type: ignore[no-any-return]  # an array, because only bytes are a list
    with np.errstate(over="ignore"):  # the comparison below finds values that become infinite
        values: Array = flat.astype(dtype)
    back = values.astype(flat.dtype)
    wrong = (back != flat) & (flat == flat) if dtype in _FLOATS else back != flat  # NaN stays NaN
    if dtype == "uint64":
        wrong |= flat < 0
    if wrong.any():
        index = int(np.argmax(wrong))
        raise Misfit(_row_of(index, counts), f"{flat[index].item()!r} is not a valid {dtype}")
    return values


def raw_array(values: Sequence[bytes], dtype: str) -> Array:
    """Return a new, flat, writable array from the concatenated little-endian bytes."""
    little = np.dtype(dtype).newbyteorder("<")
    flat = np.frombuffer(bytearray().join(values), np.uint8 if dtype == "bool" else little)
    return flat.astype(dtype, copy=False)


def default_array(default: object, shape: tuple[int, ...], dtype: str) -> Array:
    """Return a default as an array of this type, broadcast to the shape. Raises SchemaError if it does not fit."""
    wanted = {"bytes": bytes, "str": str}.get(dtype)
    try:
        array = np.broadcast_to(np.asarray(default, dtype=object if wanted else None), shape)
    except ValueError:
        raise SchemaError(f"the default {default!r} does not have the shape {shape}") from None
    if wanted:
        fits = all(isinstance(value, wanted) for value in array.reshape(-1).tolist())
        values = array
    else:
        numeric = {"bool": "b", **dict.fromkeys(_FLOATS, "iuf")}.get(dtype, "iu")
        fits = array.dtype.kind in numeric
        with np.errstate(all="ignore"):  # the comparison below finds values that do not fit
            values = array.astype(dtype) if fits else array
        if fits and (kind_of(dtype) == INT64 or array.dtype.kind in "iu"):
            fits = values.tolist() == array.tolist()
        elif fits:
            fits = not (np.isinf(values) & ~np.isinf(array)).any()
    if not fits:
        raise SchemaError(f"the default {default!r} is not a valid {dtype}")
    return np.array(values)


def plain(value: Any) -> Any:
    """Return a default as a JSON value. Bytes become base64, and floats that JSON cannot represent become text."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)  # nan, inf or -inf, which float() parses
    return value


def from_plain(value: Any, dtype: str) -> Any:
    """Return the default for which `plain` returned ``value``."""
    if isinstance(value, list):
        return [from_plain(item, dtype) for item in value]
    if dtype == "bytes":
        return base64.b64decode(value, validate=True)
    return float(value) if isinstance(value, str) and dtype in _FLOATS else value


def _objects(values: Sequence[object]) -> Array:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def _text(value: bytes, index: int, counts: npt.NDArray[np.int64]) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Misfit(_row_of(index, counts), f'{value[:40]!r} is not UTF-8; declare the feature as "bytes"') from None


def _row_of(index: int, counts: npt.NDArray[np.int64]) -> int:
    """Return the row of the value with this index among all values."""
    return int(np.searchsorted(np.cumsum(np.maximum(counts, 0)), index, "right"))
