"""The entries of a Schema: how one name's values are stored, and what they become.

An entry names the features it reads (``stored``) and stacks their columns into one value for a batch (``stack``):

    entry                  in the record                              of one record        of a batch of n
    FixedLen(shape, t)     as many values as the shape has            array of the shape   array (n, *shape)
    FixedLen((), t)        one value                                  a Python scalar      array (n,)
      with raw=True        one bytes value: the array, little-endian  the same             the same
    VarLen(t)              any number of values; absent is none       array (count,)       Ragged
    Tensor(t)              values, their shape in ``<name>_shape``    array of that shape  object array of n arrays
    Sparse(t, shape, ...)  index features and a feature of values     SparseArrays         SparseArrays
    Sequence(entry)        a feature list, an entry in each step      as a batch of steps  Ragged of those

Arrays are in C order, new and writable; those of bytes and str are object arrays. A float64 feature was rounded to
float32 when it was stored: only ``raw=True`` keeps float64 exactly.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec.errors import SchemaError
from asyncrec.example.columns import Column, column_of
from asyncrec.example.dtypes import (
    Misfit,
    cast,
    common_dtype,
    default_array,
    dtype_name,
    from_plain,
    kind_of,
    plain,
    raw_array,
)
from asyncrec.example.wire import BYTES, FLOAT, INT64, NONE, Raw, int64_values

__all__ = [
    "Entry",
    "FixedLen",
    "Ragged",
    "Sequence",
    "Sparse",
    "SparseArrays",
    "Stored",
    "Tensor",
    "VarLen",
    "from_json",
]

Columns: TypeAlias = Mapping[str, Column]

_ABSENT: Raw = (NONE, b"")


class Ragged(NamedTuple):
    """Rows of different lengths: row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``. row_splits: int64 (n + 1,).

    Of a Sequence of VarLen, ``values`` is Ragged too: rows of steps, steps of values.
    """

    values: Any
    row_splits: npt.NDArray[np.int64]


class SparseArrays(NamedTuple):
    """The values that are given of an array, in row-major order; all others are zero.

    ``indices`` is int64 of shape (count, rank), ``values`` of shape (count,), ``dense_shape`` a tuple of rank sizes. Of
    a batch the first axis is the record.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: tuple[int, ...]


class Stored(NamedTuple):
    """A feature an entry reads: of which kind, and whether every record must have it."""

    kind: int
    required: bool


class Entry(ABC):
    """What a Schema has for a name. Entries are immutable dataclasses, equal when they say the same."""

    @abstractmethod
    def stored(self, name: str) -> dict[str, Stored]:
        """The features of a record that are read for it."""

    @abstractmethod
    def stack(self, name: str, columns: Columns) -> Any:
        """The value of a batch. Raises Misfit for a record that does not hold what this says."""

    @abstractmethod
    def first(self, stacked: Any) -> Any:
        """The value of the one record of a batch of one."""

    def one(self, name: str, features: Mapping[str, Raw]) -> Any:
        """The value of one record alone, from what it holds. Raises as ``stack``, and DecodeError."""
        kinds = self.stored(name)
        columns = {feature: column_of(kind, [features.get(feature)]) for feature, (kind, _) in kinds.items()}
        return self.first(self.stack(name, columns))

    @abstractmethod
    def where_absent(self) -> Entry | None:
        """What it becomes when some records do not have it: nothing is made up. None where that cannot be."""

    @abstractmethod
    def merged(self, other: Entry) -> Entry | None:
        """An entry that reads what either reads, or None."""

    def to_json(self) -> dict[str, Any]:
        """Plain values that ``from_json`` reads: the class under "kind", and each field that is not at its default."""
        fields = {item.name: (getattr(self, item.name), item.default) for item in dataclasses.fields(self)}  # type: ignore[arg-type]  # every entry is a dataclass
        told = {name: _json(value) for name, (value, default) in fields.items() if value is not default}
        return {"kind": type(self).__name__} | told


