"""The declared fields of a class: their types, the decorator, and the conversion of their values for storage."""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, Tensor


class FieldType(enum.IntEnum):
    """The type of a field. TYPE_BYTES is an addition to TFRecorder's types, which have none for bytes that are not
    text.
    """

    TYPE_BOOL = 1
    TYPE_INT32 = 2
    TYPE_INT64 = 3
    TYPE_FLOAT = 4
    TYPE_DOUBLE = 5
    TYPE_STRING = 6
    TYPE_ARRAY_FLOAT32 = 7
    TYPE_ARRAY_INT32 = 8
    TYPE_BYTES = 9


ENTRIES: dict[FieldType, Entry] = {
    FieldType.TYPE_BOOL: FixedLen((), "bool"),
    FieldType.TYPE_INT32: FixedLen((), "int32"),
    FieldType.TYPE_INT64: FixedLen((), "int64"),
    FieldType.TYPE_FLOAT: FixedLen((), "float32"),
    FieldType.TYPE_DOUBLE: FixedLen((), "float64", raw=True),
    FieldType.TYPE_STRING: FixedLen((), "str"),
    FieldType.TYPE_ARRAY_FLOAT32: Tensor("float32", raw=True),
    FieldType.TYPE_ARRAY_INT32: Tensor("int32", raw=True),
    FieldType.TYPE_BYTES: FixedLen((), "bytes"),
}
ARRAYS = {FieldType.TYPE_ARRAY_FLOAT32: np.dtype("<f4"), FieldType.TYPE_ARRAY_INT32: np.dtype("<i4")}
_EXACT = 1 << 24  # float32 can represent every integer up to this number
LARGE = {*ARRAYS, FieldType.TYPE_BYTES}  # fields that release() clears

Getter: TypeAlias = Callable[[Any], Any]


class Recordable(property):
    """A property whose value is part of the record. ``setter`` and ``deleter`` preserve its dtype and docstring."""

    def __init__(
        self,
        fget: Getter | None = None,
        fset: Callable[[Any, Any], None] | None = None,
        fdel: Callable[[Any], None] | None = None,
        doc: str | None = None,
        *,
        dtype: FieldType,
    ) -> None:
        super().__init__(fget, fset, fdel, doc)
        self.dtype = dtype

    def getter(self, fget: Getter) -> Recordable:
        return Recordable(fget, self.fset, self.fdel, dtype=self.dtype)

    def setter(self, fset: Callable[[Any, Any], None]) -> Recordable:
        return Recordable(self.fget, fset, self.fdel, self.__doc__, dtype=self.dtype)

    def deleter(self, fdel: Callable[[Any], None]) -> Recordable:
        return Recordable(self.fget, self.fset, fdel, self.__doc__, dtype=self.dtype)


def tfrecordable(*, dtype: int) -> Callable[[Getter], Recordable]:
    """Declare a property that is stored as ``dtype``, a member of ``DeclaredExample.Field``.

    Raises TypeError if ``dtype`` is not a member.
    """
    try:
        kind = FieldType(dtype)
    except ValueError:
        raise ArgumentTypeError(f"dtype={dtype!r}: must be a member of DeclaredExample.Field") from None
    return lambda fget: Recordable(fget, dtype=kind)


def stored(value: Any, dtype: FieldType) -> Any:
    """Convert a field's value for the encoder. Return an array as a tuple of its bytes and its shape."""
    if value is None:
        raise SchemaError("the value is None; set it in load()")
    if dtype in ARRAYS:
        return _array(value, ARRAYS[dtype])
    if dtype == FieldType.TYPE_BOOL:
        _expect(value, "a bool", bool, np.bool_)
        return bool(value)
    if dtype in (FieldType.TYPE_INT32, FieldType.TYPE_INT64):
        _expect(value, "an integer", int, np.integer)
        bits = 32 if dtype == FieldType.TYPE_INT32 else 64
        if not -(1 << bits - 1) <= int(value) < 1 << bits - 1:
            raise SchemaError(f"{value} is out of range for int{bits}")
        return int(value)
    if dtype in (FieldType.TYPE_FLOAT, FieldType.TYPE_DOUBLE):
        _expect(value, "a float", float, np.floating, int, np.integer)
        whole = isinstance(value, int | np.integer)
        value = int(value) if whole else value  # Python compares an int and a float exactly
        name, form = ("float32", "<f") if whole and dtype == FieldType.TYPE_FLOAT else ("float64", "<d")
        try:
            changed = struct.unpack(form, struct.pack(form, value))[0] != value and value == value
        except (OverflowError, struct.error):
            changed = True
        if changed:
            raise SchemaError(f"{value} cannot be stored exactly as {name}")
        return float(value) if dtype == FieldType.TYPE_FLOAT else struct.pack("<d", value)
    if dtype == FieldType.TYPE_STRING:
        _expect(value, "a str", str)
    else:
        _expect(value, "bytes", bytes, bytearray, memoryview)
    return value


def _expect(value: object, what: str, *types: type) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        raise SchemaError(f"expected {what}, not the {type(value).__name__} {value!r:.80}")


def _array(value: Any, dtype: np.dtype[Any]) -> tuple[bytes, Any]:
    if not isinstance(value, np.ndarray):
        raise SchemaError(f"expected an array, not a {type(value).__name__}; convert it with numpy.asarray")
    array = value
    if value.dtype != dtype:
        if value.dtype.kind not in ("iuf" if dtype.kind == "f" else "iu"):
            raise SchemaError(f"the value is an array of {value.dtype}, but the field is declared as {dtype.name}")
        with np.errstate(all="ignore"):  # the comparison below finds values that do not fit
            array = value.astype(dtype)
            if dtype.kind == value.dtype.kind == "f":
                changed = np.isinf(array) & ~np.isinf(value)  # rounding is allowed; see `_values`
            elif dtype.kind == "f":
                changed = (value > _EXACT) | (value < -_EXACT)
            else:
                changed = array != value
        if changed.any():
            raise SchemaError(
                f"the value is an array of {value.dtype}, but the field is declared as {dtype.name}. Converting it "
                f"would change the value {value[changed][0]!r} and {int(changed.sum()) - 1} more; if that is "
                f"intended, convert it with .astype(numpy.{dtype.name})"
            )
    return array.tobytes(), np.array(array.shape, np.int64)
