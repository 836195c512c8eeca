"""A bad row of a Parquet file does not affect the others; a small file that claims huge contents is read in pieces."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from asyncrec_formats import parquet_rows
from asyncrec_formats.parquet_rows import rows_of

from asyncrec import decode_example
from asyncrec.plugins import Converted

LIMIT = 256 << 20


def read(folder: Path, table: pa.Table, **options: Any) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """Write a table to a file; return its records and its bad rows."""
    return gathered(written(folder, table, **options))


def written(folder: Path, table: pa.Table, *, limit: int = LIMIT, **options: Any) -> Iterator[Converted]:
    path = str(folder / "x.parquet")
    pq.write_table(table, path, **options)
    return rows_of(path, "x", limit)


def gathered(pieces: Iterator[Converted]) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    found = list(pieces)
    records = [decode_example(record) for piece in found for record in piece.records]
    return records, [(bad.where, bad.reason) for piece in found for bad in piece.bad]


NOT_UTF_8 = pa.Array.from_buffers(
    pa.string(), 3, [None, pa.py_buffer(np.array([0, 1, 3, 4], np.int32).tobytes()), pa.py_buffer(b"a\xff\xfeb")]
)


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (pa.array([0, 2**62, 1], pa.timestamp("us")), "out of range"),
        (pa.array([0, 2**30, 1], pa.date32()), "magnitude"),
        (pa.array([0, 2**61, 1], pa.duration("s")), "magnitude|too large|convert"),
        (NOT_UTF_8, "utf-8"),
        (pa.array([1, 2**64 - 1, 2], pa.uint64()), "out of range for int64"),
        (pa.array([[[1]], [[2]], [[3]]]), "nested"),
        (pa.array([{"a": 0}, {"a": 2**62}, {"a": 1}], pa.struct([("a", pa.timestamp("us"))])), "out of range"),
        (pa.array([[0], [2**62], [1]], pa.list_(pa.timestamp("us"))), "out of range"),
    ],
)
def test_reader_reports_unstorable_row_and_keeps_others(tmp_path: Path, column: pa.Array, says: str) -> None:
    records, bad = read(tmp_path, pa.table({"t": column, "n": [0, 1, 2]}))
    assert {int(each["n"][0]) for each in records} | {int(where.split()[1]) - 1 for where, _ in bad} == {0, 1, 2}
    assert "row 2" in [where for where, _ in bad]
    assert len(records) == (0 if says == "nested" else 2)
    assert all(any(each in reason for each in says.split("|")) for _, reason in bad)


@pytest.mark.parametrize(
    ("kind", "number", "text"),
    [
        (pa.timestamp("ns"), 1_000_000_001, "1970-01-01T00:00:01.000000001"),
        (pa.timestamp("ns"), -1, "1969-12-31T23:59:59.999999999"),
        (pa.timestamp("ns"), 1_000, "1970-01-01T00:00:00.000001"),
        (pa.timestamp("ns", "+02:00"), 7, "1970-01-01T02:00:00.000000007+02:00"),
        (pa.timestamp("us"), 5, "1970-01-01T00:00:00.000005"),
        (pa.time64("ns"), 3_600_000_000_001, "01:00:00.000000001"),
        (pa.duration("ns"), 1_000_001, "0:00:00.001000001"),
        (pa.duration("ns"), 1_000_000, "0:00:00.001000"),
        (pa.list_(pa.timestamp("ns")), [1, 2], "1970-01-01T00:00:00.000000001"),
        (pa.struct([("a", pa.timestamp("ns"))]), {"a": 1}, "1970-01-01T00:00:00.000000001"),
    ],
)
def test_timestamps_keep_nanoseconds(tmp_path: Path, kind: pa.DataType, number: Any, text: str) -> None:
    """pandas writes nanoseconds by default."""
    records, bad = read(tmp_path, pa.table({"t": pa.array([number, None], kind)}))
    assert not bad
    assert next(iter(records[0].values()))[0] == text.encode()
    assert records[1] == {}


def test_time_text_is_independent_of_pandas() -> None:
    """pyarrow returns pandas types if pandas is installed; this test uses similar types."""

    class Timestamp(datetime.datetime):
        nanosecond = 7

        def floor(self, unit: str) -> datetime.datetime:
            return datetime.datetime(2026, 11, 21, 1, 2, 3, 4)

    class Timedelta(datetime.timedelta):
        nanoseconds = 7

        def floor(self, unit: str) -> datetime.timedelta:
            return datetime.timedelta(days=1, microseconds=4)

    assert parquet_rows._text(Timestamp(2026, 11, 21)) == "2026-11-21T01:02:03.000004007"
    assert parquet_rows._text(Timedelta()) == "1 day, 0:00:00.000004007"


@pytest.mark.parametrize(
    ("columns", "feature"),
    [
        ([("a", pa.array([1])), ("a", pa.array([2]))], "a"),
        ([("a/b", pa.array([1])), ("a", pa.array([{"b": 1}]))], "a/b"),
    ],
)
def test_reader_rejects_columns_colliding_in_one_feature(
    tmp_path: Path, columns: list[tuple[str, pa.Array]], feature: str
) -> None:
    table = pa.Table.from_arrays([array for _, array in columns], names=[name for name, _ in columns])
    records, bad = read(tmp_path, table)
    assert (records, len(bad)) == ([], 1)
    assert repr(feature) in bad[0][1]


@pytest.mark.parametrize("store_schema", [True, False])
@pytest.mark.parametrize("shape", ["plain", "list", "struct", "map"])
def test_reader_bounds_memory_for_value_shared_by_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store_schema: bool, shape: str
) -> None:
    monkeypatch.setattr(parquet_rows, "_TAKEN_BYTES", 1 << 20)
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 2000, pa.int32()), pa.array(["x" * (100 << 10)]))
    dense = pa.array(["x" * (100 << 10)] * 2000) if shape != "plain" else text
    offsets = pa.array(range(2001), pa.int32())
    column = {
        "plain": lambda: text,
        "list": lambda: pa.ListArray.from_arrays(offsets, dense),
        "struct": lambda: pa.StructArray.from_arrays([dense], ["a"]),
        "map": lambda: pa.MapArray.from_arrays(offsets, pa.array(["k"] * 2000), dense),
    }[shape]()
    pieces = written(tmp_path, pa.table({"t": column}), store_schema=store_schema, compression="zstd")
    assert (tmp_path / "x.parquet").stat().st_size < 20_000
    count = 0
    for piece in pieces:
        assert sum(map(len, piece.records)) < 2 << 20
        count += len(piece.records) + len(piece.bad)
    assert count == 2000


def test_reader_bounds_memory_when_dictionary_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyarrow then does not use a dictionary, so fewer rows are read at once."""
    monkeypatch.setattr(parquet_rows, "_DICTIONARY_BYTES", 1)
    monkeypatch.setattr(parquet_rows, "_TAKEN_BYTES", 1 << 30)
    text = pa.array([b"x" * (100 << 10)] * 50)
    count = 0
    for piece in written(tmp_path, pa.table({"t": text}), limit=1 << 20, store_schema=False, compression="zstd"):
        assert 0 < len(piece.records) <= 10
        count += len(piece.records)
    assert count == 50