@dataclass(frozen=True)
class FixedLen(Entry):
    """As many values in every record as ``shape`` has; ``default``, of that shape or one value, where it is absent.

    With ``raw=True`` they are stored as one bytes value, the array's own bytes, little-endian and in C order: exact for
    every type, float64 among them. Raises SchemaError for an unknown type or a default that does not fit.
    """

    shape: tuple[int, ...]
    dtype: str
    default: Any = field(default=None, hash=False)  # may hold lists
    raw: bool = False

    def __post_init__(self) -> None:
        _normalise(self)
        object.__setattr__(self, "shape", _shape(self.shape))
        if self.default is not None:
            object.__setattr__(self, "default", default_array(self.default, self.shape, self.dtype).tolist())

    def stored(self, name: str) -> dict[str, Stored]:
        return {name: Stored(BYTES if self.raw else kind_of(self.dtype), self.default is None)}

    def stack(self, name: str, columns: Columns) -> npt.NDArray[Any]:
        _, flat, counts = columns[name]
        present = counts >= 0
        expected = 1 if self.raw else math.prod(self.shape)
        wrong = present & (counts != expected)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise Misfit(row, f"it has {_values(int(counts[row]))}, not {expected}")
        if self.raw:
            size = math.prod(self.shape) * np.dtype(self.dtype).itemsize
            _check_sizes(flat, np.flatnonzero(present), size)
            values = raw_array(flat, self.dtype)
        else:
            values = cast(flat, self.dtype, counts)
        values = values.reshape(-1 if self.shape == () else int(present.sum()), *self.shape)
        if present.all():
            return values
        stacked = np.empty((len(counts), *self.shape), values.dtype)
        stacked[present] = values
        stacked[~present] = default_array(self.default, self.shape, self.dtype)
        return stacked

    def one(self, name: str, features: Mapping[str, Raw]) -> Any:
        kind, payload = features.get(name, _ABSENT)
        values: Any = None
        if isinstance(payload, list):
            if self.dtype == "bytes" and self.shape == () and len(payload) == 1:
                return payload[0]
        elif kind == FLOAT and self.dtype == "float32":
            values = np.frombuffer(payload, "<f4").astype(np.float32)
        elif kind == INT64 and self.dtype == "int64":
            values = int64_values(payload)
        if values is None or values.size != math.prod(self.shape):
            return super().one(name, features)  # of rarer types, or not what it should be
        return values.reshape(self.shape) if self.shape else values.item()

    def first(self, stacked: Any) -> Any:
        return stacked[0] if self.shape or self.dtype in ("bytes", "str") else stacked[0].item()

    def where_absent(self) -> Entry | None:
        return self.ragged() if self.default is None else self

    def ragged(self) -> VarLen | None:
        """A VarLen of the same values, unless that would lose a shape or a default."""
        return None if self.raw or self.default is not None or len(self.shape) > 1 else VarLen(self.dtype)

    def merged(self, other: Entry) -> Entry | None:
        if isinstance(other, VarLen):
            return other.merged(self)
        if not isinstance(other, FixedLen):
            return None
        if self.shape != other.shape:
            one, two = self.ragged(), other.ragged()
            return one.merged(two) if one and two else None
        default = other.default if self.default is None else self.default
        if other.default is not None and plain(default) != plain(other.default):
            return None
        return _with_common_dtype(self, other, default=default)


@dataclass(frozen=True)
class VarLen(Entry):
    """Any number of values; a record without the feature has none."""

    dtype: str

    def __post_init__(self) -> None:
        _normalise(self)

    def stored(self, name: str) -> dict[str, Stored]:
        return {name: Stored(kind_of(self.dtype), False)}

    def stack(self, name: str, columns: Columns) -> Ragged:
        _, flat, counts = columns[name]
        return Ragged(cast(flat, self.dtype, counts), _splits(np.maximum(counts, 0)))

    def first(self, stacked: Ragged) -> Any:
        return stacked.values

    def where_absent(self) -> Entry | None:
        return self

    def merged(self, other: Entry) -> Entry | None:
        return _with_common_dtype(self, other.ragged() if isinstance(other, FixedLen) else other)


