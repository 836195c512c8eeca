"""Sparse and Sequence: schema entries that read several features, or a feature list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from asyncrec.errors import SchemaError
from asyncrec.example._dtypes import Misfit, cast, from_plain, kind_of
from asyncrec.example._entries import Columns, Entry, Ragged, Stored, normalise, shape_of, values_of, with_common_dtype
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._wire import INT64


class SparseArrays(NamedTuple):
    """The stored values of an array, in row-major order. All other values are zero.

    ``indices`` is int64 of shape (count, rank), ``values`` has the shape (count,), and ``dense_shape`` is a tuple with
    the size of each axis. In a batch, the first axis is the index of the record.
    """

    indices: npt.NDArray[np.int64]
    values: npt.NDArray[Any]
    dense_shape: tuple[int, ...]


@dataclass(frozen=True)
class Sparse(Entry):
    """An array of ``shape`` of which only some values are stored, as read by tf.io.SparseFeature.

    ``values`` names the feature with the values, and ``indices`` the int64 features with their indices, one per axis.
    If a record has none of these features, all values of its array are zero. Raises SchemaError unless there is exactly
    one index feature per axis.
    """

    dtype: str
    shape: tuple[int, ...]
    indices: tuple[str, ...]
    values: str

    def __post_init__(self) -> None:
        normalise(self)
        object.__setattr__(self, "shape", shape_of(self.shape))
        object.__setattr__(self, "indices", (self.indices,) if isinstance(self.indices, str) else tuple(self.indices))
        if not all(isinstance(name, str) for name in (self.values, *self.indices)):
            raise SchemaError(f"{self!r}: values and indices must be names of features")
        if len(self.indices) != len(self.shape) or not self.shape:
            raise SchemaError(f"{self!r}: pass one index feature per axis, and at least one")

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
                count = values_of(int(counts[row]))
                raise Misfit(
                    row,
                    f"{self.values!r} has {count}, but {feature!r} has {max(int(given[row]), 0)}; both "
                    "must have the same number",
                )
            beyond = (positions < 0) | (positions >= size)
            if beyond.any():
                at = int(np.argmax(beyond))
                raise Misfit(
                    int(axes[0][at]),
                    f"{feature!r} has the index {positions[at]}, but the axis has only {size} positions",
                )
            axes.append(positions)
        order = np.lexsort(axes[::-1])
        values = cast(flat, self.dtype, counts)
        return SparseArrays(np.stack(axes, axis=1)[order], values[order], (len(counts), *self.shape))

    def first(self, stacked: SparseArrays) -> SparseArrays:
        return SparseArrays(stacked.indices[:, 1:], stacked.values, stacked.dense_shape[1:])

    def where_absent(self) -> Entry | None:
        return self

    def merged(self, other: Entry) -> Entry | None:
        return with_common_dtype(self, other)


@dataclass(frozen=True)
class Sequence(Entry):
    """A feature list of a SequenceExample. ``entry``, a FixedLen or a VarLen, describes each step.

    With a FixedLen, every record must have the feature list. With a VarLen, a record without the list has no steps.
    """

    entry: FixedLen | VarLen

    def __post_init__(self) -> None:
        if not isinstance(self.entry, FixedLen | VarLen) or getattr(self.entry, "default", None) is not None:
            raise SchemaError(
                f"a step of a Sequence must be a VarLen, or a FixedLen without a default, not {self.entry!r}"
            )

    def stored(self, name: str) -> dict[str, Stored]:
        kind, _ = self.entry.stored(name)[name]
        return {name: Stored(kind, isinstance(self.entry, FixedLen))}

    def stack(self, name: str, columns: Columns) -> Any:
        """Return the steps of all records as one batch, which the schema then splits into rows."""
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
    """Return the entry whose ``to_json`` returned ``value``. Raises SchemaError for any other value."""
    if not isinstance(value, Mapping):
        raise SchemaError(f"{value!r:.80} is not an entry of a schema")
    fields = dict(value)
    name = fields.pop("kind", "")
    kind = next((kind for kind in (FixedLen, VarLen, Tensor, Sparse, Sequence) if kind.__name__ == name), None)
    if kind is None:
        raise SchemaError(f"the kind of entry {name!r:.80} is unknown to this release; use a newer release of asyncrec")
    for field, expected in (("dtype", str), ("raw", bool), ("shape", list | tuple), ("indices", list | tuple)):
        if field in fields and not isinstance(fields[field], expected):
            raise SchemaError(f"not a valid entry of a schema: {value!r:.200} ({field} is {fields[field]!r:.80})")
    if kind is Sequence:  # checked before parsing, because rejecting deeply nested Sequences would take minutes
        step = fields.get("entry")
        if not isinstance(step, Mapping) or step.get("kind") not in ("FixedLen", "VarLen"):
            raise SchemaError("not a valid entry of a schema: a step of a Sequence must be a FixedLen or a VarLen")
    try:
        if kind is Sequence:
            return Sequence(from_json(fields["entry"]))  # type: ignore[arg-type]  # checked by Sequence itself
        if fields.get("default") is not None:
            fields["default"] = from_plain(fields["default"], fields["dtype"])
        return kind(**fields)
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise SchemaError(f"not a valid entry of a schema: {value!r:.200} ({error})") from error
