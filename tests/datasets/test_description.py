"""The schema and datum's table of a split describe every example, not only the last one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._datasets.description import Description, schema_of_table
from asyncrec.errors import SchemaError
from asyncrec.example._codec import encode_example
from asyncrec.example._schema import Entry, FixedLen, Schema, Tensor, VarLen


def described(*examples: dict[str, Any], sparse: tuple[str, ...] = ()) -> Description:
    description = Description(sparse)
    for number, features in enumerate(examples):
        encode_example(features)
        description.see(features, number)
    return description


def entries(*examples: dict[str, Any], sparse: tuple[str, ...] = ()) -> dict[str, Entry]:
    schema = described(*examples, sparse=sparse).schema()
    assert schema is not None
    return schema.features


@pytest.mark.parametrize(
    ("values", "entry", "row"),
    [
        ([1, 2], FixedLen((), "int64"), {"type": "int", "shape": [], "dense": True}),
        ([True, False], FixedLen((), "bool"), {"type": "int", "shape": [], "dense": True}),
        ([True, 3], FixedLen((), "int64"), {"type": "int", "shape": [], "dense": True}),
        ([1.5], FixedLen((), "float32"), {"type": "float", "shape": [], "dense": True}),
        (["a", "b"], FixedLen((), "str"), {"type": "string", "shape": [], "dense": True}),
        (["a", b"b"], FixedLen((), "bytes"), {"type": "string", "shape": [], "dense": True}),
        ([bytearray(b"x")], FixedLen((), "bytes"), {"type": "string", "shape": [], "dense": True}),
        ([[1, 2], [3, 4]], FixedLen((2,), "int64"), {"type": "int", "shape": [2], "dense": True}),
        ([[1, 2], [3]], VarLen("int64"), {"type": "int", "shape": [-1], "dense": False}),
        ([[1, 2], []], VarLen("int64"), {"type": "int", "shape": [-1], "dense": False}),
        ([[], [0.5]], VarLen("float32"), {"type": "float", "shape": [-1], "dense": False}),
        ([1, [1, 2]], VarLen("int64"), {"type": "int", "shape": [-1], "dense": False}),
        ([np.int32(3), np.int8(1)], FixedLen((), "int32"), {"type": "int", "shape": [], "dense": True}),
        ([np.int32(3), np.uint64(1)], FixedLen((), "int64"), {"type": "int", "shape": [], "dense": True}),
        ([np.zeros((2, 3), "f4")], FixedLen((2, 3), "float32"), {"type": "float", "shape": [2, 3], "dense": True}),
        ([np.zeros(2, np.float16)], FixedLen((2,), "float16"), {"type": "float", "shape": [2], "dense": True}),
        ([np.zeros(2)], FixedLen((2,), "float32"), {"type": "float", "shape": [2], "dense": True}),
        ([[0, 0.5]], FixedLen((2,), "float32"), {"type": "float", "shape": [2], "dense": True}),
        ([[1, 0.5], [0.5, 1]], FixedLen((2,), "float32"), {"type": "float", "shape": [2], "dense": True}),
        ([[np.int8(1), 1000]], FixedLen((2,), "int64"), {"type": "int", "shape": [2], "dense": True}),
        ([[np.float16(1), 0.1]], FixedLen((2,), "float32"), {"type": "float", "shape": [2], "dense": True}),
        ([np.array([1, 0.5], object)], FixedLen((2,), "float32"), {"type": "float", "shape": [2], "dense": True}),
        ([np.array(["a", "b"])], FixedLen((2,), "str"), {"type": "string", "shape": [2], "dense": True}),
        ([np.array([b"a"])], FixedLen((1,), "bytes"), {"type": "string", "shape": [1], "dense": True}),
        ([np.array([["a"]], object)], FixedLen((1, 1), "str"), {"type": "string", "shape": [1, 1], "dense": True}),
    ],
)  # fmt: skip
def test_description_yields_matching_schema_and_table(values: list[Any], entry: Entry, row: dict[str, Any]) -> None:
    description = described(*({"x": value} for value in values))
    schema = description.schema()
    assert schema is not None
    assert schema.features == {"x": entry}
    assert description.table() == {"x": row}
    schema.decode_batch([encode_example({"x": value}) for value in values])


def test_feature_without_values_is_omitted() -> None:
    description = described({"x": [], "y": 1})
    assert description.table().keys() == {"y"}
    schema = description.schema()
    assert schema is not None
    assert schema.features.keys() == {"y"}


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 0, 2], [2, 1, 0]])
def test_feature_missing_in_some_examples_is_varlen(order: list[int]) -> None:
    examples = [{"x": 1, "y": 2}, {"x": 1}, {"x": 1, "y": 2}]
    description = described(*(examples[i] for i in order))
    assert description.schema() == Schema({"x": FixedLen((), "int64"), "y": VarLen("int64")})
    assert description.table()["y"] == {"type": "int", "shape": [], "dense": False}


class TestConflicts:
    @pytest.mark.parametrize(("one", "other"), [(1, 1.5), (1, "a"), (0.5, b"a"), ([1], ["a"])])
    def test_conflicting_kinds_error_names_example_numbers(self, one: object, other: object) -> None:
        with pytest.raises(SchemaError, match=r"feature 'x' is \w+ in example 0 and \w+ in example 2"):
            described({"x": one}, {"x": one}, {"x": other})

    def test_conflicting_shapes_raise_with_example_numbers(self) -> None:
        with pytest.raises(
            SchemaError,
            match=r"'x' has the shape \(2, 2\) in example 0 and \(2, 3\) in example 1; list it in sparse_feat",
        ):
            described({"x": np.zeros((2, 2))}, {"x": np.zeros((2, 3))})
        with pytest.raises(SchemaError, match=r"\(4,\) in example 0 and \(2, 2\) in example 1$"):
            described({"x": np.zeros(4)}, {"x": np.zeros((2, 2))})

    def test_array_missing_in_some_examples_raises(self) -> None:
        with pytest.raises(
            SchemaError, match="feature 'x' has 2 axes in example 1, but is missing from example 0; pass it in"
        ):
            described({"y": 1}, {"x": np.zeros((2, 2)), "y": 1}).schema()


class TestSparse:
    def test_two_dimensional_arrays_are_stored_with_their_shape(self) -> None:
        examples = [{"m": np.ones((1, n), np.float32), "m_shape": [1, n]} for n in (1, 3, 0)]
        description = described(*examples, sparse=("m",))
        schema = description.schema()
        assert schema is not None
        assert schema.features == {"m": Tensor("float32")}
        assert description.table() == {
            "m": {"type": "float", "shape": [1, -1], "dense": False},
            "m_shape": {"type": "int", "shape": [2], "dense": True},
        }
        found = schema.decode_batch([encode_example(example) for example in examples])["m"]
        assert [array.shape for array in found] == [(1, 1), (1, 3), (1, 0)]

    def test_sparse_lists_are_varlen_despite_constant_length(self) -> None:
        assert entries({"v": [1, 2]}, sparse=("v",)) == {"v": VarLen("int64")}
        assert described({"v": [1, 2]}, sparse=("v",)).table() == {"v": {"type": "int", "shape": [2], "dense": False}}


class TestRecords:
    """Records from a serializer that is not ours."""

    def test_types_come_from_record_and_shapes_from_features(self) -> None:
        description = Description()
        features = {"m": [[1, 2], [3, 4]], "label": "cat", "gone": 1}
        record = encode_example({"m": [1.0, 2.0, 3.0, 4.0], "label": 3, "more": [-1, 300], "none": []})
        description.see_record(record, features, 0)
        assert description.schema() == Schema(
            {"label": FixedLen((), "int64"), "m": FixedLen((2, 2), "float32"), "more": FixedLen((2,), "int64")}
        )

    @pytest.mark.parametrize("value", [0x7F, 0x80, 0x81, 0x4000, -(2**63)])
    def test_integers_of_any_encoded_size_are_counted(self, value: int) -> None:
        description = Description()
        description.see_record(encode_example({"x": [value, value, 1]}), {}, 0)
        assert description.schema() == Schema({"x": FixedLen((3,), "int64")})

    def test_records_other_than_examples_have_no_schema(self) -> None:
        description = Description()
        description.see_record(encode_example({"x": 1}), {"x": 1}, 0)
        description.see_record(b"\xff\xff", {"x": 1}, 1)
        description.see_record(encode_example({"x": 1.5}), {"x": 1}, 2)
        assert description.schema() is None
        assert description.table() == {}


values = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(-100, 100), max_size=4),
    st.lists(st.floats(width=32), max_size=3),
    st.text(max_size=5),
    st.lists(st.binary(max_size=3), max_size=3),
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), values, max_size=3), min_size=1, max_size=8))
def test_inferred_schema_decodes_every_example_or_is_rejected(examples: list[dict[str, Any]]) -> None:
    try:
        schema = described(*examples).schema()
    except SchemaError:
        return
    assert schema is not None
    for example in examples:
        schema.decode(encode_example(example))
    assert described(*reversed(examples)).schema() == schema


class TestOfTable:
    def test_datum_table_converts_to_schema(self) -> None:
        table = {
            "image": {"type": "string", "shape": [28, 28, 3], "dense": True},
            "label": {"type": "int", "shape": [], "dense": True},
            "box": {"type": "float", "shape": [2, 2], "dense": True},
            "m": {"type": "float", "shape": [2, 3], "dense": False},
            "m_shape": {"type": "int", "shape": [2], "dense": True},
            "tags": {"type": "string", "shape": [3], "dense": False},
        }
        assert schema_of_table(table) == Schema(
            {
                "image": FixedLen((), "bytes"),
                "label": FixedLen((), "int64"),
                "box": FixedLen((2, 2), "float32"),
                "m": Tensor("float32"),
                "tags": VarLen("bytes"),
            }
        )

    @pytest.mark.parametrize("table", [{"x": {}}, {"x": 3}, {"x": {"type": "complex", "shape": [], "dense": True}}])
    def test_invalid_table_is_rejected(self, table: dict[str, Any]) -> None:
        with pytest.raises(SchemaError, match="the table of feature types and shapes cannot be read:"):
            schema_of_table(table)


def test_table_describes_image_by_shape_and_schema_by_bytes() -> None:
    """datum decodes according to its table. Only a feature with one text or bytes in each example can be an image."""
    description = described({"image": b"JPEG", "n": 1, "several": [b"a", b"b"]})
    description.see_images({"image": [4, 5, 3], "n": [4, 5, 3], "several": [4, 5, 3], "other": [1, 1]})
    assert {name: row["shape"] for name, row in description.table().items()} == {
        "image": [4, 5, 3],
        "n": [],
        "several": [2],
    }
    assert description.schema() == Schema(
        {"image": FixedLen((), "bytes"), "n": FixedLen((), "int64"), "several": FixedLen((2,), "bytes")}
    )