@dataclass(frozen=True)
class Tensor(Entry):
    """An array whose shape differs from record to record, and stands in the int64 feature ``<name>_shape`` beside it.

    ``raw`` as in FixedLen. Without the shape, as older writers left it, the array is one-dimensional.
    """

    dtype: str
    raw: bool = False

    def __post_init__(self) -> None:
        _normalise(self)

    def stored(self, name: str) -> dict[str, Stored]:
        kind = BYTES if self.raw else kind_of(self.dtype)
        return {name: Stored(kind, True), f"{name}_shape": Stored(INT64, False)}

    def stack(self, name: str, columns: Columns) -> npt.NDArray[Any]:
        _, flat, counts = columns[name]
        if self.raw:
            wrong = counts != 1
            if wrong.any():
                row = int(np.argmax(wrong))
                raise Misfit(row, f"it has {_values(int(counts[row]))}, not 1")
            size = np.dtype(self.dtype).itemsize
            counts = np.array([len(value) for value in flat], np.int64)
            if (counts % size).any():
                row = int(np.argmax(counts % size != 0))
                raise Misfit(row, f"its {counts[row]} bytes are no array of {self.dtype}")
            counts = counts // size
            values = raw_array(flat, self.dtype)
        else:
            values = cast(flat, self.dtype, counts)
        _, sizes, ranks = columns[f"{name}_shape"]
        splits, shape_splits = _splits(counts), _splits(np.maximum(ranks, 0))
        stacked = np.empty(len(counts), object)
        for row, rank in enumerate(ranks.tolist()):
            array = values[splits[row] : splits[row + 1]].copy()  # an array of its own, not a view that keeps the batch
            shape = tuple(sizes[shape_splits[row] : shape_splits[row + 1]].tolist()) if rank >= 0 else array.shape
            if len(shape) > 32 or min(shape, default=0) < 0 or math.prod(shape) != len(array):
                raise Misfit(row, f"{_values(len(array))} have not the shape {shape[:32]} that {name}_shape gives")
            stacked[row] = array.reshape(shape)
        return stacked

    def first(self, stacked: Any) -> Any:
        return stacked[0]

    def where_absent(self) -> Entry | None:
        return None

    def merged(self, other: Entry) -> Entry | None:
        return _with_common_dtype(self, other)


@dataclass(frozen=True)
class Sparse(Entry):
    """An array of ``shape`` of which few values are given: ``values`` names the feature that holds them, ``indices``
    the int64 features that say where, one per axis. A record without any of them is all zero.

    This is how tf.io.SparseFeature reads. Raises SchemaError when there is not one index feature per axis.
    """

    dtype: str
    shape: tuple[int, ...]
    indices: tuple[str, ...]
    values: str

    def __post_init__(self) -> None:
        _normalise(self)
        object.__setattr__(self, "shape", _shape(self.shape))
        object.__setattr__(self, "indices", (self.indices,) if isinstance(self.indices, str) else tuple(self.indices))
        if len(self.indices) != len(self.shape) or not self.shape:
            raise SchemaError(f"{self!r}: one index feature per axis, and at least one")

    def stored(self, name: str) -> dict[str, Stored]:
        return {self.values: Stored(kind_of(self.dtype), False)} | dict.fromkeys(self.indices, Stored(INT64, False))

    def stack(self, name: str, columns: Columns) -> SparseArrays:
        _, flat, counts = columns[self.values]
        counts = np.maximum(counts, 0)
        axes = [np.repeat(np.arange(len(counts)), counts)]
        for feature, size in zip(self.indices, self.shape, strict=True):
            _, positions, given = columns[feature]
            wrong = np.maximum(given, 0) != counts
            if wrong.any():
                row = int(np.argmax(wrong))
                raise Misfit(row, f"{self.values} has {_values(int(counts[row]))}, {feature} {max(int(given[row]), 0)}")
            beyond = (positions < 0) | (positions >= size)
            if beyond.any():
                at = int(np.argmax(beyond))
                raise Misfit(int(axes[0][at]), f"{feature} has the index {positions[at]}, and the axis {size} places")
            axes.append(positions)
        order = np.lexsort(axes[::-1])
        values = cast(flat, self.dtype, counts)
        return SparseArrays(np.stack(axes, axis=1)[order], values[order], (len(counts), *self.shape))

    def first(self, stacked: SparseArrays) -> SparseArrays:
        return SparseArrays(stacked.indices[:, 1:], stacked.values, stacked.dense_shape[1:])

    def where_absent(self) -> Entry | None:
        return self

    def merged(self, other: Entry) -> Entry | None:
        return _with_common_dtype(self, other)


