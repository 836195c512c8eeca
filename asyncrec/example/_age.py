"""`Age` tells by a feature which of several versions of a record is the newest. Pure."""

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

# What a value takes at most: a number, or a time as text.
_VALUE_BYTES = 32
AGE_BYTES = _VALUE_BYTES + 1
# By the argument that names the feature.
_NEEDED = {
    "newest": "to find the newest version, name a feature with one number, or one text, in each record",
    "sort_by": "to sort records, name a feature with one number, or one text, in each record",
}


class Age:
    """The feature that tells which version of a record is newer: the one with the larger value.

    Args:
        name: of the feature.
        schema: of the data set, as its ``to_json`` returns it; `None` if the data set has no schema.
        path: of the records, for messages.
        argument: what named the feature, ``"newest"`` or ``"sort_by"``, for messages.

    Raises:
        TypeError: the name is not a text.
        ValueError: the schema has no such feature, or its values have no order.
    """

    def __init__(self, name: str, schema: Mapping[str, Any] | None, path: str, *, argument: str = "newest") -> None:
        self._needed = _NEEDED[argument]
        if not isinstance(name, str):
            raise ArgumentTypeError(f"{argument} must be the name of a feature, not {type(name).__name__}")
        if not name:
            raise ArgumentValueError(f"{argument} is empty; {self._needed}")
        self.name = name
        self._path = path
        self._kind = NONE  # of its values
        self._known = features_of(schema)
        self._seen: dict[str, None] = {}  # without a schema, the features of the records
        if self._known is not None and name not in self._known:
            raise unknown_feature(name, self._known, path)
        if problem := _problem_declared(name, schema):
            raise ArgumentValueError(
                f"{path}: the values of the feature {name!r} have no order: the schema says {problem}; {self._needed}"
            )

    def of(self, features: Mapping[str, Raw]) -> bytes:
        """The value in a record as `AGE_BYTES` bytes at most that sort as it does.

        Nothing, which sorts first, stands for a record that lacks the feature, and for a value that is not a number.

        Raises:
            ValueError: it has several values, or a long text; or another record has a value of another type.
        """
        value = self.value(features)
        if value is None:
            return b""
        if len(value) > _VALUE_BYTES:
            raise ArgumentValueError(
                f"{self._path}: the feature {self.name!r} has a text of {len(value):,} bytes; {self._needed}, of "
                f"at most {_VALUE_BYTES} bytes"
            )
        # The length behind it: of "a" and "a\0", which NumPy takes for the same, the shorter one is less.
        return value.ljust(_VALUE_BYTES, b"\0") + bytes([len(value) + 1])

    def value(self, features: Mapping[str, Raw]) -> bytes | None:
        """The value in a record as bytes that sort as it does, however long; `None` if `of` gives nothing.

        Raises:
            ValueError: it has several values; or another record has a value of another type.
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
        """Say that all records were looked at, or all ``among`` them that matter.

        Raises:
            ValueError: without a schema, none of them had the feature.
        """
        if self._known is None and self.name not in self._seen:
            raise unknown_feature(self.name, self._seen, f"{self._path}{among}")


def _problem_declared(name: str, schema: Mapping[str, Any] | None) -> str:
    """Say why a feature has no order: a schema says that it is an array, or a part of one; ``""`` if it has."""
    try:
        entries = {} if schema is None else Schema.from_json(schema).features
    except SchemaError:
        return ""
    stored = [feature for each, entry in entries.items() for feature in entry.stored(each)]
    entry = entries.get(name)
    if name not in stored and entry is None:
        return ""
    if isinstance(entry, VarLen):  # which is what an optional feature is
        return ""
    if isinstance(entry, FixedLen) and not entry.raw and math.prod(entry.shape) == 1:
        return ""
    what = type(entry).__name__ if entry is not None else "part of an array"
    return what + (f" of the shape {entry.shape}" if isinstance(entry, FixedLen) else "")
