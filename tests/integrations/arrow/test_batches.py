"""Records are converted to batches and back without loss."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec import FixedLen, Schema, Sparse, VarLen, encode_example, encode_sequence_example
from asyncrec.errors import SchemaError
from asyncrec.example import Sequence, Tensor
from asyncrec.integrations.arrow import schema_of, to_batch, to_records

from .test_schemas import EVERY_ENTRY


def of_every_entry(number: int) -> bytes:
    row: dict[str, object] = {
        "id": number,
        "half": np.float16(number / 2),
        "emb": np.arange(6, dtype=np.float32) + number,
        "exact": np.array([number / 3, 1e300]).tobytes(),
        "body": bytes([number]) * number,
        "image": bytes(range(number)),
        "image_shape": [1, number],
        "ix": [1, 0],
        "iy": [2, 3],
        "iv": [0.5, number],
    }
    if number % 2:
        row["tags"] = np.array([f"t{each}" for each in range(number % 3)], object)
        row["flag"] = False
    return encode_example(row)


def test_every_entry_converts_to_its_column() -> None:
    batch = to_batch([of_every_entry(number) for number in range(4)], EVERY_ENTRY)
    assert batch.schema.metadata[b"asyncrec.schema"]
    assert batch.slice(3).to_pylist() == [
        {
            "id": 3,
            "half": 1.5,
            "flag": False,
            "emb": [[3.0, 4.0, 5.0], [6.0, 7.0, 8.0]],
            "exact": [1.0, 1e300],
            "body": b"\3\3\3",
            "tags": [],
            "image": {"values": [0, 1, 2], "shape": [1, 3]},
            "sparse": {"indices": [[0, 3], [1, 2]], "values": [3.0, 0.5]},
        }
    ]
    assert batch.column("tags").to_pylist() == [None, ["t0"], None, []]  # absent becomes null; empty stays empty
    assert batch.column("flag").to_pylist() == [True, False, True, False]  # the default replaces a missing value
    batch.validate(full=True)


def test_records_round_trip_through_batch() -> None:
    batch = to_batch([of_every_entry(number) for number in range(30)], EVERY_ENTRY)
    assert to_batch(to_records(batch), EVERY_ENTRY).equals(batch)


def test_sequences_round_trip_through_batch() -> None:
    schema = Schema(
        {"n": FixedLen((), "int64"), "frames": Sequence(FixedLen((2,), "int64")), "w": Sequence(VarLen("str"))}
    )
    records = [
        encode_sequence_example({"n": n}, {"frames": [[n, 1]] * n, "w": [["a"], np.array([], object), ["b", "c"]]})
        for n in range(3)
    ]
    batch = to_batch(records, schema)
    batch.validate(full=True)
    assert batch.to_pylist()[2] == {"n": 2, "frames": [[2, 1], [2, 1]], "w": [["a"], [], ["b", "c"]]}
    assert to_batch(to_records(batch), schema).equals(batch)


def test_empty_batch_has_all_columns() -> None:
    batch = to_batch([], EVERY_ENTRY)
    assert (batch.num_rows, batch.schema.names) == (0, list(EVERY_ENTRY.features))
    assert to_records(batch) == []


def test_columns_not_requested_are_not_decoded() -> None:
    records = [encode_example({"a": n, "b": "not what the schema says"}) for n in range(30)]
    schema = Schema({"b": FixedLen((), "int64"), "a": FixedLen((), "int64")})
    assert to_batch(records, schema, columns=["a"]).to_pydict() == {"a": list(range(30))}


@pytest.mark.parametrize(
    ("bad", "schema"),
    [
        ({"a": 1}, Schema({"a": FixedLen((), "float32")})),
        ({"a": [1, 2]}, Schema({"a": FixedLen((), "int64")})),
        ({"a": [b"x", b"y"]}, Schema({"a": FixedLen((), "bytes")})),
        ({"a": b"\xff"}, Schema({"a": FixedLen((), "str")})),
        ({"a": b"\xff"}, Schema({"a": VarLen("str")})),
        ({"a": 300}, Schema({"a": FixedLen((), "uint8")})),
        ({}, Schema({"a": FixedLen((), "bytes")})),
    ],
    ids=str,
)
def test_misfit_record_error_matches_decode_batch(bad: dict[str, object], schema: Schema) -> None:
    good = {"float32": 1.0, "int64": 1, "uint8": 1, "bytes": b"x", "str": "x"}[schema.features["a"].dtype]  # type: ignore[attr-defined]
    records = [encode_example({"a": good})] * 40 + [encode_example(bad)]
    with pytest.raises(SchemaError) as expected:
        schema.decode_batch(records)
    with pytest.raises(SchemaError) as raised:
        to_batch(records, schema)
    assert str(raised.value) == str(expected.value)
    assert "record 40 of the batch" in str(raised.value)


def test_batch_follows_requested_arrow_schema() -> None:
    """A column with one nullable value contains the record's value, or null if the record has none."""
    wanted = pa.schema(
        [pa.field("n", pa.int32()), pa.field("s", pa.large_string()), pa.field("t", pa.timestamp("ms"), nullable=False)]
    )
    records = [encode_example({"n": 5, "t": 0, "more": 1.0}), encode_example({"s": "x", "t": 1000})] * 20
    batch = to_batch(records, wanted)
    assert batch.schema.equals(wanted)
    assert batch.slice(0, 2).to_pylist() == [
        {"n": 5, "s": None, "t": datetime.datetime(1970, 1, 1)},
        {"n": None, "s": "x", "t": datetime.datetime(1970, 1, 1, 0, 0, 1)},
    ]
    with pytest.raises(SchemaError, match="'n': 2 values, but the column holds one per record"):
        to_batch([encode_example({"n": [1, 2], "t": 0})], wanted)


