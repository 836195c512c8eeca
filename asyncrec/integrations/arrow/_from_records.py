"""Convert records to Arrow arrays, one for each column of a schema, without creating a Python object for each value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from asyncrec.errors import ArgumentValueError, SchemaError
from asyncrec.example._columns import Column, JoinedBytes
from asyncrec.example._compound import Sequence, Sparse
from asyncrec.example._dtypes import Misfit
from asyncrec.example._entries import Entry, splits_of
from asyncrec.example._kinds import FixedLen, Tensor, VarLen
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow._types import METADATA, arrow_schema, schema_of, selected_schema

Array: TypeAlias = Any

_MOST_OFFSET = (1 << 31) - 1


def to_batch(records: SequenceOf[bytes], schema: Schema | Any, *, columns: Iterable[str] | None = None) -> Any:
    """Return one ``pyarrow.RecordBatch`` with a row for each record.

    A FixedLen becomes a column of numbers, text or bytes, or of fixed-size lists. A VarLen becomes lists, with null for
    a record without the feature, and a Sequence becomes lists of steps. A Tensor becomes the struct ``values, shape``,
    and a Sparse the struct ``indices, values``. An absent FixedLen has its default, as in `Schema.decode`.

    Args:
        records: serialised Examples, or SequenceExamples if the schema has a Sequence.
        schema: the schema of the records, or the ``pyarrow.Schema`` to return, in which columns of single values may be
            nullable.
        columns: the names of the columns to read, in this order. Other columns are not parsed.

    Raises:
        SchemaError, DecodeError: the errors of `Schema.decode_batch`, which name the record.
        ValueError: a name is not a column, or a column would exceed 2 GiB or 2**31 values (pass fewer records).
    """
    return BatchMaker(schema, columns=columns).batch(records)


class BatchMaker:
    """A maker of batches with one schema. Any number of threads may use it.

    Attributes:
        schema: the schema of the records, with only the chosen columns.
        arrow: the ``pyarrow.Schema`` of the batches.
    """

    def __init__(
        self,
        schema: Schema | Any,
        *,
        columns: Iterable[str] | None = None,
        arrow: Any = None,
        stored: Mapping[str, Any] | None = None,
    ) -> None:
        """``arrow``: a ``pyarrow.Schema`` of the same columns, whose types replace those of `arrow_schema`.

        ``stored``: the types of the columns of times that are stored in another unit, by name.
        """
        if isinstance(schema, Schema):
            self.schema = selected_schema(schema, columns)
            plain = arrow_schema(self.schema)
            self.arrow = plain if arrow is None else _chosen(arrow, self.schema, plain)
        elif isinstance(schema, pa.Schema):
            known = METADATA in (schema.metadata or {})
            nulls = [field.name for field in schema if field.nullable and _is_single(field.type)]
            found = schema_of(schema, nulls=nulls)
            self.schema = selected_schema(found, list(found.features) if columns is None and not known else columns)
            self.arrow = _chosen(schema, self.schema, arrow_schema(self.schema))
        else:
            raise SchemaError(f"schema must be a Schema or a pyarrow.Schema, not a {type(schema).__name__}")
        self._sequences = any(isinstance(entry, Sequence) for entry in self.schema.features.values())
        self._joined = frozenset(_joined(self.schema))
        self._stored = {field.name: field.type for field in self.arrow} | dict(stored or {})

    def batch(self, records: SequenceOf[bytes]) -> Any:
        """Return a batch of records, as `to_batch` does."""
        try:
            arrays = self._of_sequences(records) if self._sequences else self._of_examples(records)
            arrays = [_cast(field.name, array, field.type) for field, array in zip(self.arrow, arrays, strict=True)]
        except (Misfit, pa.ArrowInvalid) as fault:
            self.schema.decode_batch(records)  # raises an error that names the record
            raise SchemaError(f"the records do not fit the requested types: {fault}") from fault
        if not arrays:  # only a struct array can be turned into a batch that has rows but no columns
            return pa.RecordBatch.from_struct_array(pa.array([{}] * len(records), pa.struct([])))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)

    def _of_examples(self, records: SequenceOf[bytes]) -> list[Array]:
        columns = self.schema.stored_columns(records, self._joined)
        return [_column(name, entry, columns, self._stored[name]) for name, entry in self.schema.features.items()]

    def _of_sequences(self, records: SequenceOf[bytes]) -> list[Array]:
        stacked = self.schema.decode_batch(records)
        return [
            _cast(name, _stacked(name, entry, stacked[name], len(records)), self._stored[name])
            for name, entry in self.schema.features.items()
        ]


def _chosen(arrow: Any, schema: Schema, plain: Any) -> Any:
    return pa.schema([arrow.field(name) for name in schema.features], metadata=plain.metadata)


def _is_single(kind: Any) -> bool:
    return not (pa.types.is_nested(kind) or isinstance(kind, pa.BaseExtensionType))


def _joined(schema: Schema) -> Iterator[str]:
    """Yield the names of the bytes and text features whose stored values can serve as an array unchanged."""
    readers = Counter(chain.from_iterable(entry.stored(name) for name, entry in schema.features.items()))
    for name, entry in schema.features.items():
        if isinstance(entry, FixedLen | VarLen) and entry.dtype in ("bytes", "str") and readers[name] == 1:
            yield name


def _column(name: str, entry: Entry, columns: Mapping[str, Column], wanted: Any) -> Array:
    if isinstance(entry, VarLen):
        return _cast(name, _var_len(name, entry, columns[name], single=_is_single(wanted)), wanted)
    if isinstance(entry, FixedLen) and isinstance(columns[name].flat, JoinedBytes):
        _, flat, counts = columns[name]
        if (counts == math.prod(entry.shape)).all():
            return _cast(name, _fixed(_strings(flat, entry.dtype), len(counts), entry.shape), wanted)
        columns = {name: columns[name]._replace(flat=flat.to_list())}  # `stack` below adds defaults or raises an error
    rows = len(next(iter(columns.values())).counts)
    return _cast(name, _stacked(name, entry, entry.stack(name, columns), rows), wanted)


def _var_len(name: str, entry: VarLen, column: Column, *, single: bool) -> Array:
    _, flat, counts = column
    if isinstance(flat, JoinedBytes):
        values = _strings(flat, entry.dtype)
    else:
        values = _values(entry.stack(name, {name: column}).values, entry.dtype)
    if not single:
        return _lists(name, splits_of(np.maximum(counts, 0)), values, counts < 0)
    if (counts > 1).any():
        row = int(np.argmax(counts > 1))
        raise SchemaError(
            f"record {row} of the batch: feature {name!r}: {counts[row]} values, but the column holds one per record"
        )
    here = counts == 1
    return values if here.all() else values.take(pa.array(np.cumsum(here) - 1, mask=~here))


def _stacked(name: str, entry: Entry, value: Any, rows: int) -> Array:
    """Convert values returned by ``Schema.decode_batch`` to an Arrow array."""
    if isinstance(entry, FixedLen):
        return _fixed(_values(value.reshape(-1), entry.dtype), len(value), entry.shape)
    if isinstance(entry, VarLen):
        return _lists(name, value.row_splits, _values(value.values, entry.dtype))
    if isinstance(entry, Sequence):
        steps = int(value.row_splits[-1])
        return _lists(name, value.row_splits, _stacked(name, entry.entry, value.values, steps))
    if isinstance(entry, Sparse):
        splits = splits_of(np.bincount(value.indices[:, 0], minlength=rows))
        places = _fixed(_values(value.indices[:, 1:].reshape(-1), "int64"), len(value.indices), (len(entry.shape),))
        values = _values(value.values, entry.dtype)
        return _struct(indices=_lists(name, splits, places), values=_lists(name, splits, values))
    if isinstance(entry, Tensor):
        flats = [np.zeros(0, value[0].dtype) if rows else np.zeros(0), *(each.reshape(-1) for each in value)]
        shapes = [np.array(each.shape, np.int64) for each in value]
        return _struct(
            values=_lists(name, _splits(flats[1:]), _values(np.concatenate(flats), entry.dtype)),
            shape=_lists(name, _splits(shapes), _values(np.concatenate([np.zeros(0, np.int64), *shapes]), "int64")),
        )
    raise SchemaError(f"{entry!r} cannot be read as a column; leave the feature out with columns=")


def _splits(parts: SequenceOf[npt.NDArray[Any]]) -> npt.NDArray[np.int64]:
    return splits_of(np.array([len(part) for part in parts], np.int64))


def _strings(values: JoinedBytes, dtype: str) -> Array:
    """Return an array of the stored bytes without copying them. Raise ArrowInvalid if text is not UTF-8."""
    contents, offsets = values
    large = offsets[-1] > _MOST_OFFSET
    kind, text = (pa.large_binary(), pa.large_string()) if large else (pa.binary(), pa.string())
    buffers = [None, pa.py_buffer(offsets if large else offsets.astype(np.int32)), pa.py_buffer(contents)]
    array = pa.Array.from_buffers(kind, len(offsets) - 1, buffers)
    return array.cast(text) if dtype == "str" else array


def _values(flat: npt.NDArray[Any], dtype: str) -> Array:
    """Return an Arrow array of numbers, or of the bytes or strings in an object array."""
    if dtype == "bytes":
        return _strings(JoinedBytes.of(flat.tolist()), dtype)
    if dtype == "str":
        return _strings(JoinedBytes.of([value.encode() for value in flat.tolist()]), dtype)
    return pa.array(np.ascontiguousarray(flat, dtype))


def _fixed(values: Array, rows: int, shape: tuple[int, ...]) -> Array:
    for axis in reversed(range(len(shape))):
        length = rows * math.prod(shape[:axis])
        values = pa.Array.from_buffers(pa.list_(values.type, shape[axis]), length, [None], children=[values])
    return values


def _lists(
    name: str, splits: npt.NDArray[np.int64], values: Array, absent: npt.NDArray[np.bool_] | None = None
) -> Array:
    if splits[-1] > _MOST_OFFSET:
        raise ArgumentValueError(
            f"column {name!r}: {splits[-1]:,} values are too many for one batch; use smaller batches"
        )
    mask = pa.array(absent) if absent is not None and absent.any() else None
    return pa.ListArray.from_arrays(pa.array(splits.astype(np.int32)), values, mask=mask)


def _struct(**fields: Array) -> Array:
    parts = [pa.field(name, array.type, nullable=False) for name, array in fields.items()]
    return pa.StructArray.from_arrays(list(fields.values()), fields=parts)


def _cast(name: str, array: Array, wanted: Any) -> Array:
    if array.type == wanted:
        return array
    if array.type in (pa.large_binary(), pa.large_string()) and array.nbytes > _MOST_OFFSET:
        raise ArgumentValueError(
            f"column {name!r}: {array.nbytes:,} bytes are too many for one batch; use smaller batches, or request "
            f"the type {array.type}"
        )
    try:
        return array.cast(wanted)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SchemaError(f"column {name!r}: {array.type} cannot be converted to {wanted}: {error}") from error
