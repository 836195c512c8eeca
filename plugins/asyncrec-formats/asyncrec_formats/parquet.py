"""Parquet, read and written with pyarrow. A row is a record, and a column is a feature.

Reading: booleans and integers become int64, floats become float32 (doubles are rounded), and text and binary become
bytes. A list becomes a feature of many values, a struct becomes features named ``column/field``, and null becomes an
absent feature. Times, dates and decimals become their text. A row with other values is bad, as is a file in which two
columns would become the same feature.

Writing: columns are int64, float32 or binary (text if the schema says so). A feature whose number of values may differ
from 1 becomes a list column. An absent feature becomes null. Records with feature lists are rejected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from asyncrec import decode_sequence_example
from asyncrec.errors import SchemaError
from asyncrec.plugins import Converted, SourceFile
from asyncrec.storage import in_thread

from .parquet_rows import rows_of


@asynccontextmanager
async def open_parquet(file: SourceFile) -> AsyncIterator[AsyncIterator[Converted]]:
    """Open the records of a file through a local copy, because Parquet needs random access."""
    async with file.local_copy() as name:
        yield _Parquet(rows_of(name, file.path, file.max_record_bytes))


class _Parquet:
    def __init__(self, rows: Iterator[Converted]) -> None:
        self._rows = rows

    def __aiter__(self) -> _Parquet:
        return self

    async def __anext__(self) -> Converted:
        converted: Converted | None = await in_thread(next, self._rows, None)
        if converted is None:
            raise StopAsyncIteration
        return converted


class ParquetEncoder:
    """An encoder that converts records to a Parquet file, one row group at a time. Its methods block.

    Args:
        schema: the schema of the records, as returned by `Schema.to_json`.

    Raises:
        SchemaError: the schema has feature lists or sparse features, which have no column type.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._pa = pa
        self._columns = {name: _column(name, entry) for name, entry in schema["features"].items()}
        arrow = {
            name: pa.list_(getattr(pa, kind)()) if many else getattr(pa, kind)()
            for name, (kind, many) in self._columns.items()
        }
        self._schema = pa.schema([pa.field(name, kind) for name, kind in arrow.items()])
        self._pieces: list[bytes] = []
        self._written = 0
        self._writer = parquet.ParquetWriter(_Into(self), self._schema)

    def encode(self, records: Sequence[bytes]) -> bytes:
        """Return the next bytes of the file, which contain these records as a row group.

        Raises:
            SchemaError, DecodeError: a record does not match the schema, or has feature lists.
        """
        rows = []
        for at, record in enumerate(records):
            row, lists = decode_sequence_example(record)
            if lists:
                raise SchemaError(
                    f"record {at} of the batch is a SequenceExample, which does not fit in a table; convert to JSON "
                    "lines instead"
                )
            rows.append(row)
        for row in rows:
            if unknown := row.keys() - self._columns.keys():
                raise SchemaError(
                    f"feature {min(unknown)!r} is not in the schema, which was inferred from the first records; to "
                    "infer it from all records, run 'asyncrec schema --infer'"
                )
        arrays = []
        for name, (kind, many) in self._columns.items():
            values = [_cell(name, row.get(name), kind, many) for row in rows]
            arrays.append(self._pa.array(values, self._schema.field(name).type))
        self._writer.write_batch(self._pa.record_batch(arrays, schema=self._schema))
        return self._taken()

    def finish(self) -> bytes:
        self._writer.close()
        return self._taken()

    def take(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        self._written += len(data)
        return len(data)

    @property
    def written(self) -> int:
        return self._written

    def _taken(self) -> bytes:
        data, self._pieces = b"".join(self._pieces), []
        return data


class _Into:
    """A file object with only the methods that pyarrow requires."""

    closed = False

    def __init__(self, encoder: ParquetEncoder) -> None:
        self.write = encoder.take
        self.tell = lambda: encoder.written

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def _column(name: str, entry: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the Arrow type of a feature's values, and whether its column is a list."""
    kind, dtype = entry.get("kind"), str(entry.get("dtype"))
    if kind == "Tensor" or entry.get("raw"):
        return "binary", False
    if kind not in ("FixedLen", "VarLen"):
        raise SchemaError(f"feature {name!r} is a {kind}, which cannot be stored in a Parquet column")
    arrow = {"bytes": "binary", "str": "string"}.get(dtype, "float32" if dtype.startswith("float") else "int64")
    return arrow, kind == "VarLen" or entry.get("shape") != []


def _cell(name: str, value: Any, kind: str, many: bool) -> Any:
    if value is None or (len(value) == 0 and not many):
        return None
    expected = {"int64": "int64", "float32": "float32"}.get(kind, "bytes")
    found = "bytes" if isinstance(value, list) else str(value.dtype)
    if len(value) and found != expected:
        raise SchemaError(f"feature {name!r}: the values have the type {found}, but the schema says {expected}")
    try:
        values = [each.decode() for each in value] if kind == "string" else value
    except UnicodeDecodeError as error:
        raise SchemaError(f"feature {name!r}: the schema says text, but a value is not UTF-8 ({error})") from error
    if many:
        return values
    if len(value) != 1:
        raise SchemaError(f"feature {name!r} has {len(value)} values, but the schema allows only one")
    return values[0]
