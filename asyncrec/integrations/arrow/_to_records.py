"""Convert Arrow batches to records. Each column becomes the values of one feature, and each row becomes an Example.

A null becomes an absent feature if the schema allows it. A value that would change when it is written and read raises
an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.example._codec import encode_example, encode_sequence_example
from asyncrec.example._compound import Sequence, Sparse
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow._numbers import little_endian, numbers_of
from asyncrec.integrations.arrow._types import schema_of

Array: TypeAlias = Any
Values: TypeAlias = "list[Any]"  # one per row; None if the row lacks the feature

_NO_BYTES = np.array([], "S1")  # an empty list has no element type, so it would be encoded as absent


_VIEWS = {"string_view": pa.large_string(), "binary_view": pa.large_binary()}  # in recent versions of pyarrow


class _RowError(Exception):
    """A row of a column cannot be written. ``row`` is its number in the column, counted from 0."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(reason)
        self.row = row


class _NullWithinError(Exception):
    """A row of a column contains a null in a list or a struct."""


def to_records(batch: Any, schema: Schema | None = None, *, narrow: bool = True) -> list[bytes]:
    """Return a serialised Example for each row, or a SequenceExample if the schema has a Sequence.

    This is the inverse of `to_batch`.

    Args:
        batch: a ``pyarrow.RecordBatch`` or ``Table``. Dictionaries are written as their values, times as integers.
        schema: the schema of the records. Only its columns are written. The default is the result of `schema_of`.
        narrow: whether to round float64 to float32, as `encode_example` does. If false, a value that would change
            raises an error. A FixedLen with ``raw=True`` keeps all bits.

    Raises:
        SchemaError: a column is missing, or its values do not match the schema, such as a null in a FixedLen without a
            default, a list of another length, or a number out of range. The message names the column and the row.
    """
    parts = chunks_of(batch)
    schema = schema or schema_of(batch.schema, nulls=null_columns(batch))
    records: list[bytes] = []
    for part in parts:
        records += records_from(part, schema, narrow=narrow, first=len(records))
    return records


def chunks_of(batch: Any) -> list[Any]:
    """Return the RecordBatches of a Table, or a RecordBatch in a list. Raise TypeError for anything else."""
    if not isinstance(batch, pa.RecordBatch | pa.Table):
        raise ArgumentTypeError(f"pass a pyarrow.RecordBatch or Table, not a {type(batch).__name__}")
    return batch.to_batches() if isinstance(batch, pa.Table) else [batch]


def records_from(batch: Any, schema: Schema, *, narrow: bool, first: int) -> list[bytes]:
    """Convert a RecordBatch as `to_records` does. In error messages, its first row has the number ``first``."""
    features: dict[str, Values] = {}
    lists: dict[str, Values] = {}
    for name, entry in schema.features.items():
        if batch.schema.get_field_index(name) < 0:
            if all(not stored.required for stored in entry.stored(name).values()):
                continue
            raise SchemaError(
                f"there is no column {name!r}, which the schema requires in every record; the columns are "
                f"{batch.schema.names}"
            )
        column = _plain(batch.column(name))
        try:
            if isinstance(entry, Sequence):
                lists[name] = _steps(entry, column, narrow)
            else:
                features.update(_features(name, entry, column, narrow))
        except _RowError as error:
            raise SchemaError(f"column {name!r}: row {first + error.row} {error}; expected {entry}") from None
        except _NullWithinError:
            row = first + _row_with_null(column, entry)
            raise SchemaError(f"column {name!r}: row {row} contains a null inside its list; expected {entry}") from None
        except (SchemaError, pa.ArrowException) as error:
            raise SchemaError(f"column {name!r}: {error}; expected {entry}") from error
    try:
        return _encoded(features, lists, batch.num_rows, narrow, is_sequence=schema_has_lists(schema))
    except _RowError as error:
        raise SchemaError(f"row {first + error.row} of the batch: {error}") from None


def null_columns(batch: Any) -> list[str]:
    """Return the names of the columns of a batch or table that contain nulls."""
    return [name for name, column in zip(batch.schema.names, batch.columns, strict=True) if column.null_count]


