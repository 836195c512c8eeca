"""Encode values as records according to a schema. Each value is checked against its entry and converted to features.

An `Encoder` is created once per schema, with one conversion function per feature. An entry accepts these values:

    FixedLen((), "bytes")      bytes, or text, which is stored as UTF-8
    FixedLen((), "str")        text
    FixedLen((), "bool")       True or False
    FixedLen((), an integer)   a whole number within the type's range
    FixedLen((), a float)      a float, or an integer that the stored type can represent
    FixedLen((), t)            also a zero-dimensional NumPy or JAX array of such a value
    FixedLen(shape, t)         an array or nested lists of that shape, with values as above
    VarLen(t)                  a list, a tuple or a one-dimensional array, of any length
    Tensor(t)                  an array of any shape
    Sparse(...)                SparseArrays of one record
    Sequence(entry)            a list of values that the entry accepts

A feature with a default may be omitted. The default is then stored, so readers without a schema see it. A VarLen, a
Sparse or a Sequence of VarLen may also be omitted, and then has no values. Passing `None` is the same as omitting the
feature. Floats are rounded to the format's 32 bits, unless the entry is raw.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any

import numpy as np

from asyncrec._native import native
from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.example._codec import Prepared, encode_prepared, encode_prepared_lists
from asyncrec.example._compound import Sequence, Sparse
from asyncrec.example._conversions import Convert, Unfit, converter, default_of, is_list, sparse, tensor, told
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._values import raw_of
from asyncrec.example._wire import Raw

# Copying this many bytes takes a few tenths of a millisecond.
_LARGE = 512 << 10
# The time to convert one value of a list, expressed as the number of bytes that can be copied in that time.
_PER_VALUE = 64
_NUMBERS = (int, float, np.number, np.bool_)
_TEXTS = (bytes, bytearray, str)
_LISTS = (list, tuple)
# NumPy arrays have at most this many dimensions, so deeper nesting is rejected.
_DEPTH = 64
_MISSING = object()
_ARRAY = np.ndarray
# For entries with one value, the Python type that the C code stores without further checks.
_EXACT = {"bytes": bytes, "str": str, "bool": bool, "int64": int, "float32": float, "float64": float}


class Encoder:
    """An immutable, thread-safe encoder of the records that a schema describes."""

    def __init__(self, features: Mapping[str, Entry], *, allow_extra: bool) -> None:
        self._features = features
        self._allow_extra = allow_extra
        self._sequences = {name: entry for name, entry in features.items() if isinstance(entry, Sequence)}
        # The entries stored as one feature, which are the fastest to encode. Most schemas have no others.
        self._plain: list[tuple[str, Convert, Raw | None]] = []
        self._compound: dict[str, Tensor | Sparse] = {}
        self._optional: set[str] = set()
        for name in sorted(features):
            entry = features[name]
            if isinstance(entry, Tensor | Sparse):
                self._compound[name] = entry
            elif isinstance(entry, FixedLen | VarLen):
                convert = converter(entry)
                default = getattr(entry, "default", None)
                if default is None and isinstance(entry, VarLen):
                    self._optional.add(name)
                self._plain.append((name, convert, None if default is None else convert(default_of(entry))))
        self._fast = not (self._compound or self._sequences or self._optional or allow_extra)
        # The same entries for the C code, in the same order, with the types that it converts itself and the defaults.
        self._exact = [(name, _exact_type(features[name]), convert) for name, convert, _ in self._plain]
        self._template = {name: _for_c(features[name], default) for name, _, default in self._plain}
        texts = [name for name, kind, _ in self._exact if kind is str or kind is bytes]
        others = [name for name, kind, _ in self._exact if kind is not str and kind is not bytes]
        types = {name: kind for name, kind, _ in self._exact}
        self._texts = len(texts)
        self._types = tuple([types[name] for name in texts + others])
        # With one name, itemgetter would not return a tuple.
        exact = self._fast and len(types) > 1 and None not in self._types
        self._values_of: Callable[[dict[str, Any]], tuple[Any, ...]] | None = None
        if exact and native is not None:
            self._values_of = itemgetter(*texts, *others)
        self._in_c = _python_only if native is None else native.encode_example

    def encode_small(self, values: dict[str, Any]) -> bytes | None:
        """Return the record if each value has exactly the type that its feature stores, and the values are small.

        Otherwise, return `None`. The values may still be valid, so the caller must call `encode`.
        """
        values_of = self._values_of
        if values_of is None:
            return None
        made = {**self._template, **values}
        types = self._types
        if len(made) != len(types):
            return None
        found = values_of(made)
        if tuple(map(type, found)) != types or sum(map(len, found[: self._texts])) >= _LARGE:
            return None
        return self._in_c(made, True, _ARRAY, _converted)

    def encode(self, values: Mapping[str, Any]) -> bytes:
        """Encode ``values`` as a record.

        Raises:
            SchemaError: a value is missing, is rejected by its entry, or has no entry. The message names the feature.
            TypeError: ``values`` is not a mapping.
        """
        if type(values) is not dict and not isinstance(values, Mapping):
            raise ArgumentTypeError(f"expected a mapping of names to values, not a {type(values).__name__}")
        if self._fast and native is not None and type(values) is dict:
            data = self.encode_small(values) or self._encoded_in_c(values)
            if data is not None:
                return data  # otherwise a value was rejected, and the code below raises
        raws: list[Prepared] = []
        left = len(values)
        for name, convert, default in self._plain:
            value = values.get(name, _MISSING)
            left -= value is not _MISSING
            if value is _MISSING or value is None:
                if default is not None:
                    raws.append((name, *default))
                elif name not in self._optional:
                    raise self._missing(name, values)
                continue
            try:
                raws.append((name, *convert(value)))
            except (Unfit, SchemaError) as error:
                raise self._refused(name, value, error) from None
        if self._fast:
            if left:
                raise self._unknown(values)
            return encode_prepared(raws)
        return self._other(raws, values)

    def _encoded_in_c(self, values: dict[str, Any]) -> bytes | None:
        """Return the record, or `None` if a value is rejected, is missing or has no entry."""
        made = {**self._template, **values}
        if len(made) != len(self._exact):
            return None
        try:
            for name, kind, convert in self._exact:
                value = made[name]
                if value is _MISSING:
                    return None
                if type(value) is not kind and name in values:
                    made[name] = convert(value)
        except (Unfit, SchemaError):
            return None
        return self._in_c(made, True, _ARRAY, _converted)

    def _other(self, raws: list[Prepared], values: Mapping[str, Any]) -> bytes:
        """Encode a record that may have extra features, and entries stored as several features or as feature lists."""
        made = {name: (kind, payload) for name, kind, payload in raws}
        for name, entry in self._compound.items():
            if values.get(name) is None:
                if not isinstance(entry, Sparse):
                    raise self._missing(name, values)
                continue
            try:
                found = tensor(name, entry, values[name]) if isinstance(entry, Tensor) else sparse(entry, values[name])
            except (Unfit, SchemaError) as error:
                raise self._refused(name, values[name], error) from None
            for feature, raw in found.items():
                if made.setdefault(feature, raw) != raw:
                    raise SchemaError(
                        f"feature {name!r}: this entry would store {feature!r} differently than an earlier entry "
                        "does; rename one of them"
                    )
        extra = [name for name in values if name not in self._features]
        if extra and not self._allow_extra:
            raise self._unknown(values)
        for name in extra:
            if made.get(name) is not None:
                raise SchemaError(f"feature {name!r} is already stored by an entry of the schema; leave it out")
            try:
                made[name] = raw_of(values[name])
            except SchemaError as error:
                raise SchemaError(f"feature {name!r}: {error}") from None
        prepared = [(name, *made[name]) for name in sorted(made)]
        if not self._sequences:
            return encode_prepared(prepared)
        return encode_prepared(prepared) + encode_prepared_lists(self._lists(values))

    def _lists(self, values: Mapping[str, Any]) -> dict[str, list[Raw]]:
        lists: dict[str, list[Raw]] = {}
        for name, entry in self._sequences.items():
            if values.get(name) is None:
                if isinstance(entry.entry, FixedLen):
                    raise self._missing(name, values)
                continue
            steps = values[name]
            if not is_list(steps):
                raise self._refused(name, steps, Unfit("pass a list with one value per step"))
            convert = converter(entry.entry)
            lists[name] = []
            for number, step in enumerate(steps):
                try:
                    lists[name].append(convert(step))
                except (Unfit, SchemaError) as error:
                    raise self._refused(name, step, error, where=f", step {number}") from None
        return lists

    def _missing(self, name: str, values: Mapping[str, Any]) -> SchemaError:
        there = ", ".join(sorted(map(repr, values))[:30]) or "nothing"
        problem = "None" if name in values else "missing"
        return SchemaError(
            f"feature {name!r} is {problem}; expected {_shown(self._features[name])}, got the features {there}; "
            "pass a value, or give the entry a default"
        )

    def _unknown(self, values: Mapping[str, Any]) -> SchemaError:
        extra = [name for name in values if name not in self._features]
        if any(not isinstance(name, str) for name in extra):
            return SchemaError(f"{extra[0]!r}: the name of a feature must be a str")
        there = ", ".join(map(repr, list(self._features)[:30]))
        return SchemaError(
            f"feature {extra[0]!r} is not in the schema, which has {there}; leave it out, add it to the schema, or "
            "store such features unchecked with allow_extra=True"
        )

    def _refused(self, name: str, value: Any, error: Exception, *, where: str = "") -> SchemaError:
        reason = f"; {error}" if str(error) else ""
        return SchemaError(
            f"feature {name!r}{where}: expected {_shown(self._features[name])}, got {told(value)}{reason}"
        )


def _python_only(*_: Any) -> bytes | None:
    return None


def _exact_type(entry: Entry) -> type | None:
    return _EXACT.get(entry.dtype) if isinstance(entry, FixedLen) and not entry.shape and not entry.raw else None


def _for_c(entry: Entry, converted: Raw | None) -> Any:
    """Return a default in the form that the C code encodes fastest, or `_MISSING` if the entry has no default."""
    if converted is None:
        return _MISSING
    given = default_of(entry) if isinstance(entry, FixedLen) else None
    return given if type(given) is _exact_type(entry) else converted


def _converted(raw: Any, narrow: bool) -> Any:
    """Return ``raw``. The C code calls this for values that it cannot convert, which have been converted already."""
    return raw


def is_large(values: Mapping[str, Any]) -> bool:
    """Return whether encoding these values takes long enough to be done in a thread."""
    size = 0
    for value in values.values():
        kind = type(value)
        if kind is str or kind is bytes:
            size += len(value)
        elif not (kind is int or kind is float or kind is bool):
            size += _weight(value, _LARGE - size)
            if size >= _LARGE:
                return True
    return size >= _LARGE


def _weight(value: Any, most: int, depth: int = 0) -> int:
    """Estimate the time to encode a value, as the number of bytes copied in that time. Stop counting at ``most``."""
    if isinstance(value, _TEXTS):
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes + value.size * (_PER_VALUE if value.dtype.hasobject else 8)
    if not isinstance(value, _LISTS):
        size = getattr(value, "nbytes", 0)  # present on a memoryview, a tensor or a table's column
        return 2 * size if isinstance(size, int) else 0
    if depth == _DEPTH:
        return most
    weight = _PER_VALUE * len(value)
    if not value or weight >= most or isinstance(value[0], _NUMBERS):  # the rest must be numbers, too
        return weight
    for each in value:
        kind = type(each)
        if kind is bytes or kind is str:
            weight += len(each)
        elif kind is not type(None):
            weight += _weight(each, most - weight, depth + 1)
        if weight >= most:
            break
    return weight


def _shown(entry: Entry) -> str:
    """Return an entry as a user would write it, without fields that have their default values."""
    if isinstance(entry, FixedLen) and not entry.raw:
        default = "" if entry.default is None else f", default={entry.default!r:.60}"
        return f"FixedLen({entry.shape!r}, {entry.dtype!r}{default})"
    return repr(entry)
