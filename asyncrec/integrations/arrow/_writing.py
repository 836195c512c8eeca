"""`open_batch_writer` writes Arrow batches as the records of a data set."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa

from asyncrec._concurrency.tasks import in_thread
from asyncrec._shards.manifest.manifest import CheckedMetadata
from asyncrec._shards.writing.open import open_sharded_writer
from asyncrec._shards.writing.writer import ShardedWriter
from asyncrec.errors import ArgumentTypeError, ArgumentValueError, SchemaError
from asyncrec.example._schema import Schema
from asyncrec.integrations.arrow._column_types import ColumnTypes, agreed_types
from asyncrec.integrations.arrow._to_records import chunks_of, records_from
from asyncrec.integrations.arrow._types import ARROW_SCHEMA, encode_arrow, schema_of
from asyncrec.storage._url import redact

_PIECE_BYTES = 1 << 20  # how much of a batch is encoded at once, which limits the memory needed besides the batch


class BatchWriter:
    """A writer of Arrow batches, opened by `open_batch_writer`. Any number of tasks may use it.

    Attributes:
        writer: the `asyncrec.ShardedWriter` of the records, for ``flush``, ``commit``, ``wait`` and ``stats``.
        schema: the schema of the records.
    """

    def __init__(
        self, writer: ShardedWriter, schema: Schema, types: ColumnTypes, *, key: str | None, narrow: bool
    ) -> None:
        self.writer = writer
        self.schema = schema
        self._types = types
        self._key = key
        self._narrow = narrow

    async def write(self, batch: Any) -> int:
        """Write the rows of a ``pyarrow.RecordBatch`` or ``Table`` in order and return the ticket of the last one.

        Times are cast to the units of the data set first. If cancelled, an initial part of the rows has been written.

        Raises:
            SchemaError: a row does not match the schema. The message names the column and the row. Earlier rows may
                have been written, a MiB at a time. Or a column of times has another kind of values, or a unit cannot
                hold a time; no row has been written.
            Others: the errors of `asyncrec.ShardedWriter.write`.
        """
        ticket = 0
        batch = await in_thread(self._types.cast, batch)
        for first, piece in pieces(batch):
            records, keys = await in_thread(self._made, piece, first)
            if keys is None:
                ticket = await self.writer.write_many(records)
                continue
            for record, key in zip(records, keys, strict=True):
                ticket = await self.writer.write(record, key=key)
        return ticket

    def _made(self, piece: Any, first: int) -> tuple[list[bytes], list[str | bytes] | None]:
        """Return the records of a piece, and their keys if there is a key column. Blocks."""
        records = records_from(piece, self.schema, narrow=self._narrow, first=first)
        return records, None if self._key is None else _keys(piece, self._key, first)


@asynccontextmanager
async def open_batch_writer(
    path: str | os.PathLike[str], schema: Schema | Any, *, key: str | None = None, narrow: bool = True, **options: Any
) -> AsyncIterator[BatchWriter]:
    """Write Arrow batches to shards: ``async with open_batch_writer("s3://crawl/2026/pages", schema) as writer: ...``.

    The manifest stores the schema and the Arrow types, so that times, large text, and columns of single values and
    nulls are read with their original types. If the data set exists, its times keep their units, and the times in the
    batches are cast to them.

    Args:
        path: a folder and the data set's name in it.
        schema: the schema of the records, or the ``pyarrow.Schema`` of the batches. If a column of single values
            contains nulls, pass the `Schema` that `schema_of` returns with ``nulls``.
        key: the column whose text or bytes are the keys of the records.
        narrow: whether to round float64 to float32. If false, a value that would change raises an error.
        options: the options of `asyncrec.open_sharded_writer`, which also lists the errors.

    Raises:
        SchemaError: a column holds times, and the data set stores another kind of times in it, or plain integers.
    """
    records, metadata = schemas_of(schema, options.pop("metadata", None))
    async with open_writer_of(path, records, metadata, key=key, narrow=narrow, **options) as writer:
        yield writer


@asynccontextmanager
async def open_writer_of(
    path: str | os.PathLike[str],
    schema: Schema,
    metadata: dict[str, Any],
    *,
    key: str | None = None,
    narrow: bool = True,
    **options: Any,
) -> AsyncIterator[BatchWriter]:
    """Call `open_batch_writer` with the schemas that `schemas_of` returned."""
    if key is not None and key not in schema.features:
        raise ArgumentValueError(f"key={key!r}: there is no such column; the columns are {', '.join(schema.features)}")
    types = ColumnTypes(redact(str(path)), schema, metadata, mode=options.get("mode", "append"))
    found = {name: options.get(name) for name in ("storage", "storage_options")}
    types = await agreed_types(path, types, **found)
    # The data set may change before the writer opens, in particular if the writer recovers a dead writer's records.
    checked = CheckedMetadata(types.metadata, types.check)
    async with open_sharded_writer(path, schema=schema, metadata=checked, **options) as writer:
        yield BatchWriter(writer, schema, types, key=key, narrow=narrow)


def schemas_of(
    schema: Schema | Any, metadata: Any = None, *, nulls: list[str] | None = None
) -> tuple[Schema, dict[str, Any]]:
    """Return the schema of the records, and the manifest's metadata, including the Arrow schema if one was passed."""
    told = dict(metadata or {})
    if isinstance(schema, Schema):
        return schema, told
    if not isinstance(schema, pa.Schema):
        raise ArgumentTypeError(f"schema must be a Schema or a pyarrow.Schema, not a {type(schema).__name__}")
    return schema_of(schema, nulls=nulls or ()), {ARROW_SCHEMA: encode_arrow(schema), **told}


def pieces(batch: Any) -> Iterator[tuple[int, Any]]:
    """Divide a batch or table into RecordBatches of about a MiB, or of one row if that is larger.

    Yield each with the number of its first row.
    """
    before = 0
    for part in chunks_of(batch):
        rows = part.num_rows
        count = max(1, min(rows, part.nbytes // _PIECE_BYTES))
        for number in range(count):
            start, stop = rows * number // count, rows * (number + 1) // count
            if start < stop:
                yield before + start, part.slice(start, stop - start)
        before += rows


def _keys(batch: Any, key: str, first: int) -> list[str | bytes]:
    values = batch.column(key).to_pylist()
    for row, value in enumerate(values):
        if not isinstance(value, str | bytes):
            raise SchemaError(
                f"row {first + row} of the batch: the key column {key!r} has the value {value!r}; a key must be "
                "text or bytes"
            )
    return values  # type: ignore[no-any-return]  # as checked