def schema_has_lists(schema: Schema) -> bool:
    """Return whether the records of a schema are SequenceExamples."""
    return any(isinstance(entry, Sequence) for entry in schema.features.values())


def _encoded(
    features: Mapping[str, Values], lists: Mapping[str, Values], rows: int, narrow: bool, *, is_sequence: bool
) -> list[bytes]:
    names, records = [*features], []
    columns = zip(*features.values(), strict=True) if features else iter([()] * rows)
    for row, values in enumerate(columns):
        present = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        try:
            if is_sequence:
                steps = {name: values[row] for name, values in lists.items() if values[row] is not None}
                records.append(encode_sequence_example(present, steps, narrow=narrow))
            else:
                records.append(encode_example(present, narrow=narrow))
        except SchemaError as error:
            raise _RowError(row, str(error)) from None
    return records


def _features(name: str, entry: Entry, column: Array, narrow: bool) -> dict[str, Values]:
    if isinstance(entry, FixedLen):
        values = _fixed_len(entry, column, narrow)
        if entry.default is None:
            _check_rows(column, "is null, which only a VarLen or a FixedLen with a default may be")
        return {name: values}
    if isinstance(entry, VarLen):
        if pa.types.is_fixed_size_list(column.type):
            column = column.cast(pa.list_(column.type.value_type))
        if _is_list(column.type):
            return {name: _var_len(column, _reader(entry.dtype, narrow))}
        return {name: _scattered(_reader(entry.dtype, narrow)(_present(column)), column)}
    if isinstance(entry, Tensor):
        _check_rows(column)
    if not pa.types.is_struct(column.type):
        raise SchemaError(f"the column has the type {column.type}")
    if isinstance(entry, Tensor):
        flats = _var_len(column.field("values"), _reader(entry.dtype, narrow, raw=entry.raw))
        shapes = _var_len(column.field("shape"), _reader("int64", narrow))
        for row, (flat, shape) in enumerate(zip(flats, shapes, strict=True)):
            if len(flat) != math.prod(shape):
                raise _RowError(row, f"has {len(flat)} values, which do not fit the shape {list(shape)}")
        raw = [little_endian(flat, entry.dtype) for flat in flats] if entry.raw else flats
        return {name: raw, f"{name}_shape": shapes}
    if isinstance(entry, Sparse):
        found = {entry.values: _var_len(column.field("values"), _reader(entry.dtype, narrow))}
        places = column.field("indices")
        starts = _offsets(places)
        grid = numbers_of(_leaves(places.flatten(), (len(entry.indices),)), "int64").reshape(-1, len(entry.indices))
        for axis, feature in enumerate(entry.indices):
            found[feature] = [grid[start:stop, axis] for start, stop in pairwise(starts)]
        return found
    raise SchemaError("this entry cannot be stored in a column")


def _steps(entry: Sequence, column: Array, narrow: bool) -> Values:
    if not _is_list(column.type):
        raise SchemaError(f"the column has the type {column.type}, not a list of steps")
    inner = _plain(column.flatten())
    if isinstance(entry.entry, FixedLen):
        _check_rows(column)
        _check_within(inner)
        values = _fixed_len(entry.entry, inner, narrow)
    else:
        values = [[] if value is None else value for value in _var_len(inner, _reader(entry.entry.dtype, narrow))]
    return _sliced(values, column)


def _fixed_len(entry: FixedLen, column: Array, narrow: bool) -> Values:
    present = _present(column)
    flat = _leaves(present, entry.shape)
    read = _reader(entry.dtype, narrow, raw=entry.raw)
    if entry.raw:
        data = little_endian(read(flat), entry.dtype)
        size = len(data) // len(present) if len(present) else 0
        return _scattered([data[at * size : (at + 1) * size] for at in range(len(present))], column)
    values = read(flat)
    if entry.shape:
        size = math.prod(entry.shape)
        values = _cut(values, range(0, size * len(present) + 1, size) if size else [0] * (len(present) + 1))
    elif isinstance(values, np.ndarray):
        values = values.tolist()
    return _scattered(values, column)


