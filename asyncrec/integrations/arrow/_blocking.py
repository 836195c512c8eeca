"""Read and write batches without async, for notebooks and for pandas, Polars, DuckDB, Ray and Spark."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from asyncrec._arguments import Size
from asyncrec.blocking._owner import Handle, Owner, as_call, as_context
from asyncrec.blocking._records import open_reader
from asyncrec.blocking._streams import Puller
from asyncrec.errors import SchemaError
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow import _plan, _reading, _writing
from asyncrec.integrations.arrow._from_records import BatchMaker
from asyncrec.integrations.arrow._plan import Part, Plan
from asyncrec.integrations.arrow._to_records import chunks_of, null_columns
from asyncrec.integrations.arrow._writing import schemas_of


class _Batches(Handle[_reading.BatchReader], Iterator[Any]):
    def __init__(self, owner: Owner[_reading.BatchReader], value: _reading.BatchReader) -> None:
        super().__init__(owner, value)
        self.schema = value.schema
        self._batches = Puller(owner, aiter(value))

    def __next__(self) -> Any:
        for batch in self._batches.pull():
            return batch
        raise StopIteration


class _BatchWriter(Handle[_writing.BatchWriter]):
    def write(self, batch: Any) -> None:
        self._owner.call(self._value.write, batch)


_open_writer = as_context(_writing.open_writer_of, _BatchWriter)
_open_batches = as_context(_reading.open_batches, _Batches)
_open_parts = as_context(_reading.open_parts, _Batches)
_make_plan = as_call(_plan.make_plan)


def read_batches(path: str | os.PathLike[str], **options: Any) -> Any:
    """Read records as a ``pyarrow.RecordBatchReader``, which pandas, Polars, DuckDB and others accept.

    Batches are read as you consume them, with one or two in memory. The reader is closed when it is garbage-collected.

    Args:
        path: a file, a folder, a pattern or a data set.
        options: the options of `open_batches`, which also lists the errors.
    """
    return _reader(_pulled(lambda: _open_batches(path, **options)))


def to_table(path: str | os.PathLike[str], **options: Any) -> Any:
    """Read all records into one ``pyarrow.Table``. If a local file has no schema, infer it from all records.

    For ``path`` and ``options``, see `open_batches`.
    """
    try:
        return read_batches(path, **options).read_all()
    except SchemaError:
        if options.get("schema") is not None or options.get("split") is not None or not os.path.isfile(path):
            raise
    opened = {name: value for name, value in options.items() if name in ("verify", "storage", "storage_options")}
    with open_reader(path, **opened) as records:
        schema = Schema.infer(records)
    return read_batches(path, **{**options, "schema": schema}).read_all()


def to_pandas(path: str | os.PathLike[str], **options: Any) -> Any:
    """Read all records into a ``pandas.DataFrame``. For ``path`` and ``options``, see `open_batches`."""
    return to_table(path, **options).to_pandas()


def write_batches(
    path: str | os.PathLike[str], batches: Any, *, schema: Schema | Any = None, narrow: bool = True, **options: Any
) -> int:
    """Write a ``pyarrow`` Table, RecordBatch, RecordBatchReader or iterable of batches. Return the number of rows.

    Args:
        path: a folder and the data set's name in it.
        batches: the rows, which are written as they are read, with one batch in memory.
        schema: as for `open_batch_writer`; by default, the schema of the batches. If ``batches`` is a Table or a
            RecordBatch, which can be searched for nulls beforehand, a column of single values and nulls then becomes a
            VarLen.
        narrow: whether to round float64 to float32.
        options: the options of `asyncrec.open_sharded_writer`.
    """
    whole = isinstance(batches, pa.Table | pa.RecordBatch)
    each = iter([batches] if whole else batches)
    first = next(each, None)
    if first is not None:
        chunks_of(first)  # raises TypeError if this is not a batch, before a data set is created
    told = getattr(batches, "schema", None) if schema is None else schema
    if told is None and first is not None:
        told = first.schema
    if told is None:
        raise SchemaError(f"{os.fspath(path)}: the stream has no batches to take a schema from; pass schema=")
    nulls = null_columns(batches) if whole and schema is None else None
    records, metadata = schemas_of(told, options.pop("metadata", None), nulls=nulls)
    rows = 0
    with _open_writer(path, records, metadata, narrow=narrow, **options) as writer:
        while first is not None:
            writer.write(first)
            rows += first.num_rows
            first = next(each, None)
    return rows


def from_pandas(frame: Any, path: str | os.PathLike[str], **options: Any) -> int:
    """Write a ``pandas.DataFrame`` without its index and return the number of rows. See `write_batches`."""
    return write_batches(path, pa.Table.from_pandas(frame, preserve_index=False), **options)


def plan_batches(path: str | os.PathLike[str], *, part_bytes: Size | None = None, **options: Any) -> Plan:
    """Divide the records of a path into parts that any process can read, for distributed engines.

    Args:
        path: a file, a folder, a pattern or a data set.
        part_bytes: the maximum size of a part, for shards that have an index. A part has at least one record or, in a
            GZIP shard, one member.
        options: ``split``, ``schema``, ``columns``, ``newest``, ``worker``, ``storage`` and ``storage_options`` of
            `open_batches`.
    """
    return _make_plan(path, part_bytes=part_bytes, **options)


def read_parts(maker: BatchMaker, parts: Sequence[Part], **options: Any) -> Any:
    """Return a ``pyarrow.RecordBatchReader`` over some parts of a plan.

    Args:
        maker: the plan's maker.
        parts: the parts to read, in this order.
        options: ``batch_rows``, ``batch_bytes``, ``verify``, ``storage`` and ``storage_options`` of `open_batches`.
    """
    return _reader(_pulled(lambda: _open_parts(maker, parts, **options)))


def _pulled(open_: Any) -> Iterator[Any]:
    """Yield the schema, then the batches. The reader is closed when the generator is garbage-collected."""
    with open_() as batches:
        yield batches.schema
        yield from batches


def _reader(pulled: Iterator[Any]) -> Any:
    schema = next(pulled)  # starts the generator, which opens the reader, so that garbage collection closes it
    return pa.RecordBatchReader.from_batches(schema, pulled)
