"""Convert Python and NumPy values to the kind and payload of a Feature (see `_wire`).

    bool, int, np.bool_, np.integer               int64
    float, np.floating (including bfloat16)       float (32 bits, the only size the format has)
    str (as UTF-8), bytes, bytearray, memoryview  bytes
    list or tuple of one of these                 that kind; an empty list has no kind, and is read as an empty feature
    ndarray, of any of these or of objects        that kind, in C order, regardless of strides and byte order
    an object with __array__ (tensor, column)     as that array

64-bit floats are rounded to the format's 32 bits, as by every TFRecord writer. Integers in a list of floats become
floats. With ``narrow=False``, an array or NumPy scalar that rounding would change is rejected, and so is a list that
mixes integers and floats. A Python float is always rounded, because Python has no smaller float type.

A value that no feature can represent is always rejected, with a SchemaError that states the reason. Examples are an
integer outside int64, a finite number that would become infinite, a list of several kinds, None, a nested list, a date
and a complex number. A list cannot mix bool and int, or str and bytes, because one would be read as the other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec.errors import SchemaError
from asyncrec.example._varints import varint, varints
from asyncrec.example._wire import BYTES, FLOAT, INT64, NONE, Raw

Array: TypeAlias = npt.NDArray[Any]

_FLOAT32 = np.dtype("<f4")
_SINGLE = struct.Struct("<f").pack
_LARGEST = float(np.finfo(np.float32).max)


def raw_of(value: object, narrow: bool = True) -> Raw:
    """Return the kind and payload of ``value``. With ``narrow``, float64 arrays are rounded to float32.

    Raises SchemaError, without naming the feature, if no feature can represent the value or, unless ``narrow``, if
    rounding would change it.
    """
    convert = CONVERTERS.get(type(value))
    return convert(value, narrow) if convert is not None else _of_subclass(value, narrow)


def _bool(value: Any, narrow: bool) -> Raw:
    return INT64, varint(bool(value))


def _int(value: Any, narrow: bool) -> Raw:
    if 0 <= value < 0x4000:  # usually a label, which needs no check and no loop
        return INT64, varint(value)
    _check_int64(value, value)
    return INT64, varint(int(value) & 0xFFFF_FFFF_FFFF_FFFF)


def _float(value: Any, narrow: bool) -> Raw:
    try:
        return FLOAT, _SINGLE(value)
    except OverflowError:
        raise SchemaError(f"{value!r} is out of range for float32") from None


def _str(value: Any, narrow: bool) -> Raw:
    return BYTES, [_utf8(value)]


def _bytes(value: Any, narrow: bool) -> Raw:
    return BYTES, [value]


def _buffer(value: Any, narrow: bool) -> Raw:
    return BYTES, [bytes(value)]


def _none(value: Any, narrow: bool) -> Raw:
    raise SchemaError("the value is None; leave the feature out, or pass a value")


def _list(value: Any, narrow: bool) -> Raw:
    if not value:
        return NONE, b""
    if type(value[0]) is float and not [item for item in value if type(item) is not float]:
        return FLOAT, _packed(value)
    types = set(map(type, value))
    if types == {bytes}:
        return BYTES, list(value)
    return _list_of(value, types, narrow)


def _packed(floats: Sequence[float]) -> bytes:
    try:
        return struct.pack(f"<{len(floats)}f", *floats)
    except OverflowError:
        beyond = next(value for value in floats if math.isfinite(value) and abs(value) > _LARGEST)
        raise SchemaError(f"{beyond!r} is out of range for float32") from None


def _list_of(values: Sequence[Any], types: set[type], narrow: bool) -> Raw:
    families = {_family(values, kind) for kind in types}
    if narrow and families == {"int", "float"}:
        families = {"float"}
    if len(families) > 1:
        names = " and ".join(sorted(kind.__name__ for kind in types))
        raise SchemaError(f"the list mixes {names}; use values of one type, or an array")
    (family,) = families
    if family == "str":
        return BYTES, [_utf8(value) for value in values]
    if family == "bytes":
        return BYTES, [bytes(value) for value in values]
    if family == "int":
        _check_int64(min(values), max(values))
        return INT64, varints(np.array(values, np.int64))
    if family == "bool":
        return INT64, bytes(map(bool, values))
    if not narrow and any(isinstance(value, np.generic) for value in values):
        return _array(np.array(values), narrow)
    return FLOAT, _packed([_float_of(value) for value in values])


def _float_of(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:
        raise SchemaError(f"an integer of {value.bit_length()} bits is out of range for float32") from None


def _family(values: Sequence[Any], kind: type) -> str:
    """Return the family of a type. A list may mix types of the same family."""
    for family, members in _FAMILIES:
        if issubclass(kind, members):
            return family
    index = next(index for index, value in enumerate(values) if type(value) is kind)
    if issubclass(kind, list | tuple | np.ndarray):
        raise SchemaError(
            f"the list is nested (value {index} is a {kind.__name__}); pass an array, or flatten the list"
        )
    raise SchemaError(f"value {index} of the list is {'None' if values[index] is None else 'a ' + kind.__name__}")


def _array(array: Array, narrow: bool) -> Raw:
    dtype = array.dtype
    if dtype is _FLOAT32:
        return FLOAT, array.tobytes()
    if dtype.kind == "b":
        return INT64, array.astype(np.uint8).tobytes()
    if dtype.kind in "iu":
        if dtype.itemsize == 8 and dtype.kind == "u" and array.size:
            _check_int64(0, int(array.max()))
        return INT64, varints(array)
    if dtype.kind == "f":
        return FLOAT, _float32(array, narrow).tobytes()
    if dtype.name.startswith(("bfloat16", "float8")):  # from ml_dtypes; float32 represents all their values
        return FLOAT, array.astype(_FLOAT32).tobytes()
    if dtype.kind in "SUT":
        return BYTES, [_utf8(text) if isinstance(text, str) else text for text in array.reshape(-1).tolist()]
    if dtype.kind == "O":
        raw = _list(array.reshape(-1).tolist(), narrow)
        return (BYTES, []) if raw[0] == NONE else raw
    raise SchemaError(f"the value is an array of {dtype.name}; a feature must hold integers, floats or bytes")


def _float32(array: Array, narrow: bool) -> Array:
    # Values that become infinite are rejected below. A signaling NaN stays a NaN.
    with np.errstate(over="ignore", invalid="ignore"):
        narrowed = array.astype(_FLOAT32)
    if array.dtype.itemsize <= 4:
        return narrowed
    beyond = np.isinf(narrowed)
    if beyond.any():
        beyond &= ~np.isinf(array)
        if beyond.any():
            first = array[beyond].reshape(-1)[0]
            raise SchemaError(
                f"the array of {array.dtype.name} contains values that are out of range for float32, such as {first!r}"
            )
    if not narrow:
        changed = (narrowed != array) & ~np.isnan(array)
        if changed.any():
            first = array[changed].reshape(-1)[0]
            raise SchemaError(
                f"the array of {array.dtype.name} contains values that float32 cannot represent exactly, such as "
                f"{first!r}; omit narrow=False to round them, or pass a float32 array"
            )
    return narrowed


def _of_subclass(value: object, narrow: bool) -> Raw:
    """Convert a value whose type is not in `CONVERTERS`, such as a NumPy scalar or an instance of a subclass."""
    if isinstance(value, np.generic) and not isinstance(value, bytes | str):
        return _array(np.asarray(value), narrow)
    if isinstance(value, np.ma.MaskedArray):
        raise SchemaError("the value is a masked array; fill its masked values first")
    for known, convert in CONVERTERS.items():
        if isinstance(value, known):
            return convert(value, narrow)
    if isinstance(value, dict):
        raise SchemaError('the value is a dict; pass each of its values under its own name, such as "outer/inner"')
    if callable(getattr(value, "__array__", None)) and not isinstance(value, type):  # a tensor, a column of a table
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, RuntimeError) as error:
            raise SchemaError(f"a {type(value).__name__}; {unreadable(error)}") from None
        return _array(array, narrow)
    raise SchemaError(
        f"the value is a {type(value).__name__}; a feature must hold integers, floats or bytes, as one value, a "
        "list or an array"
    )


def unreadable(error: Exception) -> str:
    """Return a message for a tensor that NumPy cannot read because, for example, it requires gradients."""
    return f"NumPy cannot read it ({error}): convert it to a NumPy array first"


def _check_int64(smallest: int, largest: int) -> None:
    if smallest < -(1 << 63) or largest >= 1 << 63:
        raise SchemaError(f"{smallest if smallest < -(1 << 63) else largest} is out of range for int64")


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise SchemaError(f"the text cannot be encoded as UTF-8 (position {error.start}); pass bytes instead") from None


# A value of any other type is tried as an instance of each of these in order, so bool comes before its base class int.
CONVERTERS: dict[type, Callable[[Any, bool], Raw]] = {
    bool: _bool,
    int: _int,
    float: _float,
    str: _str,
    bytes: _bytes,
    np.ndarray: _array,
    list: _list,
    tuple: _list,
    bytearray: _buffer,
    memoryview: _buffer,
    type(None): _none,
}
_FAMILIES: tuple[tuple[str, tuple[type, ...]], ...] = (
    ("bool", (bool, np.bool_)),
    ("int", (int, np.integer)),
    ("str", (str,)),
    ("bytes", (bytes, bytearray, memoryview)),
    ("float", (float, np.floating)),
)
