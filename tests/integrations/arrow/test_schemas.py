"""A Schema converts to an Arrow schema with itself in the metadata, and suitable Arrow schemas convert to a Schema."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from asyncrec import FixedLen, Schema, Sparse, VarLen
from asyncrec.errors import SchemaError
from asyncrec.example import Sequence, Tensor
from asyncrec.integrations.arrow import arrow_schema, schema_of

EVERY_ENTRY = Schema(
    {
        "id": FixedLen((), "int64"),
        "half": FixedLen((), "float16"),
        "flag": FixedLen((), "bool", default=True),
        "emb": FixedLen((2, 3), "float32"),
        "exact": FixedLen((2,), "float64", raw=True),
        "body": FixedLen((), "bytes"),
        "tags": VarLen("str"),
        "image": Tensor("uint8", raw=True),
        "sparse": Sparse("float32", (10, 20), ("ix", "iy"), "iv"),
    }
)


def test_every_entry_maps_to_its_column() -> None:
    arrow = arrow_schema(EVERY_ENTRY)
    assert {field.name: str(field.type) for field in arrow} == {
        "id": "int64",
        "half": "halffloat",
        "flag": "bool",
        "emb": "fixed_size_list<item: fixed_size_list<item: float>[3]>[2]",
        "exact": "fixed_size_list<item: double>[2]",
        "body": "binary",
        "tags": "list<item: string>",
        "image": "struct<values: list<item: uint8> not null, shape: list<item: int64> not null>",
        "sparse": "struct<indices: list<item: fixed_size_list<item: int64>[2]> not null, "
        "values: list<item: float> not null>",
    }
    assert [field.name for field in arrow if field.nullable] == ["tags"]


def test_sequence_maps_to_list_of_steps() -> None:
    schema = Schema({"frames": Sequence(FixedLen((2,), "int64")), "words": Sequence(VarLen("bytes"))})
    assert [str(kind) for kind in arrow_schema(schema).types] == [
        "list<item: fixed_size_list<item: int64>[2]>",
        "list<item: list<item: binary>>",
    ]


def test_schema_is_recovered_from_metadata() -> None:
    assert schema_of(arrow_schema(EVERY_ENTRY)) == EVERY_ENTRY
    assert schema_of(pickle.loads(pickle.dumps(arrow_schema(EVERY_ENTRY)))) == EVERY_ENTRY


def test_schema_is_recovered_from_remaining_columns() -> None:
    arrow = arrow_schema(EVERY_ENTRY)
    some = pa.schema([arrow.field("tags"), arrow.field("flag")], metadata=arrow.metadata)
    found = schema_of(some)
    assert found.features == {"tags": VarLen("str"), "flag": FixedLen((), "bool", default=True)}
    assert found.allow_extra


def test_columns_are_selected_in_requested_order() -> None:
    assert arrow_schema(EVERY_ENTRY, columns=["tags", "id"]).names == ["tags", "id"]
    with pytest.raises(ValueError, match="no column 'nope'"):
        arrow_schema(EVERY_ENTRY, columns=["nope"])


def test_large_option_uses_64_bit_offsets() -> None:
    arrow = arrow_schema(Schema({"a": FixedLen((), "bytes"), "b": VarLen("str")}), large=True)
    assert arrow.types == [pa.large_binary(), pa.list_(pa.large_string())]


@pytest.mark.parametrize(
    ("kind", "entry"),
    [
        (pa.uint8(), FixedLen((), "uint8")),
        (pa.float64(), FixedLen((), "float64")),
        (pa.bool_(), FixedLen((), "bool")),
        (pa.large_string(), FixedLen((), "str")),
        (pa.string_view(), FixedLen((), "str")),
        (pa.binary(4), FixedLen((), "bytes")),
        (pa.binary_view(), FixedLen((), "bytes")),
        (pa.dictionary(pa.int8(), pa.string()), FixedLen((), "str")),
        (pa.timestamp("ns", "UTC"), FixedLen((), "int64")),
        (pa.date32(), FixedLen((), "int32")),
        (pa.duration("s"), FixedLen((), "int64")),
        (pa.list_(pa.list_(pa.float32(), 3), 2), FixedLen((2, 3), "float32")),
        (pa.fixed_shape_tensor(pa.float32(), (2, 3)), FixedLen((2, 3), "float32")),
        (pa.large_list(pa.int32()), VarLen("int32")),
        (pa.list_(pa.list_(pa.int64(), 2)), Sequence(FixedLen((2,), "int64"))),
        (pa.list_(pa.list_(pa.string())), Sequence(VarLen("str"))),
    ],
    ids=str,
)
def test_every_arrow_type_maps_to_its_entry(kind: Any, entry: Any) -> None:
    assert schema_of(pa.schema({"x": kind})).features == {"x": entry}


@pytest.mark.parametrize(
    "kind",
    [
        pa.null(),
        pa.decimal128(10, 2),
        pa.struct({"a": pa.int64()}),
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.list_(pa.list_(pa.int64()))),
    ],
    ids=str,
)
def test_unsupported_type_is_rejected_with_column_name(kind: Any) -> None:
    with pytest.raises(SchemaError, match="column 'x' is"):
        schema_of(pa.schema({"x": kind}))


def test_scalar_column_with_nulls_becomes_var_len() -> None:
    arrow = pa.schema({"a": pa.int64(), "b": pa.string()})
    assert schema_of(arrow, nulls=["b"]).features == {"a": FixedLen((), "int64"), "b": VarLen("str")}


def test_duplicate_column_names_are_rejected() -> None:
    with pytest.raises(SchemaError, match="two columns have the name 'a'"):
        schema_of(pa.schema([pa.field("a", pa.int64()), pa.field("a", pa.int64())]))


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"version": 99, "features": {}}', b"\xff"])
def test_invalid_schema_metadata_is_rejected(text: bytes) -> None:
    with pytest.raises(SchemaError):
        schema_of(pa.schema({"a": pa.int64()}, metadata={"asyncrec.schema": text}))
