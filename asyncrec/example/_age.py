"""`Age` uses a feature to determine which of several versions of a record is the newest. It does no I/O."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from asyncrec.errors import ArgumentTypeError, ArgumentValueError, SchemaError
from asyncrec.example._by_name import features_of, unknown_feature, values_of
from asyncrec.example._kinds import FixedLen, VarLen
from asyncrec.example._schema import Schema
from asyncrec.example._wire import BYTES, INT64, NONE, Raw

# The maximum size of a value: a number, or a time as text.
_VALUE_BYTES = 32
AGE_BYTES = _VALUE_BYTES + 1
# The advice in error messages, by the argument that names the feature.
_NEEDED = {
    "newest": "to find the newest version, name a feature with one number or string in each record",
    "sort_by": "to sort records, name a feature with one number or string in each record",
}


class Age:
    """The feature by which versions of a record are compared. The version with the larger value is newer.

    Args:
        name: the name of the feature.
        schema: the schema of the data set, as ``to_json`` returns it, or `None` if the data set has no schema.
        path: the path of the records, for error messages.
        argument: the argument that named the feature, ``"newest"`` or ``"sort_by"``, for error messages.

    Raises:
        TypeError: the name is not a str.
        ValueError: the name is empty, the schema has no such feature, or the feature's values cannot be ordered.
    """

    def __init__(self, name: str, schema: Mapping[str, Any] | None, path: str, *, argument: str = "newest") -> None:
        self._needed = _NEEDED[argument]
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{argument} must be the name of a feature, not {type(name).__name__}")
        if not name:
            raise ArgumentValueError(f"{argument} is empty; {self._needed}")
        self.name = name
        self._path = path
        self._kind = NONE  # the kind of the feature's values
        self._known = features_of(schema)
        self._seen: dict[str, None] = {}  # without a schema, the features seen in the records
        if self._known is not None and name not in self._known:
            raise unknown_feature(name, self._known, path)
        if problem := _problem_declared(name, schema):
            raise ArgumentValueError(
                f"{path}: the values of the feature {name!r} have no order: the schema says {problem}; {self._needed}"
            )

    def of(self, features: Mapping[str, Raw]) -> bytes:
        """Return a record's value as at most `AGE_BYTES` bytes, which sort in the order of the values.

        For a record without the feature, and for NaN, return ``b""``, which sorts first.

        Raises:
            ValueError: the record has several values or a long text, or an earlier record has a value of another type.
        """
        value = self.value(features)
        if value is None:
            return b""
        if len(value) > _VALUE_BYTES:
            raise ArgumentValueError(
                f"{self._path}: the feature {self.name!r} has a string of {len(value):,} bytes; {self._needed}, of "
                f"at most {_VALUE_BYTES} bytes"
            )
        # Append the length, so that "a" sorts before "a\0"; NumPy would consider the two equal.
        return value.ljust(_VALUE_BYTES, b"\0") + bytes([len(value) + 1])

    def value(self, features: Mapping[str, Raw]) -> bytes | None:
        """Return a record's value as bytes of any length, which sort in the order of the values.

        For a record without the feature, and for NaN, return `None`.

        Raises:
            ValueError: the record has several values, or an earlier record has a value of another type.
        """
        if self._known is None:
            self._seen.update(dict.fromkeys(features))
        kind, payload = features.get(self.name, (NONE, b""))
        values = () if kind == NONE else values_of(kind, payload)
        if len(values) > 1:
            raise ArgumentValueError(
                f"{self._path}: the feature {self.name!r} has {len(values):,} values in a record; {self._needed}"
            )
        if not len(values) or values[0] != values[0]:
            return None
        if self._kind not in (NONE, kind):
            raise ArgumentValueError(
                f"{self._path}: the feature {self.name!r} has values of different types in the records, so they have "
                f"no order; {self._needed}"
            )
        self._kind = kind
        if kind == BYTES:
            return bytes(values[0])
        if kind == INT64:
            return struct.pack(">Q", values[0] + (1 << 63))
        (bits,) = struct.unpack(">Q", struct.pack(">d", values[0] + 0.0))
        return struct.pack(">Q", bits ^ ((1 << 64) - 1 if bits >> 63 else 1 << 63))

    def end(self, among: str = "") -> None:
        """Check, after the last record, that the feature exists. ``among`` describes the records in the message.

        Raises:
            ValueError: the data set has no schema, and no record had the feature.
        """
        if self._known is None and self.name not in self._seen:
            raise unknown_feature(self.name, self._seen, f"{self._path}{among}")


def _problem_declared(name: str, schema: Mapping[str, Any] | None) -> str:
    """Return a description of the feature if it cannot be ordered (an array or part of one); otherwise, ``""``."""
    try:
        entries = {} if schema is None else Schema.from_json(schema).features
    except SchemaError:
        return ""
    stored = [feature for each, entry in entries.items() for feature in entry.stored(each)]
    entry = entries.get(name)
    if name not in stored and entry is None:
        return ""
    if isinstance(entry, VarLen):  # a VarLen may be an optional feature with one value
        return ""
    if isinstance(entry, FixedLen) and not entry.raw and math.prod(entry.shape) == 1:
        return ""
    what = type(entry).__name__ if entry is not None else "part of an array"
    return what + (f" of the shape {entry.shape}" if isinstance(entry, FixedLen) else "")