def test_times_dictionaries_and_tensors_are_stored_by_value() -> None:
    table = pa.table(
        {
            "when": pa.array([0, 10**9], pa.timestamp("ns", "UTC")),
            "day": pa.array([1, 2], pa.date32()),
            "word": pa.array(["a", "b"]).dictionary_encode(),
            "view": pa.array(["a", "b"], pa.string_view()),
            "tensor": pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(12, dtype=np.float32).reshape(2, 2, 3)),
        }
    )
    schema = schema_of(table.schema)
    assert to_batch(to_records(table), schema).slice(1).to_pylist() == [
        {"when": 10**9, "day": 2, "word": "b", "view": "b", "tensor": [[6.0, 7.0, 8.0], [9.0, 10.0, 11.0]]}
    ]


def test_slices_and_chunks_are_stored_as_viewed() -> None:
    table = pa.table(
        {
            "a": pa.array([1, None, 3, 4]),
            "b": pa.array([["x"], None, [], ["y", "z"]]),
            "c": pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
        }
    )
    schema = Schema({"a": VarLen("int64"), "b": VarLen("str"), "c": VarLen("float32")})
    expected = to_records(table, schema)
    chunked = pa.concat_tables([table.slice(0, 1), table.slice(1, 2), table.slice(3)])
    assert to_records(chunked, schema) == expected
    assert to_batch(expected, schema).column("b").to_pylist() == [["x"], None, [], ["y", "z"]]


@pytest.mark.parametrize(
    ("column", "entry", "fault"),
    [
        (pa.array([1, None]), FixedLen((), "int64"), "row 1 is null"),
        (
            pa.array([[1, None]]),
            VarLen("int64"),
            r"column 'x': row 0 contains a null inside its list; expected VarLen\(dtype='int64'\)",
        ),
        (pa.array([[1], [1, 2]]), FixedLen((2,), "int64"), "different lengths"),
        (pa.array([[1]]), FixedLen((2,), "int64"), "rows have 1 values"),
        (pa.array([1, 300]), FixedLen((), "uint8"), "300"),
        (pa.array(["x"]), FixedLen((), "int64"), "string"),
        (pa.array([1]), FixedLen((), "str"), "int64"),
        (pa.array([b"\xff"]), FixedLen((), "str"), "(?i)utf"),
        (pa.array([2**63], pa.uint64()), FixedLen((), "uint64"), "row 0"),
        (pa.array([1e300]), FixedLen((), "float64"), "float32"),
    ],
)
def test_unsuitable_column_error_names_column(column: Any, entry: Any, fault: str) -> None:
    with pytest.raises(SchemaError, match=fault) as raised:
        to_records(pa.table({"x": column}), Schema({"x": entry}))
    assert "'x'" in str(raised.value)


@pytest.mark.parametrize(
    ("column", "entry"),
    [
        (pa.array([[1, 2], None, [3, None], [None]]), VarLen("int64")),
        (pa.array([[["a"]], [None, []], [["b"], ["c", None]]]), Sequence(VarLen("str"))),
        (pa.array([[[1]], [[2]], [[3], None]]), Sequence(FixedLen((1,), "int64"))),
        (pa.array([[1, 2], [3, 4], [5, None]], pa.list_(pa.int64(), 2)), FixedLen((2,), "int64")),
        (pa.array([{"values": [1.0] * n, "shape": [n]} for n in (1, 2)] + [{"values": [None], "shape": [1]}]),
         Tensor("float32")),
    ],
    ids=["list", "steps of lists", "steps", "fixed-size list", "struct"],
)  # fmt: skip
def test_null_inside_list_is_reported_by_row(column: Any, entry: Any) -> None:
    schema = Schema({"x": entry})
    batch = pa.record_batch({"x": column})
    for part, row in ((batch, 2), (batch.slice(1), 1), (pa.Table.from_batches([batch.slice(0, 1), batch.slice(1)]), 2)):
        with pytest.raises(SchemaError, match=f"column 'x': row {row} contains a null inside its list"):
            to_records(part, schema)


