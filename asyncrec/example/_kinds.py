"""FixedLen, VarLen and Tensor: the dense entries of a Schema. `_entries` describes their decoded values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from asyncrec.errors import SchemaError
from asyncrec.example._dtypes import Misfit, cast, default_array, kind_of, plain, raw_array
from asyncrec.example._entries import (
    Columns,
    Entry,
    Ragged,
    Stored,
    normalise,
    shape_of,
    splits_of,
    values_of,
    with_common_dtype,
)
from asyncrec.example._varints import int64_values
from asyncrec.example._wire import BYTES, FLOAT, INT64, NONE, Raw

_ABSENT: Raw = (NONE, b"")
_VALUE_BYTES = 8
# The maximum size of a default array in bytes, which is also the default maximum size of a record.
_MOST_DEFAULT = 256 << 20


@dataclass(frozen=True)
class FixedLen(Entry):
    """A feature with the same shape in every record.

    ``default``, an array of that shape or a single value, is used if a record does not have the feature. With
    ``raw=True``, the bytes of the array are stored, little-endian and in C order, which preserves values of every type
    exactly, including float64. Raises SchemaError if the type is unknown, if the default does not fit or exceeds the
    maximum size of a record, or if no array can have the shape.
    """

    shape: tuple[int, ...]
    dtype: str
    default: Any = field(default=None, hash=False)  # may contain lists
    raw: bool = False

    def __post_init__(self) -> None:
        normalise(self)
        object.__setattr__(self, "shape", shape_of(self.shape))
        # A schema may come from another user's manifest, so no array of its shape is created until a record needs it.
        size = math.prod(max(1, each) for each in self.shape) * _VALUE_BYTES
        if size >= 1 << 63:
            raise SchemaError(f"the shape {self.shape} is too large for an array")
        if self.default is not None and size > _MOST_DEFAULT:
            raise SchemaError(
                f"with a default of the shape {self.shape}, each record that lacks the feature would take {size:,} "
                f"bytes, more than the limit of {_MOST_DEFAULT:,}; use VarLen, which reads a missing feature as "
                "empty"
            )
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
            raise Misfit(row, f"it has {values_of(int(counts[row]))}, not {expected}")
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
            if self.shape == () and len(payload) == 1:
                if self.dtype == "bytes":
                    return payload[0]
                if self.dtype == "str":
                    with suppress(UnicodeDecodeError):  # the call to `super` below raises a Misfit
                        return payload[0].decode()
        elif kind == NONE and self.default is not None and self.shape == ():
            return self.default
        elif kind == FLOAT and self.dtype == "float32":
            values = np.frombuffer(payload, "<f4").astype(np.float32)
        elif kind == INT64 and self.dtype == "int64":
            values = int64_values(payload)
        if values is None or values.size != math.prod(self.shape):
            return super().one(name, features)  # a rare type, or a value that does not fit
        return values.reshape(self.shape) if self.shape else values.item()

    def first(self, stacked: Any) -> Any:
        return stacked[0] if self.shape or self.dtype in ("bytes", "str") else stacked[0].item()

    def where_absent(self) -> Entry | None:
        return self.ragged() if self.default is None else self

    def ragged(self) -> VarLen | None:
        """Return a VarLen for the same values, or `None` if it would lose a shape or a default."""
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
        return with_common_dtype(self, other, default=default)


@dataclass(frozen=True)
class VarLen(Entry):
    """A feature with any number of values. A record without the feature has no values."""

    dtype: str

    def __post_init__(self) -> None:
        normalise(self)

    def stored(self, name: str) -> dict[str, Stored]:
        return {name: Stored(kind_of(self.dtype), False)}

    def stack(self, name: str, columns: Columns) -> Ragged:
        _, flat, counts = columns[name]
        return Ragged(cast(flat, self.dtype, counts), splits_of(np.maximum(counts, 0)))

    def one(self, name: str, features: Mapping[str, Raw]) -> Any:
        kind, payload = features.get(name, _ABSENT)
        if kind == FLOAT and self.dtype == "float32":
            return np.frombuffer(payload, "<f4").astype(np.float32)  # type: ignore[arg-type]  # numbers are not a list
        if kind == INT64 and self.dtype == "int64":
            return int64_values(payload)  # type: ignore[arg-type]
        if kind == NONE and self.dtype in ("float32", "int64"):
            return np.empty(0, self.dtype)
        return super().one(name, features)

    def first(self, stacked: Ragged) -> Any:
        return stacked.values

    def where_absent(self) -> Entry | None:
        return self

    def merged(self, other: Entry) -> Entry | None:
        return with_common_dtype(self, other.ragged() if isinstance(other, FixedLen) else other)


@dataclass(frozen=True)
class Tensor(Entry):
    """An array whose shape varies between records and is stored in the int64 feature ``<name>_shape``.

    ``raw`` has the same meaning as in FixedLen. If the shape is missing, as in records of older writers, the array is
    one-dimensional.
    """

    dtype: str
    raw: bool = False

    def __post_init__(self) -> None:
        normalise(self)

    def stored(self, name: str) -> dict[str, Stored]:
        kind = BYTES if self.raw else kind_of(self.dtype)
        return {name: Stored(kind, True), f"{name}_shape": Stored(INT64, False)}

    def stack(self, name: str, columns: Columns) -> npt.NDArray[Any]:
        _, flat, counts = columns[name]
        if self.raw:
            wrong = counts != 1
            if wrong.any():
                row = int(np.argmax(wrong))
                raise Misfit(row, f"it has {values_of(int(counts[row]))}, not 1")
            size = np.dtype(self.dtype).itemsize
            counts = np.array([len(value) for value in flat], np.int64)
            if (counts % size).any():
                row = int(np.argmax(counts % size != 0))
                raise Misfit(row, f"its {counts[row]} bytes are not a whole number of {self.dtype} values")
            counts = counts // size
            values = raw_array(flat, self.dtype)
        else:
            values = cast(flat, self.dtype, counts)
        _, sizes, ranks = columns[f"{name}_shape"]
        splits, shape_splits = splits_of(counts), splits_of(np.maximum(ranks, 0))
        stacked = np.empty(len(counts), object)
        for row, rank in enumerate(ranks.tolist()):
            array = values[splits[row] : splits[row + 1]].copy()  # a view would keep the batch in memory
            shape = tuple(sizes[shape_splits[row] : shape_splits[row + 1]].tolist()) if rank >= 0 else array.shape
            try:
                stacked[row] = array.reshape(shape) if min(shape, default=0) >= 0 else None
            except ValueError:  # the number of values differs, or no array can have this size or rank
                stacked[row] = None
            if stacked[row] is None:
                raise Misfit(
                    row, f"it has {values_of(len(array))}, which do not fit the shape {shape[:32]} in {name}_shape"
                )
        return stacked

    def first(self, stacked: Any) -> Any:
        return stacked[0]

    def where_absent(self) -> Entry | None:
        return None

    def merged(self, other: Entry) -> Entry | None:
        return with_common_dtype(self, other)


def _check_sizes(values: list[bytes], rows: npt.NDArray[np.intp], size: int) -> None:
    for row, value in zip(rows.tolist(), values, strict=True):
        if len(value) != size:
            raise Misfit(row, f"it has {len(value)} bytes, not {size}")
