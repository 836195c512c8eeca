"""Convert between Spark's column types and Arrow's.

Spark has fewer types than Arrow. A fixed-size list becomes an array, an unsigned integer becomes the next larger signed
integer (uint64 becomes int64), a float16 becomes a float, and a time of day becomes the integer that is stored for it.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import types

from asyncrec.errors import SchemaError

# Pairs of types that are converted in both directions.
_SAME = (
    (pa.bool_(), types.BooleanType()),
    (pa.int8(), types.ByteType()),
    (pa.int16(), types.ShortType()),
    (pa.int32(), types.IntegerType()),
    (pa.int64(), types.LongType()),
    (pa.float32(), types.FloatType()),
    (pa.float64(), types.DoubleType()),
    (pa.string(), types.StringType()),
    (pa.binary(), types.BinaryType()),
    (pa.date32(), types.DateType()),
    (pa.timestamp("us", tz="UTC"), types.TimestampType()),
    (pa.timestamp("us"), types.TimestampNTZType()),
    (pa.duration("us"), types.DayTimeIntervalType()),
)
_SPARK = dict(_SAME)
_ARROW = {spark: arrow for arrow, spark in _SAME}

_NEAREST = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.int64(),  # an Example cannot store a larger number
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.date64(): pa.date32(),
    pa.time32("s"): pa.int32(),
    pa.time32("ms"): pa.int32(),
    pa.time64("us"): pa.int64(),
    pa.time64("ns"): pa.int64(),
}


def spark_schema(arrow: Any) -> Any:
    """Return the ``StructType`` for columns with the types of a ``pyarrow.Schema``."""
    return types.StructType([types.StructField(each.name, _spark_type(each), each.nullable) for each in arrow])


def arrow_of(schema: Any) -> Any:
    """Return the ``pyarrow.Schema`` of the batches that Spark accepts and produces for the columns of a ``StructType``.

    Raises:
        SchemaError: a column has a type that cannot be stored in a feature.
    """
    return pa.schema([pa.field(each.name, _arrow_type(each.name, each.dataType), each.nullable) for each in schema])


def _spark_type(field: Any) -> Any:
    kind = field.type
    kind = _NEAREST.get(kind, kind)
    if kind in _SPARK:
        return _SPARK[kind]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return types.ArrayType(_spark_type(kind.value_field), kind.value_field.nullable)
    if pa.types.is_struct(kind):
        return types.StructType([types.StructField(each.name, _spark_type(each), each.nullable) for each in kind])
    if pa.types.is_timestamp(kind):
        return types.TimestampNTZType() if kind.tz is None else types.TimestampType()
    if pa.types.is_duration(kind):
        return types.DayTimeIntervalType()
    if pa.types.is_fixed_size_binary(kind):
        return types.BinaryType()
    raise SchemaError(f"column {field.name!r} is {kind}, which has no Spark type; leave the column out with columns=")


def _arrow_type(name: str, kind: Any) -> Any:
    if kind in _ARROW:
        return _ARROW[kind]
    if isinstance(kind, types.StringType):  # including types with a collation or a maximum length
        return pa.string()
    if isinstance(kind, types.DayTimeIntervalType):
        return pa.duration("us")
    if isinstance(kind, types.ArrayType):
        return pa.list_(pa.field("element", _arrow_type(name, kind.elementType), kind.containsNull))
    if isinstance(kind, types.StructType):
        return pa.struct([pa.field(each.name, _arrow_type(name, each.dataType), each.nullable) for each in kind])
    raise SchemaError(
        f"column {name!r} is {kind.simpleString()}, which no feature can hold; cast the column to numbers, "
        "booleans, text, bytes, times or arrays of these, or leave it out"
    )
