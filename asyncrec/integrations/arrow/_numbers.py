"""Convert the numbers of a column to the type in which a record stores them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asyncrec.errors import SchemaError
from asyncrec.example._dtypes import kind_of
from asyncrec.example._wire import FLOAT

Array: TypeAlias = Any


def numbers_of(column: Array, dtype: str, *, narrow: bool = True, raw: bool = False) -> npt.NDArray[Any]:
    """Return the numbers of a column without nulls. Times are returned as integers.

    Args:
        column: an Arrow array of numbers, booleans or times.
        dtype: the type of the feature. A float64 is stored as float32 unless ``raw`` is true.
        narrow: whether floats may be rounded to the stored type. Integers must not change in any case.
        raw: whether the feature stores the bits of its type.

    Raises:
        SchemaError: a number would change, or become infinite; or the column does not hold numbers.
        ArrowException: an integer is out of range.
    """
    kind = column.type
    if pa.types.is_temporal(kind):
        column = column.view(pa.int32() if kind.bit_width == 32 else pa.int64())
    elif pa.types.is_boolean(kind) != (dtype == "bool") or str(kind).endswith(("string", "binary", "view")):
        raise SchemaError(f"its values have the type {kind}")
    if kind_of(dtype) != FLOAT:
        wanted = pa.bool_() if dtype == "bool" else pa.from_numpy_dtype(np.dtype(dtype))
        return _array(column.cast(wanted))
    stored = np.dtype("float32" if dtype == "float64" and not raw else dtype)
    whole = pa.types.is_integer(column.type)
    if not pa.types.is_floating(column.type):
        # This rejects an integer that would change.
        column = column.cast(pa.float64() if stored.itemsize == 8 else pa.float32())
    return _narrowed(_array(column), stored, rounds=narrow and not whole, whole=whole)


def little_endian(numbers: npt.NDArray[Any], dtype: str) -> bytes:
    """Return the bytes of numbers, as a raw feature stores them."""
    kind = np.dtype(np.uint8) if dtype == "bool" else np.dtype(dtype).newbyteorder("<")
    return numbers.astype(kind).tobytes()


def _array(column: Array) -> npt.NDArray[Any]:
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow has no types


def _narrowed(numbers: npt.NDArray[Any], stored: np.dtype[Any], *, rounds: bool, whole: bool) -> npt.NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):  # a signaling NaN stays a NaN
        narrowed = numbers.astype(stored, copy=False)
    if numbers.dtype.itemsize <= stored.itemsize:
        return narrowed
    beyond = np.isinf(narrowed) & ~np.isinf(numbers)
    if beyond.any():
        raise SchemaError(
            f"{numbers[int(np.argmax(beyond))].item()!r} is out of range for {stored}; scale the values, or use "
            "dtype='float64' with raw=True"
        )
    if not rounds:
        changed = (narrowed.astype(numbers.dtype) != numbers) & ~np.isnan(numbers)
        if changed.any():
            remedy = "cast the column to floats" if whole else "omit narrow=False"
            raise SchemaError(
                f"{numbers[int(np.argmax(changed))].item()!r} cannot be represented exactly as {stored}; {remedy} to "
                "round it, or use dtype='float64' with raw=True"
            )
    return narrowed