def _var_len(column: Array, read: Callable[[Array], Any]) -> Values:
    if not _is_list(column.type):
        raise SchemaError(f"the column has the type {column.type}, not a list")
    return _sliced(read(_plain(column.flatten())), column)


def _sliced(values: Any, column: Array) -> Values:
    """Return the values of each row of a list column, as slices of the values of all rows."""
    rows = _cut(values, _offsets(column))
    if column.null_count:
        rows = [row if valid else None for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True)]
    return rows


def _cut(values: Any, offsets: Iterable[int]) -> Values:
    rows: Values = [values[start:stop] for start, stop in pairwise(offsets)]
    return [row if len(row) else _NO_BYTES for row in rows] if isinstance(values, list) else rows


def _offsets(column: Array) -> list[int]:
    lengths = pa.compute.list_value_length(column).fill_null(0).to_pylist()
    return list(accumulate(lengths, initial=0))


def _scattered(values: Any, column: Array) -> Values:
    """Return a value for each row: `None` if the row is null, otherwise the next of ``values``."""
    rows = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if not column.null_count:
        return rows
    following = iter(rows)
    return [next(following) if valid else None for valid in column.is_valid().to_pylist()]


def _leaves(column: Array, shape: tuple[int, ...]) -> Array:
    """Return the values of nested lists of this shape, or of flat lists of the same size (as Ray stores tensors)."""
    rows = len(column)
    size = 1
    while _is_list(column.type) or pa.types.is_fixed_size_list(column.type):
        _check_within(column)
        lengths = set(pa.compute.list_value_length(column).unique().to_pylist())
        if len(lengths) > 1:
            raise SchemaError(f"its lists have different lengths, from {min(lengths)} to {max(lengths)}")
        size *= lengths.pop() if lengths else 1
        column = _plain(column.flatten())
    if rows and size != math.prod(shape):
        raise SchemaError(f"its rows have {size} values")
    _check_within(column)
    return column


def _reader(dtype: str, narrow: bool, *, raw: bool = False) -> Callable[[Array], Any]:
    """Return a function that converts an Arrow array to values to encode: a NumPy array or a list of bytes."""

    def read(column: Array) -> Any:
        _check_within(column)
        if dtype in ("bytes", "str"):
            return _strings(column, dtype)
        return numbers_of(column, dtype, narrow=narrow, raw=raw)

    return read


def _strings(column: Array, dtype: str) -> list[bytes]:
    kind = str(column.type)
    if not any(known in kind for known in ("string", "binary")):
        raise SchemaError(f"its values have the type {kind}")
    if dtype == "str" and "binary" in kind:
        column = column.cast(pa.large_string())  # raises an error for bytes that are not UTF-8
    values: list[bytes] = column.cast(pa.large_binary()).to_pylist()
    return values


def _plain(column: Array) -> Array:
    """Return the values of an extension, dictionary or view array as a plain array. Return other arrays unchanged."""
    if isinstance(column.type, pa.BaseExtensionType):
        return _plain(column.storage)
    if pa.types.is_dictionary(column.type):
        return _plain(column.dictionary_decode())
    plain = _VIEWS.get(str(column.type))
    return column if plain is None else column.cast(plain)  # views lack most of Arrow's functions


def _present(column: Array) -> Array:
    return column.drop_null() if column.null_count else column


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _check_rows(column: Array, reason: str = "is null") -> None:
    if column.null_count:
        raise _RowError(column.is_valid().to_pylist().index(False), reason)


def _check_within(values: Array) -> None:
    """Raise an error if a column's flattened values contain a null. The null's position does not reveal its row."""
    if values.null_count:
        raise _NullWithinError


def _row_with_null(column: Array, entry: Entry) -> int:
    """Return the number of the first row whose value contains a null. This is slow, and used only in error messages."""
    may_be_null = 2 if isinstance(entry, Sequence) and isinstance(entry.entry, VarLen) else 1  # a step may also be null

    def has_null(value: Any, depth: int) -> bool:
        if isinstance(value, dict | list):
            return any(has_null(each, depth + 1) for each in (value.values() if isinstance(value, dict) else value))
        return value is None and depth >= may_be_null

    return next(row for row, value in enumerate(column.to_pylist()) if has_null(value, 0))
