"""Read a data set in partitions: one or more shards each, or a range of the records in a large shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from asyncrec.errors import SchemaError
from asyncrec.integrations._engines import PART_BYTES, groups, seen_from_tasks
from asyncrec.integrations.arrow import BatchMaker, Part, Plan, plan_batches, read_parts
from asyncrec.integrations.arrow._units import leaf_of
from asyncrec.integrations.spark._types import arrow_of, spark_schema

_MOST_PARTITIONS = 10_000  # each partition needs an object in Spark's driver, and a task


def stored_schema(options: dict[str, Any]) -> Any:
    """Return the ``StructType`` of the records to read."""
    return spark_schema(_plan(options, part_bytes=None, columns=options.get("columns")).maker.arrow)


class _Partition(InputPartition):  # type: ignore[misc]  # types are checked without PySpark
    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(parts)


class Reader(DataSourceReader):  # type: ignore[misc]  # as above
    """A reader of the columns that the ``StructType`` names. Other columns are not read."""

    def __init__(self, options: dict[str, Any], schema: Any) -> None:
        self._wanted = arrow_of(schema)
        names = self._wanted.names
        told = {"part_bytes": options.get("part_bytes", PART_BYTES), "newest": options.get("newest"), "columns": names}
        try:
            plan = _plan(options, **told)
        except SchemaError:  # no schema is stored, so the user must have passed `schema`
            plan = _plan({**options, "schema": self._wanted}, **told)
        self._maker = BatchMaker(plan.maker.schema, arrow=_between(plan.maker.arrow, self._wanted))
        self._parts = plan.parts
        self._most = max(1, options.get("max_partitions", _MOST_PARTITIONS))
        kept = ("batch_rows", "batch_bytes", "verify", "storage_options")
        self._options = {name: options[name] for name in kept if name in options}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parts": ()}  # each task receives the parts of its partition

    def partitions(self) -> list[Any]:
        return [_Partition(parts) for parts in groups(self._parts, self._most)]

    def read(self, partition: Any) -> Iterator[Any]:
        if not isinstance(partition, _Partition):  # Spark makes an empty partition itself if there are no parts
            return
        for batch in read_parts(self._maker, partition.value, **self._options):
            yield _as_wanted(batch, self._wanted)


def _plan(options: dict[str, Any], **more: Any) -> Plan:
    told = {name: options[name] for name in ("split", "schema", "storage_options") if name in options}
    return plan_batches(seen_from_tasks(options["path"]), **told, **more)


def _between(stored: Any, wanted: Any) -> Any:
    """Return the types in which to read the columns, before they are cast to the requested types.

    These are the stored types. If a column of lists is requested as single values, it is the type of the lists' values.

    Raises:
        SchemaError: a column is requested as times but stored as integers without a time unit.
    """
    fields = []
    for field, asked in zip(stored, wanted, strict=True):
        if pa.types.is_list(field.type) and not pa.types.is_nested(asked.type):
            field = pa.field(field.name, field.type.value_type, nullable=True)
        if pa.types.is_temporal(leaf_of(asked.type)) and pa.types.is_integer(leaf_of(field.type)):
            raise SchemaError(
                f"column {field.name!r} is stored as {field.type} without a time unit, so it cannot be read as a "
                "time; read it as it is stored, and convert it in Spark"
            )
        fields.append(field)
    return pa.schema(fields, metadata=stored.metadata)


def _as_wanted(batch: Any, wanted: Any) -> Any:
    columns = []
    for field, column in zip(wanted, batch.columns, strict=True):
        try:
            columns.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as error:
            raise SchemaError(
                f"column {field.name!r} is {column.type} and cannot be converted to {field.type}: {error}"
            ) from error
    return pa.RecordBatch.from_arrays(columns, schema=wanted)