@dataclass(frozen=True)
class Sequence(Entry):
    """A feature list of a SequenceExample, whose steps each hold what ``entry`` says: a FixedLen or a VarLen.

    With a FixedLen every record must have the list; with a VarLen an absent one has no steps.
    """

    entry: FixedLen | VarLen

    def __post_init__(self) -> None:
        if not isinstance(self.entry, FixedLen | VarLen) or getattr(self.entry, "default", None) is not None:
            raise SchemaError(f"a step of a Sequence is a FixedLen without a default or a VarLen, not {self.entry!r}")

    def stored(self, name: str) -> dict[str, Stored]:
        kind, _ = self.entry.stored(name)[name]
        return {name: Stored(kind, isinstance(self.entry, FixedLen))}

    def stack(self, name: str, columns: Columns) -> Any:
        """Of the columns of steps: the batch of all steps, which the schema then cuts into rows."""
        return self.entry.stack(name, columns)

    def first(self, stacked: Ragged) -> Any:
        return stacked.values

    def where_absent(self) -> Entry | None:
        entry = self.entry.where_absent()
        return Sequence(entry) if isinstance(entry, VarLen) else None

    def merged(self, other: Entry) -> Entry | None:
        entry = self.entry.merged(other.entry) if isinstance(other, Sequence) else None
        return Sequence(entry) if isinstance(entry, FixedLen | VarLen) else None


def from_json(value: Mapping[str, Any]) -> Entry:
    """The entry that ``to_json`` gave. Raises SchemaError for what is none."""
    if not isinstance(value, Mapping):
        raise SchemaError(f"{value!r:.80} is no entry of a schema")
    fields = dict(value)
    kind = {kind.__name__: kind for kind in (FixedLen, VarLen, Tensor, Sparse, Sequence)}.get(fields.pop("kind", ""))
    if kind is None:
        raise SchemaError(f"{value.get('kind')!r} is no entry of a schema this version knows")
    try:
        if kind is Sequence:
            return Sequence(from_json(fields["entry"]))  # type: ignore[arg-type]  # checked by Sequence itself
        if fields.get("default") is not None:
            fields["default"] = from_plain(fields["default"], fields["dtype"])
        return kind(**fields)
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"no entry of a schema: {value!r} ({error})") from error


def _with_common_dtype(one: Any, other: Any, **changes: Any) -> Entry | None:
    """The entry that both are when their types are made one; None when there is none, or they differ in more."""
    if type(one) is not type(other):
        return None
    dtype = common_dtype(one.dtype, other.dtype)
    if dtype is None or (one.dtype != other.dtype and getattr(one, "raw", False)):  # raw bytes are one type's only
        return None
    try:
        one, other = (dataclasses.replace(entry, dtype=dtype, **changes) for entry in (one, other))
    except SchemaError:  # a default of text, and values of bytes
        return None
    return one if one.to_json() == other.to_json() else None  # by JSON, since a default may be NaN


def _json(value: Any) -> Any:
    if isinstance(value, Entry):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else plain(value)


def _normalise(entry: Any) -> None:
    object.__setattr__(entry, "dtype", dtype_name(entry.dtype))
    if getattr(entry, "raw", False) and kind_of(entry.dtype) == BYTES:
        raise SchemaError(f"{entry.dtype} values are bytes as they are; raw=True is for numbers")


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = tuple(int(size) for size in shape)
    if min(sizes, default=0) < 0:
        raise SchemaError(f"the shape {sizes} has a negative size; VarLen and Tensor are for sizes that differ")
    return sizes


def _splits(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def _check_sizes(values: list[bytes], rows: npt.NDArray[np.intp], size: int) -> None:
    for row, value in zip(rows.tolist(), values, strict=True):
        if len(value) != size:
            raise Misfit(row, f"it has {len(value)} bytes, not {size}")


def _values(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"
