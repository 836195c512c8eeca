"""`AsyncrecDataSource`, the data source of ``format("asyncrec")``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from pyspark.sql.datasource import DataSource

from asyncrec._arguments import byte_count
from asyncrec.errors import ArgumentValueError
from asyncrec.example._schema import Schema
from asyncrec.integrations.spark._reading import Reader, stored_schema
from asyncrec.integrations.spark._writing import Writer


class AsyncrecDataSource(DataSource):  # type: ignore[misc]  # types are checked without PySpark
    """The data source ``asyncrec`` for batch jobs of Spark 4.

    All options are text. A number of bytes may be written as ``64MiB``; an object is written as JSON.

    Options for reading:
        path: a file, a folder, a pattern or a data set, accessible by this path on every node; passed to ``load``.
        split: as for `asyncrec.integrations.arrow.open_batches`; ``path`` is then the folder of the splits.
        columns: the names of the columns to read, separated by commas. Other columns are not parsed. ``schema(...)``
            also selects columns and determines their types in Spark.
        newest: as for `asyncrec.integrations.arrow.open_batches`.
        schema: the JSON of `Schema.to_json`, if no schema is stored with the records; or pass it to ``schema(...)``.
        part_bytes: a larger shard with an index is divided into several partitions; 128 MiB by default.
        max_partitions: the maximum number of partitions; neighbouring shards may share a partition; 10,000 by default.
        batch_rows, batch_bytes, verify: as for `asyncrec.integrations.arrow.open_batches`.
        storage_options: an object with options for the backend, which every task uses.

    Options for writing:
        path: a folder and the data set's name in it, accessible by this path on every node; passed to ``save``.
        job_id: a name for this work. If an earlier run with this id has committed, this run adds nothing. Otherwise,
            this run ends the earlier one.
        if_exists: with ``mode("append")``, either ``append``, or ``fail`` to raise an error if the data set exists.
            With ``mode("overwrite")``, the rows become the whole data set.
        schema: the JSON of the records' `Schema.to_json`; by default, the schema of the columns. A column that holds
            single values and nulls must be a VarLen.
        max_shard_bytes, max_shard_records, compression, index, metadata: as for `asyncrec.open_sharded_writer`; a shard
            is full at 256 MiB by default.
        narrow: if ``false``, raise an error for a float64 that float32 cannot represent exactly.
        storage_options: as for reading.
    """

    @classmethod
    def name(cls) -> str:
        return "asyncrec"

    def schema(self) -> Any:
        return stored_schema(reading_options(self.options))

    def reader(self, schema: Any) -> Reader:
        return Reader(reading_options(self.options), schema)

    def writer(self, schema: Any, overwrite: bool) -> Writer:
        return Writer(writing_options(self.options), schema, overwrite=overwrite)


def _count(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ArgumentValueError(f"option {name}={text!r}: must be a number")
    return int(text)


def _flag(text: str, name: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ArgumentValueError(f"option {name}={text!r}: must be true or false")
    return text.lower() == "true"


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # The message omits the text, which may contain credentials.
        raise ArgumentValueError(f"option {name}: must be a JSON object, such as json.dumps(a_dict)")
    return found


def _schema(text: str, name: str) -> Schema:
    return Schema.from_json(_object(text, name))


def _names(text: str, name: str) -> list[str]:
    return [each.strip() for each in text.split(",")]


def _text(text: str, name: str) -> str:
    return text


_BOTH: dict[str, Callable[[str, str], Any]] = {"path": _text, "schema": _schema, "storage_options": _object}
_READING = _BOTH | {
    "split": _text,
    "columns": _names,
    "newest": _text,
    "part_bytes": byte_count,
    "max_partitions": _count,
    "batch_rows": _count,
    "batch_bytes": byte_count,
    "verify": _flag,
}
_WRITING = _BOTH | {
    "job_id": _text,
    "if_exists": _text,
    "max_shard_bytes": byte_count,
    "max_shard_records": _count,
    "compression": _text,
    "index": _flag,
    "narrow": _flag,
    "metadata": _object,
}


def reading_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsed options of a reader.

    Raises:
        ValueError: an option is unknown, missing or malformed.
    """
    return _parsed(options, _READING, "load")


def writing_options(options: Mapping[str, str]) -> dict[str, Any]:
    """Return the parsed options of a writer. Raises the same errors as `reading_options`."""
    return _parsed(options, _WRITING, "save")


def _parsed(options: Mapping[str, str], known: dict[str, Callable[[str, str], Any]], method: str) -> dict[str, Any]:
    given = {name.lower(): text for name, text in options.items()}
    if unknown := sorted(given.keys() - known.keys()):
        raise ArgumentValueError(f"there is no option {unknown[0]!r} here; the options are {', '.join(sorted(known))}")
    if "path" not in given:
        raise ArgumentValueError(f"the path is missing; pass one path to {method}()")
    return {name: known[name](text, name) for name, text in given.items()}
