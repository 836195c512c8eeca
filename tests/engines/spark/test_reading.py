"""Spark reads each record once, by shards and by ranges of shards, with the types of the written rows."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asyncrec import FixedLen, Schema, Sparse, VarLen, blocking, encode_example
from asyncrec.example import Tensor
from asyncrec.integrations.arrow import write_batches

pytestmark = pytest.mark.timeout(600)

ROWS = 4000


def source(folder: Path, **options: Any) -> str:
    table = pa.table({"id": range(ROWS), "body": [b"%d" % n * 100 for n in range(ROWS)]})
    write_batches(folder / "source", table, max_shard_records=500, **options)
    return str(folder / "source")


def load(spark: Any, path: Any, **options: Any) -> Any:
    return spark.read.format("asyncrec").options(**options).load(str(path))


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


def test_records_are_read_once_by_shards_and_ranges(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "gzip").mkdir()
    whole = load(spark, source(tmp_path / "gzip", compression="GZIP"))
    assert whole.rdd.getNumPartitions() == 8
    assert ids(whole) == list(range(ROWS))
    path = source(tmp_path)
    parts = load(spark, path, part_bytes="2000", columns="id", max_partitions=20)
    assert parts.columns == ["id"]
    assert 8 < parts.rdd.getNumPartitions() <= 20
    assert ids(parts) == list(range(ROWS))
    assert ids(load(spark, tmp_path, split="source[10:20]")) == list(range(10, 20))
    assert len(load(spark, path).limit(7).collect()) == 7
    assert load(spark, path).where("id = 77").select("body").collect() == [(bytearray(b"77" * 100),)]


def test_newest_version_of_each_key_is_read(spark: Any, tmp_path: Path) -> None:
    schema = Schema({"id": FixedLen((), "int64"), "date": FixedLen((), "int64")})
    with blocking.open_sharded_writer(
        tmp_path / "pages", schema=schema, max_shard_records=30, on_duplicate="write"
    ) as writer:
        for number in range(150):
            writer.write({"id": number, "date": number if number % 2 else -number}, key=f"{number % 100}")
    wanted = sorted([*range(50, 100), *(n if n % 2 == 0 else n + 100 for n in range(50))])
    assert ids(load(spark, tmp_path / "pages", newest="date", part_bytes="300")) == wanted
    assert load(spark, tmp_path / "pages", newest="date").count() == len(wanted)


def test_column_types_match_written_types(spark: Any, tmp_path: Path) -> None:
    when = datetime(2026, 11, 22, 12, 0, 0, 5)
    columns = {
        "when": pa.array([when], pa.timestamp("us")),
        "seconds": pa.array([7], pa.timestamp("s")),
        "zone": pa.array([when], pa.timestamp("us", "UTC")),
        "short": pa.array([3], pa.int16()),
        "byte": pa.array([200], pa.uint8()),
        "long": pa.array([2**63 - 1], pa.uint64()),
        "half": pa.array([0.5], pa.float16()),
        "yes": [True],
        "text": pa.array(["ä"], pa.large_string()),
        "words": [["a", "b"]],
        "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2)),
        "steps": [[[1], [2, 3]]],
    }
    write_batches(tmp_path / "d", pa.table(columns))
    frame = load(spark, tmp_path / "d").drop("zone")
    assert frame.dtypes == [
        ("when", "timestamp_ntz"),
        ("seconds", "timestamp_ntz"),
        ("short", "smallint"),
        ("byte", "smallint"),
        ("long", "bigint"),
        ("half", "float"),
        ("yes", "boolean"),
        ("text", "string"),
        ("words", "array<string>"),
        ("vector", "array<float>"),
        ("steps", "array<array<bigint>>"),
    ]
    (row,) = frame.collect()
    assert list(row) == [
        when,
        datetime(1970, 1, 1, 0, 0, 7),
        3,
        200,
        2**63 - 1,
        0.5,
        True,
        "ä",
        ["a", "b"],
        [1.0, 2.0],
        [[1], [2, 3]],
    ]
    (at,) = load(spark, tmp_path / "d").selectExpr("unix_micros(zone) as at").collect()
    assert at["at"] % 10**6 == 5


def test_sparse_and_tensor_columns_are_structs(spark: Any, tmp_path: Path) -> None:
    schema = Schema({"s": Sparse("float32", (9,), ("i",), "v"), "t": Tensor("float32")})
    with blocking.open_sharded_writer(tmp_path / "d", schema=schema) as writer:
        writer.write(encode_example({"i": [2, 4], "v": [1.0, 2.0], "t": [1.0, 2.0], "t_shape": [2, 1]}))
    (row,) = load(spark, tmp_path / "d").collect()
    assert (row["s"]["indices"], row["s"]["values"]) == ([[2], [4]], [1.0, 2.0])
    assert row["t"]["shape"] == [2, 1]


def test_reader_schema_selects_columns_and_types(spark: Any, tmp_path: Path) -> None:
    schema = Schema({"id": FixedLen((), "int64"), "maybe": VarLen("int64"), "name": FixedLen((), "str")})
    with blocking.open_sharded_writer(tmp_path / "d", schema=schema) as writer:
        writer.write(schema.encode({"id": 1, "name": "x"}))
        writer.write(schema.encode({"id": 2, "maybe": [5], "name": "y"}))
    read = spark.read.format("asyncrec")
    assert load(spark, tmp_path / "d").orderBy("id").collect() == [(1, None, "x"), (2, [5], "y")]
    assert read.schema("maybe int, id int").load(str(tmp_path / "d")).orderBy("id").collect() == [(None, 1), (5, 2)]
    with pytest.raises(Exception, match="there is no column 'other'"):
        read.schema("other int").load(str(tmp_path / "d")).collect()
    with pytest.raises(Exception, match="without a time unit"):
        read.schema("id timestamp").load(str(tmp_path / "d")).collect()
    with pytest.raises(Exception, match="without a time unit"):
        read.schema("maybe array<timestamp>").load(str(tmp_path / "d")).collect()


def test_records_without_schema_require_reader_schema(spark: Any, tmp_path: Path) -> None:
    with blocking.open_writer(tmp_path / "a.tfrecord") as writer:
        writer.write(encode_example({"id": 3}))
    with pytest.raises(Exception, match="the data set has no schema"):
        load(spark, tmp_path / "a.tfrecord")
    read = spark.read.format("asyncrec").schema("id bigint")
    assert read.load(str(tmp_path / "a.tfrecord")).collect() == [(3,)]


def test_reading_reports_missing_path_and_unknown_option(spark: Any, tmp_path: Path) -> None:
    write_batches(tmp_path / "d", pa.table({"id": pa.array([], pa.int64())}))
    assert load(spark, tmp_path / "d").collect() == []
    with pytest.raises(Exception, match="nothing"):
        load(spark, tmp_path / "nothing")
    with pytest.raises(Exception, match="no option 'colums' here; the options are"):
        load(spark, tmp_path / "d", colums="id")


def test_damaged_record_error_names_file(spark: Any, tmp_path: Path) -> None:
    path = source(tmp_path)
    shard = min(tmp_path.glob("source-*.tfrecord"))
    content = bytearray(shard.read_bytes())
    content[1000] ^= 1
    shard.write_bytes(content)
    with pytest.raises(Exception, match=shard.name):
        load(spark, path).collect()