def test_missing_column_error_names_column() -> None:
    with pytest.raises(SchemaError, match="no column 'b'"):
        to_records(pa.table({"a": [1]}), Schema({"a": FixedLen((), "int64"), "b": FixedLen((), "int64")}))
    assert len(to_records(pa.table({"a": [1]}), Schema({"a": FixedLen((), "int64"), "b": VarLen("int64")}))) == 1


def test_doubles_are_narrowed_unless_disabled_or_raw() -> None:
    table = pa.table({"x": [0.1]})
    (record,) = to_records(table)
    assert schema_of(table.schema).decode(record)["x"] == np.float32(0.1)
    with pytest.raises(SchemaError, match=r"0\.1"):
        to_records(table, narrow=False)
    raw = Schema({"x": FixedLen((), "float64", raw=True)})
    assert to_batch(to_records(table, raw, narrow=False), raw).column("x").to_pylist() == [0.1]


values = {
    "int64": (st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "float32": (st.floats(width=32, allow_nan=False), pa.float32()),
    "bytes": (st.binary(max_size=20), pa.binary()),
    "str": (st.text(max_size=10), pa.string()),
    "bool": (st.booleans(), pa.bool_()),
}


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, Schema]:
    rows = draw(st.integers(0, 40))
    columns: dict[str, Any] = {}
    entries: dict[str, Any] = {}
    for number, dtype in enumerate(draw(st.lists(st.sampled_from(sorted(values)), min_size=1, max_size=4))):
        one, kind = values[dtype]
        if draw(st.booleans()):
            lists = st.none() | st.lists(one, max_size=3)
            columns[f"c{number}"] = pa.array(draw(st.lists(lists, min_size=rows, max_size=rows)), pa.list_(kind))
            entries[f"c{number}"] = VarLen(dtype)
        else:
            columns[f"c{number}"] = pa.array(draw(st.lists(one, min_size=rows, max_size=rows)), kind)
            entries[f"c{number}"] = FixedLen((), dtype)
    return pa.table(columns), Schema(entries)


@pytest.mark.slow
@given(tables())
def test_any_table_round_trips_through_records(made: tuple[Any, Schema]) -> None:
    table, schema = made
    assert to_batch(to_records(table, schema), schema).to_pylist() == table.to_pylist()


def test_wrong_batch_and_schema_types_are_rejected() -> None:
    with pytest.raises(TypeError, match="RecordBatch or Table"):
        to_records([{"a": 1}])
    with pytest.raises(SchemaError, match="not a dict"):
        to_batch([], {"a": 1})


def test_sparse_entry_without_values_is_empty() -> None:
    schema = Schema({"s": Sparse("float32", (3,), ("i",), "v")})
    batch = to_batch([encode_example({}), encode_example({"i": 1, "v": 2.0})], schema)
    assert batch.to_pylist() == [{"s": {"indices": [], "values": []}}, {"s": {"indices": [[1]], "values": [2.0]}}]
    assert to_batch(to_records(batch), schema).equals(batch)


def test_text_tensor_round_trips_through_batch() -> None:
    schema = Schema({"t": Tensor("str")})
    records = [encode_example({"t": ["a", "b"], "t_shape": [2, 1]}), encode_example({"t": ["c"]})]
    batch = to_batch(records, schema)
    assert batch.column("t").to_pylist() == [{"values": ["a", "b"], "shape": [2, 1]}, {"values": ["c"], "shape": [1]}]
    assert to_batch(to_records(batch), schema).equals(batch)


@pytest.mark.parametrize("dense", [VarLen("bytes"), FixedLen((2,), "bytes")])
def test_two_entries_may_share_one_bytes_feature(dense: VarLen | FixedLen) -> None:
    schema = Schema({"val": dense, "sparse": Sparse("bytes", (5,), ("at",), "val")})
    records = [encode_example({"val": [b"x", b"yy"], "at": [1, 3]}), encode_example({"val": [b"", b"z"], "at": [0, 4]})]
    batch = to_batch(records, schema)
    assert batch["val"].to_pylist() == [[b"x", b"yy"], [b"", b"z"]]
    assert [row["values"] for row in batch["sparse"].to_pylist()] == [[b"x", b"yy"], [b"", b"z"]]