def test_reader_yields_large_distinct_values_in_pieces(tmp_path: Path) -> None:
    values = [np.random.default_rng(n).bytes(200 << 10) for n in range(30)]
    pieces = list(written(tmp_path, pa.table({"t": values}), limit=1 << 20, use_dictionary=False))
    assert max(len(piece.records) for piece in pieces) <= 6
    assert [decode_example(each)["t"] for piece in pieces for each in piece.records] == [[each] for each in values]


def test_record_over_reader_limit_is_reported_as_bad(tmp_path: Path) -> None:
    records, bad = read(tmp_path, pa.table({"t": ["x" * 990, "y", "z" * 10]}), limit=1000)
    assert [each["t"] for each in records] == [[b"y"], [b"z" * 10]]
    assert [(where, "more than the limit of 1,000" in reason) for where, reason in bad] == [("row 1", True)]
    records, bad = read(tmp_path, pa.table({"t": [[0] * 5000, [1] * 5000]}), limit=1000, row_group_size=1)
    assert not records
    assert [where for where, _ in bad] == ["rows 1 to 1", "rows 2 to 2"]


@pytest.mark.slow
@pytest.mark.parametrize("use_dictionary", [True, False])
def test_reader_returns_same_rows_for_any_encoding(tmp_path: Path, use_dictionary: bool) -> None:
    rng = np.random.default_rng(0)
    rows: list[dict[str, Any]] = [
        {
            "n": int(number),
            "s": ["a", "bb", None][number % 3],
            "l": [str(each) for each in range(number % 5)],
            "b": rng.bytes(10),
            "d": {"x": f"x{number % 7}", "y": [number]},
            "f": [0.5] * (number % 3),
        }
        for number in range(3000)
    ]
    for options in ({}, {"row_group_size": 700}, {"version": "1.0"}, {"data_page_size": 100}):
        records, bad = read(tmp_path, pa.Table.from_pylist(rows), use_dictionary=use_dictionary, **options)
        assert not bad
        assert len(records) == 3000
        for row, record in zip(rows, records, strict=True):
            assert int(record["n"][0]) == row["n"]
            assert record.get("s") == (row["s"] and [row["s"].encode()])
            assert list(record["l"]) == [each.encode() for each in row["l"]]
            assert record["b"] == [row["b"]]
            assert record["d/x"] == [row["d"]["x"].encode()]
            assert record["d/y"].tolist() == row["d"]["y"]
            assert len(record["f"]) == len(row["f"])


@pytest.mark.parametrize("table", [pa.table({}), pa.table({"a": pa.array([], pa.string())}), pa.table({"a": [None]})])
def test_empty_file_or_row_is_read_without_errors(tmp_path: Path, table: pa.Table) -> None:
    records, bad = read(tmp_path, table)
    assert (records, bad) == ([{}] * table.num_rows, [])


def test_damage_ends_reading_and_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    pq.write_table(
        pa.table({"a": [b"x" * 100] * 5000}), path, row_group_size=1000, use_dictionary=False, compression=None
    )
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 5000] = b"\xff" * 5000
    path.write_bytes(content)
    records, bad = gathered(rows_of(str(path), "x", LIMIT))
    assert 2000 <= len(records) < 5000
    assert [(where.split()[0], "the rest cannot be read" in reason) for where, reason in bad] == [("row", True)]


PROGRAM = """
import resource, sys
from asyncrec_formats.parquet_rows import rows_of
import pyarrow, numpy
resource.setrlimit(resource.RLIMIT_AS, (2 << 30,) * 2)
count = 0
for piece in rows_of(sys.argv[1], "x", 256 << 20):
    assert not piece.bad, piece.bad
    count += len(piece.records)
    if count > 3000:
        break
print(count)
"""


@pytest.mark.slow
def test_reader_needs_little_memory_for_file_inflating_to_gigabytes(tmp_path: Path) -> None:
    """The file has 50,000 rows of a megabyte each, of which 3,000 are read."""
    text = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), pa.array(["x" * (1 << 20)]))
    pq.write_table(pa.table({"t": text}), tmp_path / "x.parquet", compression="zstd")
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "x.parquet")], capture_output=True, text=True, check=False
    )
    assert int(done.stdout or 0) > 3000, done.stderr
