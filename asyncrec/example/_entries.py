"""The base class of a Schema's entries. An entry defines how the values of one name are stored and decoded.

An entry names the features that it reads (``stored``) and stacks their columns into one value per batch (``stack``):

    entry                  in the record                              of one record        of a batch of n
    FixedLen(shape, t)     as many values as the shape has            array of the shape   array (n, *shape)
    FixedLen((), t)        one value                                  a Python scalar      array (n,)
      with raw=True        one bytes value: the array, little-endian  the same             the same
    VarLen(t)              any number of values; absent: 0            array (count,)       Ragged
    Tensor(t)              values, their shape in ``<name>_shape``    array of that shape  object array of n arrays
    Sparse(t, shape, ...)  index features and a feature of values     SparseArrays         SparseArrays
    Sequence(entry)        a feature list, an entry in each step      as a batch of steps  Ragged of those

Arrays are new, writable and in C order. Arrays of bytes and str have the dtype object. A float64 feature was rounded to
float32 when it was stored. Only ``raw=True`` stores float64 exactly.
"""

from __future__ import annotations

import dataclasses
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from asyncrec.errors import SchemaError
from asyncrec.example._columns import Column, column_of
from asyncrec.example._dtypes import common_dtype, dtype_name, kind_of, plain
from asyncrec.example._wire import BYTES, Raw

Columns: TypeAlias = Mapping[str, Column]

_MOST_AXES = 32  # supported by every version of NumPy


class Ragged(NamedTuple):
    """Rows of different lengths, stored one after another in a single array.

    Row ``i`` is ``values[row_splits[i]:row_splits[i + 1]]``. ``row_splits`` is int64 of shape (n + 1,). For a Sequence
    of VarLen, ``values`` is itself Ragged, because a row consists of steps, and each step is a row of values.
    """

    values: Any
    row_splits: npt.NDArray[np.int64]


class Stored(NamedTuple):
    """The kind of a feature that an entry reads, and whether every record must have the feature."""

    kind: int
    required: bool


class Entry(ABC):
    """A Schema's description of the value with one name. Entries are immutable dataclasses that compare by value."""

    @abstractmethod
    def stored(self, name: str) -> dict[str, Stored]:
        """Return the features of a record that the entry reads, by name."""

    @abstractmethod
    def stack(self, name: str, columns: Columns) -> Any:
        """Return the value for a batch of records. Raises Misfit if a record does not match the entry."""

    @abstractmethod
    def first(self, stacked: Any) -> Any:
        """Return the value of the only record of a batch."""

    def one(self, name: str, features: Mapping[str, Raw]) -> Any:
        """Return the value of one record from its features. Raises Misfit, as ``stack`` does, or DecodeError."""
        kinds = self.stored(name)
        columns = {feature: column_of(kind, [features.get(feature)]) for feature, (kind, _) in kinds.items()}
        return self.first(self.stack(name, columns))

    @abstractmethod
    def where_absent(self) -> Entry | None:
        """Return the entry to use if some records lack the feature, or `None` if values would have to be invented."""

    @abstractmethod
    def merged(self, other: Entry) -> Entry | None:
        """Return an entry that reads the records of both entries, or `None` if no such entry exists."""

    def to_json(self) -> dict[str, Any]:
        """Return a dict for `from_json`, with the class as "kind" and each field that differs from its default."""
        fields = {item.name: (getattr(self, item.name), item.default) for item in dataclasses.fields(self)}  # type: ignore[arg-type]  # every entry is a dataclass
        told = {name: _json(value) for name, (value, default) in fields.items() if value is not default}
        return {"kind": type(self).__name__} | told


def with_common_dtype(one: Any, other: Any, **changes: Any) -> Entry | None:
    """Return ``one`` with both entries' common type, or `None` if they have none or other fields differ."""
    if type(one) is not type(other):
        return None
    dtype = common_dtype(one.dtype, other.dtype)
    if dtype is None or (one.dtype != other.dtype and getattr(one, "raw", False)):  # raw bytes cannot be converted
        return None
    try:
        one, other = (dataclasses.replace(entry, dtype=dtype, **changes) for entry in (one, other))
    except SchemaError:  # the default is text, but the values are bytes
        return None
    return one if one.to_json() == other.to_json() else None  # compare JSON, because a default may be NaN


def normalise(entry: Any) -> None:
    object.__setattr__(entry, "dtype", dtype_name(entry.dtype))
    if getattr(entry, "raw", False) and kind_of(entry.dtype) == BYTES:
        raise SchemaError(f"{entry.dtype} values are already bytes; use raw=True only for numbers")


def shape_of(shape: Any) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError:
        raise SchemaError(f"{shape!r:.200} is not a valid shape; pass a tuple of integers") from None
    if len(sizes) > _MOST_AXES:
        raise SchemaError(f"the shape has {len(sizes)} axes; at most {_MOST_AXES} are allowed")
    if min(sizes, default=0) < 0:
        raise SchemaError(
            f"the shape {sizes} has a negative size; for sizes that vary between records, use VarLen or Tensor"
        )
    return sizes


def splits_of(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    splits = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return splits


def values_of(count: int) -> str:
    return "1 value" if count == 1 else f"{count} values"


def _json(value: Any) -> Any:
    if isinstance(value, Entry):
        return value.to_json()
    return list(value) if isinstance(value, tuple) else plain(value)
