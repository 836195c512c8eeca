"""A schema decodes one or many records to typed arrays; errors fully describe what does not match."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.errors import DecodeError, SchemaError
from asyncrec.example._codec import encode_example, encode_sequence_example
from asyncrec.example._schema import FixedLen, Ragged, Schema, Sequence, Sparse, Tensor, VarLen

pytestmark = pytest.mark.usefixtures("implementation")

PAGE = Schema({"label": FixedLen((), "int64"), "emb": FixedLen((2, 2), "float32"), "tags": VarLen("bytes")})


def page(label: object = 3, **others: object) -> bytes:
    return encode_example({"label": label, "emb": np.arange(4, dtype=np.float32), "tags": ["a"], **others})


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return len(one) == len(other) and all(equal(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, np.ndarray) and one.dtype == object:
        return one.shape == other.shape and all(equal(*pair) for pair in zip(one.flat, other.flat, strict=True))
    return bool(np.array_equal(one, other)) and getattr(one, "dtype", None) == getattr(other, "dtype", None)


def test_record_decodes_to_scalars_and_shaped_arrays() -> None:
    decoded = PAGE.decode(page())
    assert list(decoded) == ["label", "emb", "tags"]
    assert decoded["label"] == 3
    assert type(decoded["label"]) is int
    assert equal(decoded["emb"], np.array([[0, 1], [2, 3]], np.float32))
    assert decoded["tags"].tolist() == [b"a"]


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_batch_decodes_to_stacked_arrays(count: int) -> None:
    batch = PAGE.decode_batch([page(i, tags=["x"] * (i % 3)) for i in range(count)])
    assert equal(batch["label"], np.arange(count))
    assert batch["emb"].shape == (count, 2, 2)
    assert batch["emb"].dtype == np.float32
    assert all(batch[name].flags.writeable for name in ("label", "emb"))
    assert isinstance(batch["tags"], Ragged)
    assert np.diff(batch["tags"].row_splits).tolist() == [i % 3 for i in range(count)]
    assert len(batch["tags"].values) == sum(i % 3 for i in range(count))


@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            encode_example({"label": 1, "tags": ["a"]}),
            r"feature 'emb': missing; expected FixedLen\(shape=\(2, 2\), .*; the record has 'label', 'tags'$",
        ),
        (
            page(label=1.5),
            r"feature 'label': its values are float; expected FixedLen.*dtype='int64'.*'emb', 'label', ",
        ),
        (
            page(label=[1, 2]),
            r"feature 'label': it has 2 values, not 1; expected FixedLen.*the record has 'emb', 'label'",
        ),
        (page(label=np.zeros(0, int)), "feature 'label': it has 0 values, not 1"),
        (page(label=[]), "feature 'label': missing"),
        (page(emb=[1.0] * 3), "feature 'emb': it has 3 values, not 4"),
        (
            page(more=1),
            "feature 'more' is not in the schema; .*use allow_extra=True; the record has 'emb', ",
        ),
        (encode_example({}), "feature 'label': missing; .*; the record has no features"),
    ],
)
def test_misfit_error_names_feature_expectation_and_found_value(count: int, record: bytes, message: str) -> None:
    with pytest.raises(SchemaError, match=f"^record 1 of the batch: {message}"):
        PAGE.decode_batch([page(), record, *[page()] * (count - 2)])
    with pytest.raises(SchemaError, match=f"^{message}"):
        PAGE.decode(record)


def test_error_lists_few_of_thousands_of_features() -> None:
    with pytest.raises(SchemaError, match="and 970 more") as caught:
        PAGE.decode(encode_example({f"f{i:04}": i for i in range(1000)}))
    assert len(str(caught.value)) < 1000


def test_invalid_example_bytes_raise_decode_error_naming_record() -> None:
    with pytest.raises(DecodeError, match=r"^record 1 of the batch: offset"):
        PAGE.decode_batch([page(), page()[:-1]])
    with pytest.raises(DecodeError, match=r"^offset"):
        PAGE.decode(page()[:-1])


def test_allow_extra_skips_unknown_features() -> None:
    labels = Schema({"label": FixedLen((), "int64")}, allow_extra=True)
    assert labels.decode(page(5)) == {"label": 5}
    assert labels.decode_batch([page(i) for i in range(50)])["label"].tolist() == list(range(50))


def test_default_replaces_absent_feature() -> None:
    schema = Schema({"a": FixedLen((), "int32", default=-1), "b": FixedLen((2,), "str", default="none")})
    records = [encode_example({"a": 5} if i % 2 else {"b": ["x", "y"]}) for i in range(60)]
    batch = schema.decode_batch(records)
    assert batch["a"].dtype == np.int32
    assert batch["a"].tolist() == [-1, 5] * 30
    assert batch["b"].tolist() == [["x", "y"], ["none", "none"]] * 30
    assert schema.decode(encode_example({}))["a"] == -1


@pytest.mark.parametrize("count", [1, 40])
def test_raw_arrays_keep_every_type_exactly(count: int) -> None:
    array = np.random.default_rng(0).standard_normal((count, 3))
    schema = Schema({"x": FixedLen((3,), "float64", raw=True)})
    records = [encode_example({"x": row.astype("<f8").tobytes()}) for row in array]
    assert equal(schema.decode_batch(records)["x"], array)
    with pytest.raises(SchemaError, match="feature 'x': it has 23 bytes, not 24"):
        schema.decode(encode_example({"x": bytes(23)}))
    with pytest.raises(SchemaError, match="feature 'x': it has 2 values, not 1"):
        schema.decode(encode_example({"x": [bytes(24)] * 2}))


def test_text_and_bytes_of_any_rank_keep_type() -> None:
    schema = Schema({"words": FixedLen((2, 2), "str"), "images": FixedLen((1, 1, 2), "bytes")})
    batch = schema.decode_batch([encode_example({"words": ["a", "b", "c", "d"], "images": [b"\xff\xd8\0", b""]})] * 2)
    assert batch["words"].tolist() == [[["a", "b"], ["c", "d"]]] * 2
    assert batch["images"].tolist() == [[[[b"\xff\xd8\0", b""]]]] * 2


def test_schema_round_trips_through_pickle() -> None:
    schema = Schema({"a": FixedLen((), "int64", default=3), "b": Sequence(VarLen("str"))}, allow_extra=True)
    assert pickle.loads(pickle.dumps(schema)) == schema


def test_tensors_decode_with_stored_shape() -> None:
    schema = Schema({"x": Tensor("float32")})
    shapes = [(2, 3), (0, 4), (), (5,)]
    arrays = [np.arange(np.prod(shape), dtype=np.float32).reshape(shape) for shape in shapes]
    records = [encode_example({"x": array, "x_shape": np.array(array.shape, int)}) for array in arrays]
    batch = schema.decode_batch(records)["x"]
    assert all(equal(*pair) for pair in zip(batch, arrays, strict=True))
    assert equal(schema.decode(records[0])["x"], arrays[0])
    assert schema.decode(encode_example({"x": arrays[0]}))["x"].shape == (6,)


@pytest.mark.parametrize("shape", [[2, 2], [-1, 3], [1] * 40, [0, 2**62], [2**62, 2**62]], ids=repr)
def test_tensor_with_mismatched_shape_raises(shape: list[int]) -> None:
    record = encode_example({"x": [1.0, 2.0, 3.0], "x_shape": shape})
    with pytest.raises(SchemaError, match=r"in x_shape; expected Tensor"):
        Schema({"x": Tensor("float32")}).decode(record)


@pytest.mark.parametrize("shape", [[0, 2**62], [0, 2**62, 2**62], [0] * 70, [2]], ids=repr)
def test_empty_tensor_with_impossible_shape_raises(shape: list[int]) -> None:
    record = encode_example({"x": np.zeros(0, np.float32), "x_shape": shape})
    with pytest.raises(SchemaError, match=r"in x_shape; expected Tensor"):
        Schema({"x": Tensor("float32")}).decode(record)


def test_raw_tensor_with_partial_value_raises() -> None:
    schema = Schema({"x": Tensor("float32", raw=True)})
    with pytest.raises(SchemaError, match="feature 'x': its 7 bytes are not a whole number of float32 values"):
        schema.decode(encode_example({"x": bytes(7)}))
    with pytest.raises(SchemaError, match="feature 'x': it has 2 values, not 1"):
        schema.decode(encode_example({"x": [bytes(8), bytes(4)]}))


def test_sparse_batch_sorts_indices_and_has_dense_shape() -> None:
    schema = Schema({"m": Sparse("float32", (3, 4), ("row", "column"), "value")})
    records = [
        encode_example({"row": [2, 0], "column": [1, 3], "value": [0.5, 1.5]}),
        encode_example({}),
        encode_example({"row": [1], "column": [1], "value": [2.5]}),
    ]
    indices, values, shape = schema.decode_batch(records)["m"]
    assert indices.tolist() == [[0, 0, 3], [0, 2, 1], [2, 1, 1]]
    assert values.tolist() == [1.5, 0.5, 2.5]
    assert shape == (3, 3, 4)
    alone = schema.decode(records[0])["m"]
    assert (alone.indices.tolist(), alone.values.tolist(), alone.dense_shape) == ([[0, 3], [2, 1]], [1.5, 0.5], (3, 4))


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (
            {"row": [1], "column": [1, 2], "value": [0.5]},
            "feature 'm': 'value' has 1 value, but 'column' has 2; both must have",
        ),
        (
            {"row": [3], "column": [1], "value": [0.5]},
            "feature 'm': 'row' has the index 3, but the axis has only 3 positions;",
        ),
        (
            {"row": [-1], "column": [1], "value": [0.5]},
            "feature 'm': 'row' has the index -1, but the axis has only 3 positions;",
        ),
    ],
)
def test_invalid_sparse_indices_raise_schema_error(features: dict[str, Any], message: str) -> None:
    schema = Schema({"m": Sparse("float32", (3, 4), ("row", "column"), "value")})
    with pytest.raises(SchemaError, match=message):
        schema.decode(encode_example(features))


def test_sequence_example_decodes_to_context_and_steps() -> None:
    schema = Schema(
        {"id": FixedLen((), "int64"), "frames": Sequence(FixedLen((2,), "float32")), "words": Sequence(VarLen("str"))}
    )
    first = encode_sequence_example(
        {"id": 1}, {"frames": np.arange(6, dtype=np.float32).reshape(3, 2), "words": [["a", "b"], [], "c"]}
    )
    second = encode_sequence_example({"id": 2}, {"frames": np.zeros((0, 2), np.float32)})
    alone = schema.decode(first)
    assert alone["frames"].tolist() == [[0, 1], [2, 3], [4, 5]]
    assert alone["words"].values.tolist() == ["a", "b", "c"]
    assert alone["words"].row_splits.tolist() == [0, 2, 2, 3]
    batch = schema.decode_batch([first, second, first])
    assert batch["frames"].values.shape == (6, 2)
    assert batch["frames"].row_splits.tolist() == [0, 3, 3, 6]
    assert batch["words"].row_splits.tolist() == [0, 3, 3, 6]
    assert batch["words"].values.row_splits.tolist() == [0, 2, 2, 3, 5, 5, 6]
    assert batch["id"].tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({}, "feature list 'x' is missing; expected Sequence.*the record has no features"),
        ({"x": [[1, 2], 3]}, "feature list 'x', step 1: it has 1 value, not 2; expected Sequence"),
        ({"x": [[1, 2], []]}, "feature list 'x', step 1: empty"),
        ({"x": [[0.5, 1.5]]}, "feature list 'x', step 0: its values are float"),
        ({"x": [], "y": []}, r"feature list 'y' is not in the schema; .*the record has 'x' \(a list\), 'y' \(a list\)"),
    ],
)
def test_feature_list_misfit_names_list_and_step(lists: Any, message: str) -> None:
    schema = Schema({"x": Sequence(FixedLen((2,), "int64"))})
    good = encode_sequence_example({}, {"x": [[1, 2], [3, 4], [5, 6]]})
    with pytest.raises(SchemaError, match=f"^record 1 of the batch: {message}"):
        schema.decode_batch([good, encode_sequence_example({}, lists)])


def test_damaged_sequence_example_error_names_record_and_feature() -> None:
    schema = Schema({"x": Sequence(FixedLen((), "int64"))})
    good = encode_sequence_example({}, {"x": [1, 77]})
    with pytest.raises(DecodeError, match=r"^record 1 of the batch: feature 'x': the last int64 value"):
        schema.decode_batch([good, good.replace(b"\x4d", b"\xcd")])
    with pytest.raises(DecodeError, match=r"^record 1 of the batch: offset"):
        schema.decode_batch([good, good[:-1]])


def test_schema_round_trips_through_json() -> None:
    schema = Schema(
        {
            "a": FixedLen((), "int64"),
            "b": FixedLen((2,), np.float32, default=[float("nan"), float("inf")]),
            "c": FixedLen((2,), bytes, default=b"\xff"),
            "d": FixedLen((), str, default="é"),
            "e": FixedLen((3, 3), "float64", raw=True),
            "f": VarLen("bool"),
            "g": Tensor("int32", raw=True),
            "h": Sparse("float32", (5,), "h_index", "h_value"),
            "i": Sequence(FixedLen((2,), "float16")),
            "j": Sequence(VarLen("uint8")),
        },
        allow_extra=True,
    )
    text = json.dumps(schema.to_json(), allow_nan=False)
    again = Schema.from_json(json.loads(text))
    assert again == schema
    assert again.to_json() == schema.to_json()
    assert again.allow_extra
    assert again.features["h"] == schema.features["h"]
    assert json.loads(text)["features"]["a"] == {"kind": "FixedLen", "shape": [], "dtype": "int64"}


@pytest.mark.parametrize(
    "value",
    [
        None,
        {},
        {"version": 2, "features": {}},
        {"version": True, "features": {}},
        {"version": 1, "features": {"a": {"kind": "Nothing"}}},
        {"version": 1, "features": {"a": {"kind": "FixedLen", "shape": []}}},
        {"version": 1, "features": {"a": {"kind": "FixedLen", "shape": 3, "dtype": "int64"}}},
        {"version": 1, "features": {"a": {"kind": "FixedLen", "shape": [], "dtype": "int65"}}},
        {"version": 1, "features": {"a": {"kind": "VarLen", "dtype": "int64", "more": 1}}},
        {"version": 1, "features": {"a": {"kind": "FixedLen", "shape": [], "dtype": "bytes", "default": "%"}}},
        {"version": 1, "features": {"a": {"kind": "Sequence", "entry": {"kind": "Tensor", "dtype": "int64"}}}},
        {"version": 1, "features": {"a": {"kind": "Sequence"}}},
        {"version": 1, "features": {"a": 3}},
    ],
)
def test_invalid_schema_json_is_rejected(value: Any) -> None:
    with pytest.raises(SchemaError):
        Schema.from_json(value)


def test_impossible_merge_names_feature_and_both_sides() -> None:
    with pytest.raises(
        SchemaError, match=r"feature 'a': no entry can read both FixedLen\(.*'int64'.*\) and FixedLen\(.*'float32'"
    ):
        Schema({"a": FixedLen((), "int64")}).merge(Schema({"a": FixedLen((), "float32")}))
    with pytest.raises(
        SchemaError, match=r"feature 'a': no entry can read both Tensor\(.*\) and absent; give the entry a default"
    ):
        Schema({"a": Tensor("int64")}).merge(Schema({}))
    with pytest.raises(SchemaError, match="feature 'a': no entry can read both absent and FixedLen"):
        Schema({}).merge(Schema({"a": FixedLen((2, 2), "int64")}))


def test_schema_equality_includes_entries_and_order() -> None:
    a, b = FixedLen((), "int64"), VarLen("bytes")
    assert Schema({"a": a, "b": b}) == Schema({"a": FixedLen([], np.int64), "b": b})  # type: ignore[arg-type]  # any sequence
    assert Schema({"a": a, "b": b}) != Schema({"b": b, "a": a})
    assert Schema({"a": a}) != Schema({"a": a}, allow_extra=True)
    assert Schema({"a": a}) != "a"


def test_schema_rejects_non_entry_and_conflicting_readers() -> None:
    with pytest.raises(TypeError, match="'a': 'int64' is not an entry of a schema"):
        Schema({"a": "int64"})  # type: ignore[dict-item]  # deliberately wrong
    with pytest.raises(SchemaError, match="'x_shape' and 'x' disagree about the kind of 'x_shape'"):
        Schema({"x": Tensor("float32"), "x_shape": VarLen("float32")})
    schema = Schema({"x": Tensor("float32"), "x_shape": VarLen("int64")})
    assert schema.decode(encode_example({"x": [1.0, 2.0], "x_shape": [1, 2]}))["x_shape"].tolist() == [1, 2]


EVERYTHING = Schema(
    {
        "a": FixedLen((), "int8", default=1),
        "b": FixedLen((2,), "float16"),
        "c": FixedLen((2,), "float64", raw=True),
        "d": VarLen("str"),
        "e": Tensor("int32", raw=True),
        "f": Tensor("float32"),
        "g": Sparse("float32", (9,), "g_index", "g_value"),
    }
)
WHOLE = encode_example(
    {
        "a": 5,
        "b": [0.5, 1.5],
        "c": np.array([0.1, 0.2]).tobytes(),
        "d": ["x", "é"],
        "e": np.arange(4, dtype=np.int32).tobytes(),
        "e_shape": [2, 2],
        "f": [1.0, 2.0],
        "f_shape": [2, 1],
        "g_index": [3, 8],
        "g_value": [0.5, 1.5],
    }
)


@settings(deadline=None, max_examples=300)
@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.integers(0, 255)), max_size=3), st.integers(0, len(WHOLE)))
def test_damaged_record_decodes_identically_alone_and_in_batch(flips: Any, cut: int) -> None:
    damaged = bytearray(WHOLE)
    for at, value in flips:
        damaged[at] = value
    record = bytes(damaged[:cut] if cut % 3 == 0 else damaged)
    try:
        alone = EVERYTHING.decode(record)
    except (DecodeError, SchemaError) as error:
        with pytest.raises(type(error), match=r"^record 20 of the batch: "):
            EVERYTHING.decode_batch([*[WHOLE] * 20, record, *[WHOLE] * 20])
        return
    batch = EVERYTHING.decode_batch([*[WHOLE] * 20, record, *[WHOLE] * 20])
    assert repr(batch["a"][20].item()) == repr(alone["a"])
    assert repr(batch["b"][20]) == repr(alone["b"])
    assert batch["e"][20].tolist() == alone["e"].tolist()
    assert len(batch["d"].values) == 80 + len(alone["d"])


def test_every_truncation_of_record_raises() -> None:
    for cut in range(1, len(WHOLE)):
        with pytest.raises((DecodeError, SchemaError)):
            EVERYTHING.decode(WHOLE[:cut])


def _nested(depth: int) -> Any:
    value: Any = {"kind": "VarLen", "dtype": "int64"}
    for _ in range(depth):
        value = {"kind": "Sequence", "entry": value}
    return value


def _deep_list() -> Any:
    value: Any = []
    for _ in range(50_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": ["FixedLen"]},
        {"kind": {}},
        {"kind": None},
        {"kind": "FixedLen", "shape": [], "dtype": ["int64"]},
        {"kind": "FixedLen", "shape": [], "dtype": None},
        {"kind": "FixedLen", "shape": [], "dtype": "i4,("},
        {"kind": "FixedLen", "shape": [], "dtype": "1("},
        {"kind": "FixedLen", "shape": [], "dtype": "\ud800"},
        {"kind": "FixedLen", "shape": [], "dtype": "int64", "raw": [1]},
        {"kind": "FixedLen", "shape": "12", "dtype": "int64"},
        {"kind": "FixedLen", "shape": 3, "dtype": "int64"},
        {"kind": "FixedLen", "shape": [1.5], "dtype": "int64"},
        {"kind": "FixedLen", "shape": ["3"], "dtype": "int64"},
        {"kind": "FixedLen", "shape": [[3]], "dtype": "int64"},
        {"kind": "FixedLen", "shape": [0] * 100_000, "dtype": "int64"},
        {"kind": "FixedLen", "shape": [2**62, 8], "dtype": "int64"},
        {"kind": "FixedLen", "shape": [0, 2**62, 8], "dtype": "int64"},
        {"kind": "FixedLen", "shape": [10**10], "dtype": "int64", "default": 0},
        {"kind": "FixedLen", "shape": [10**10], "dtype": "str", "default": "x"},
        {"kind": "FixedLen", "shape": [1, 10**10], "dtype": "bytes", "default": [["eA=="]]},
        {"kind": "FixedLen", "shape": [2], "dtype": "int64", "default": [[1], [1, 2]]},
        {"kind": "FixedLen", "shape": [], "dtype": "int8", "default": 10**400},
        {"kind": "FixedLen", "shape": [], "dtype": "float32", "default": 10**400},
        {"kind": "FixedLen", "shape": [], "dtype": "bytes", "default": 5},
        {"kind": "FixedLen", "shape": [], "dtype": "int64", "default": {"a": 1}},
        {"kind": "Sparse", "shape": [3], "dtype": "int64", "indices": [5], "values": "v"},
        {"kind": "Sparse", "shape": [3], "dtype": "int64", "indices": [["i"]], "values": "v"},
        {"kind": "Sparse", "shape": [3], "dtype": "int64", "indices": ["i"], "values": ["v"]},
        {"kind": "Sparse", "shape": [3], "dtype": "int64", "indices": "i", "values": None},
        {"kind": "Sequence", "entry": []},
        _nested(50_000),
        _deep_list(),
    ],
    ids=lambda entry: f"{len(str(entry.get('kind')))}" if isinstance(entry, dict) else "list",
)
def test_invalid_json_entry_raises_schema_error(entry: Any) -> None:
    """Rejecting the record takes no memory, whatever shape it claims."""
    with pytest.raises(SchemaError):
        Schema.from_json({"version": 1, "features": {"a": entry}})


@pytest.mark.parametrize("levels", [1, 900, 50_000])
def test_nested_sequences_are_rejected_at_first_level(levels: int) -> None:
    """Parsing all levels before rejecting them took minutes on Python 3.13."""
    with pytest.raises(SchemaError, match="a step of a Sequence must be a FixedLen or a VarLen"):
        Schema.from_json({"version": 1, "features": {"a": {"kind": "Sequence", "entry": _nested(levels)}}})


@pytest.mark.parametrize(
    "more", [{"allow_extra": "no"}, {"allow_extra": None}, {"features": {5: {}}}, {"features": []}]
)
def test_from_json_rejects_values_of_wrong_type(more: dict[str, Any]) -> None:
    with pytest.raises(SchemaError):
        Schema.from_json({"version": 1, "features": {}, **more})


_ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_FIELDS = {
    "kind": st.sampled_from(["FixedLen", "VarLen", "Tensor", "Sparse", "Sequence"]),
    "dtype": st.sampled_from(["int64", "float32", "bytes", "str", "bool", "uint8", "float16"]),
    "shape": st.lists(st.sampled_from([0, 1, 2, 10**6, 2**40]), max_size=3),
    "default": st.integers(-3, 3) | st.text(max_size=2),
    "raw": st.booleans(),
    "indices": st.lists(st.text(max_size=2), max_size=2),
    "values": st.text(max_size=2),
    "entry": st.fixed_dictionaries({"kind": st.just("VarLen"), "dtype": st.just("int64")}),
}
_ENTRY = st.fixed_dictionaries(
    {"kind": _FIELDS["kind"]}, optional={name: kind | _ANY for name, kind in _FIELDS.items() if name != "kind"}
)


@given(st.dictionaries(st.text(max_size=2), _ENTRY | _ANY, max_size=3))
def test_arbitrary_json_yields_schema_or_schema_error(features: dict[str, Any]) -> None:
    try:
        schema = Schema.from_json({"version": 1, "features": features})
    except SchemaError:
        return
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) is not None
    for record in (encode_example({}), encode_example({"a": [1, 2]})):
        try:
            schema.decode(record)
            schema.decode_batch([record])
        except (SchemaError, DecodeError):
            pass
    schema.decode_batch([])


@pytest.mark.parametrize("wrong", ["x", 5, None])
def test_decode_rejects_non_record_with_clear_message(wrong: Any) -> None:
    schema = Schema({"a": FixedLen((), "int64")})
    with pytest.raises(TypeError, match=f"^a record must be bytes, not {type(wrong).__name__}$"):
        schema.decode(wrong)
    with pytest.raises(TypeError, match="expected a list of records, not bytes"):
        schema.decode_batch(b"x")  # type: ignore[arg-type]  # deliberately wrong
    record = schema.encode({"a": 3})
    assert schema.decode(bytearray(record)) == schema.decode(memoryview(record)) == {"a": 3}


def test_schema_round_trips_through_json_text() -> None:
    schema = Schema({"url": FixedLen((), "str"), "tags": VarLen("int64")}, allow_extra=True)
    text = json.dumps(schema.to_json())
    assert Schema.from_json(text) == Schema.from_json(text.encode()) == schema
    for wrong in ("{", b"\xff", "[]", "5"):
        with pytest.raises(SchemaError, match="not a valid schema"):
            Schema.from_json(wrong)


def test_null_value_is_stored_as_absent_feature() -> None:
    schema = Schema({"url": FixedLen((), "str"), "lang": FixedLen((), "str", default="en"), "tags": VarLen("int64")})
    assert schema.encode({"url": "a", "lang": None, "tags": None}) == schema.encode({"url": "a"})
    with pytest.raises(
        SchemaError, match=r"feature 'url' is None; expected FixedLen\(\(\), 'str'\), got the features 'url'; pass a"
    ):
        schema.encode({"url": None})
