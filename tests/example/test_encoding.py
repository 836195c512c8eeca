"""A schema encodes values so that they decode to the same values, and rejects others with an error that names them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec import FixedLen, Schema, Sparse, VarLen, decode_example, decode_sequence_example, encode_example
from asyncrec.errors import ArgumentTypeError, SchemaError
from asyncrec.example import Sequence, SparseArrays, Tensor, _encoding

PAGE = Schema(
    {
        "url": FixedLen((), "str"),
        "status": FixedLen((), "int64"),
        "body": FixedLen((), "bytes"),
        "elapsed": FixedLen((), "float32", default=0.0),
        "tags": VarLen("str"),
    }
)
ROW = {"url": "http://a/é", "status": 200, "body": b"\x00<p>", "elapsed": 0.5, "tags": ["a", "b"]}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, tuple):
        return all(map(same, one, other))
    if isinstance(one, np.ndarray):
        one = one.tolist()
    return bool(one == (other.tolist() if isinstance(other, np.ndarray) else other))


def test_schema_encoding_matches_encode_example() -> None:
    assert PAGE.encode(ROW) == encode_example(ROW)


def test_encoded_row_decodes_unchanged() -> None:
    assert same(PAGE.decode(PAGE.encode(ROW)), {**ROW, "tags": ["a", "b"]})


def test_default_is_stored_for_omitted_feature() -> None:
    row = {name: value for name, value in ROW.items() if name not in ("elapsed", "tags")}
    there = decode_example(PAGE.encode(row))
    assert list(there["elapsed"]) == [0.0]
    assert "tags" not in there


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"status": "200"}, ("'status'", "str '200'", "int64")),
        ({"status": 2.0}, ("'status'", "float 2.0", "int64")),
        ({"status": 1 << 63}, ("'status'", "int 9223372036854775808", "from -9223372036854775808")),
        ({"url": b"http://a/"}, ("'url'", "bytes of 9 bytes", "'str'", "decode it first")),
        ({"url": "\ud800"}, ("'url'", "UTF-8")),
        ({"body": None}, ("'body'", "None", "'bytes'")),
        ({"elapsed": "fast"}, ("'elapsed'", "str 'fast'", "float32")),
        ({"elapsed": 1e300}, ("'elapsed'", "out of range for float32")),
        ({"tags": "a"}, ("'tags'", "str 'a'", "pass a list")),
        ({"tags": ["a", 1]}, ("'tags'", "int 1", "VarLen")),
        ({"other": 1}, ("'other'", "not in the schema", "allow_extra")),
    ],
)
def test_misfit_error_names_feature_expected_and_given_value(changes: dict[str, Any], parts: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError) as caught:
        PAGE.encode({**ROW, **changes})
    for part in parts:
        assert part in str(caught.value)


def test_missing_feature_error_lists_given_features() -> None:
    with pytest.raises(
        SchemaError, match=r"feature 'url' is missing; expected FixedLen\(\(\), 'str'\), got the features 'body',"
    ):
        PAGE.encode({"body": b"", "status": 1})


class OfAnother:
    """An array from another library, such as JAX: it has a shape and converts itself to NumPy."""

    def __init__(self, value: Any) -> None:
        self._array = np.array(value)
        self.shape = self._array.shape

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self._array


@pytest.mark.parametrize("array", [np.array, OfAnother])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int64", 3), ("uint8", 255), ("bool", True), ("float32", 2.5), ("float16", 2.5), ("str", "ä"), ("bytes", b"x")],
)
def test_zero_dimensional_array_encodes_as_scalar(array: Any, dtype: Any, value: Any) -> None:
    schema = Schema({"a": FixedLen((), dtype), "b": FixedLen((), "int64")})
    assert schema.encode({"a": array(value), "b": 1}) == schema.encode({"a": value, "b": 1})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            np.array(2.5),
            "expected FixedLen((), 'int64'), got an array of float64 with the shape (); it contains float64 ",
        ),
        (np.array(True), "it contains bool"),
        (OfAnother("x"), "expected FixedLen((), 'int64'), got OfAnother; it contains str_ "),
        (np.array("x"), "got an array of text with the shape (); "),
        (np.ma.masked, "expected FixedLen((), 'int64')"),
        (np.array([3]), "expected FixedLen((), 'int64'), got an array of int64 with the shape (1,)"),
    ],
)
def test_unsuitable_array_is_rejected_with_reason(value: Any, said: str) -> None:
    with pytest.raises(SchemaError) as raised:
        Schema({"a": FixedLen((), "int64")}).encode({"a": value})
    assert said in str(raised.value)


class Unreadable:
    """Like PyTorch's tensors of bfloat16: NumPy has no such type."""

    shape = (3,)
    dtype = "torch.bfloat16"

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Got unsupported ScalarType BFloat16")


def test_encode_rejects_non_mapping() -> None:
    with pytest.raises(ArgumentTypeError, match="list"):
        PAGE.encode([("url", "a")])  # type: ignore[arg-type]


def test_extra_features_are_stored_with_allow_extra() -> None:
    schema = Schema({"a": FixedLen((), "int64")}, allow_extra=True)
    assert schema.encode({"a": 1, "b": [b"x", b"y"]}) == encode_example({"a": 1, "b": [b"x", b"y"]})


INTEGERS = st.integers(-(1 << 63), (1 << 63) - 1)
FLOATS = st.floats(width=32, allow_nan=False)
SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bytes": st.binary(max_size=40),
    "str": st.text(max_size=20),
    "bool": st.booleans(),
    "int64": INTEGERS,
    "uint8": st.integers(0, 255),
    "int32": st.integers(-(1 << 31), (1 << 31) - 1),
    "uint64": st.integers(0, (1 << 63) - 1),
    "float32": FLOATS,
    "float64": FLOATS,
    "float16": st.floats(width=16, allow_nan=False),
}


@given(st.data())
def test_accepted_values_of_entry_round_trip(data: st.DataObject) -> None:
    features: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for number in range(data.draw(st.integers(1, 5))):
        name = f"f{number}"
        dtype = data.draw(st.sampled_from(sorted(SCALARS)))
        each = SCALARS[dtype]
        kind = data.draw(st.sampled_from(["one", "many", "fixed", "square", "tensor", "raw"]))
        if kind == "one":
            features[name], values[name] = FixedLen((), dtype), data.draw(each)
        elif kind == "many":
            features[name], values[name] = VarLen(dtype), data.draw(st.lists(each, max_size=4))
        elif kind == "fixed":
            features[name] = FixedLen((3,), dtype)
            values[name] = data.draw(st.lists(each, min_size=3, max_size=3))
        elif kind == "square":
            features[name] = FixedLen((2, 2), dtype)
            pair = st.lists(each, min_size=2, max_size=2)
            values[name] = data.draw(st.lists(pair, min_size=2, max_size=2))
        else:
            plain = dtype if dtype not in ("bytes", "str") else "int64"
            array = np.array(data.draw(st.lists(SCALARS[plain], min_size=4, max_size=4)), plain).reshape(2, 2)
            raw = kind == "raw"
            features[name] = FixedLen((2, 2), plain, raw=True) if raw else Tensor(plain)
            values[name] = array
    schema = Schema(features)
    record = schema.encode(values)
    assert same(schema.decode(record), values)
    assert schema.encode(schema.decode(record)) == record


DEFAULTS = {"bytes": b"d", "str": "d", "bool": True, "int64": 7, "uint8": 7, "float32": 0.5}
STRANGE = st.sampled_from(
    [None, 1 << 63, -1, 1e39, "\ud800", "é", b"x", True, np.int64(3), np.float32(0.5), [1], [], (3, b"")]
)


@given(st.data())
def test_c_and_python_encoders_agree(data: st.DataObject) -> None:
    features: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for number in data.draw(st.permutations(range(4))):
        name = f"f{number}"
        dtype = data.draw(st.sampled_from(sorted(DEFAULTS)))
        shape = data.draw(st.sampled_from([(), (), (), (2,)]))
        default = DEFAULTS[dtype] if data.draw(st.booleans()) else None
        features[name] = FixedLen(shape, dtype, default=[default] * 2 if shape and default is not None else default)
        given_one = st.lists(SCALARS[dtype], min_size=2, max_size=2) if shape else SCALARS[dtype]
        if data.draw(st.integers(0, 3)):
            values[name] = data.draw(st.one_of(given_one, given_one, given_one, given_one, STRANGE))
    if not data.draw(st.integers(0, 5)):
        values["other"] = 1
    found = []
    for native in (_encoding.native, None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_encoding, "native", native)
            try:
                found.append(Schema(features).encode(values))
            except SchemaError as error:
                found.append(str(error))
    assert found[0] == found[1]


def test_encode_small_declines_large_record() -> None:
    encoder = _encoding.Encoder({"a": FixedLen((), "str"), "b": FixedLen((), "bytes")}, allow_extra=False)
    assert encoder.encode_small({"a": "", "b": bytes(1 << 20)}) is None
    small = encoder.encode({"b": b"x", "a": ""}) if _encoding.native is not None else None
    assert encoder.encode_small({"a": "", "b": b"x"}) == small


def test_sparse_array_and_step_lists_round_trip() -> None:
    schema = Schema(
        {
            "s": Sparse("float32", (3, 4), ("row", "column"), "value"),
            "steps": Sequence(VarLen("int64")),
            "names": Sequence(FixedLen((), "str")),
        }
    )
    values = {
        "s": SparseArrays(np.array([[0, 1], [2, 3]]), np.array([1, 2], np.float32), (3, 4)),
        "steps": [[1, 2], [], [3]],
        "names": ["a", "b"],
    }
    record = schema.encode(values)
    context, lists = decode_sequence_example(record)
    assert list(context["row"]) == [0, 2]
    assert [list(step) for step in lists["steps"]] == [[1, 2], [], [3]]
    found = schema.decode(record)
    assert same(found["s"], values["s"])
    assert found["names"].tolist() == ["a", "b"]


def test_sparse_arrays_sharing_index_agree_or_are_rejected() -> None:
    schema = Schema({"a": Sparse("int64", (3,), ("at",), "a_v"), "b": Sparse("int64", (3,), ("at",), "b_v")})
    one = SparseArrays(np.array([[0]]), np.array([1]), (3,))
    other = SparseArrays(np.array([[1]]), np.array([1]), (3,))
    assert same(schema.decode(schema.encode({"a": one, "b": one}))["b"], one)
    with pytest.raises(SchemaError, match="'at'"):
        schema.encode({"a": one, "b": other})


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        (FixedLen((2,), "int64"), [1, 2, 3]),
        (FixedLen((2,), "int64"), [[1, 2]]),
        (FixedLen((2,), "int64"), [1.5, 2]),
        (FixedLen((2,), "uint8"), [1, 256]),
        (FixedLen((2,), "uint64"), [1, -1]),
        (FixedLen((2,), "float32"), np.array([1e300, 0])),
        (FixedLen((2, 2), "float32"), [[1], [1, 2]]),
        (FixedLen((2,), "float64", raw=True), "ab"),
        (FixedLen((2,), "bytes"), b"ab"),
        (VarLen("int64"), [[1]]),
        (VarLen("bool"), [1, 0]),
        (Tensor("float32"), None),
        (Sparse("int64", (3,), ("at",), "v"), SparseArrays(np.array([[3]]), np.array([1]), (3,))),
        (Sparse("int64", (3,), ("at",), "v"), {"at": 1}),
        (Sequence(VarLen("int64")), "ab"),
        (Sequence(VarLen("int64")), [[1], 2]),
        (VarLen("bytes"), np.array(b"a")),
        (Sequence(VarLen("int64")), np.array(1)),
        (Sparse("int64", (3,), ("at",), "v"), SparseArrays(np.array([[1]]), 5, (3,))),  # type: ignore[arg-type]  # deliberately wrong
        (Sparse("int64", (3,), ("at",), "v"), SparseArrays(np.array([[1]]), np.array([5]), 3)),  # type: ignore[arg-type]  # deliberately wrong
        (FixedLen((2, 2), "bytes"), [np.array([[b"a"]]), np.array([[b"a", b"b"]])]),
        (Tensor("bytes"), [np.zeros((2, 2)), np.zeros((2, 3))]),
    ],
)
def test_entry_error_names_feature_of_unsuitable_value(entry: Any, value: Any) -> None:
    with pytest.raises(SchemaError, match="feature 'x'"):
        Schema({"x": entry}).encode({"x": value})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"b": FixedLen((), "int64", default=0)}),
        ({}, {"b": VarLen("bytes")}),
        ({"a": FixedLen((), "int32")}, {"a": FixedLen((), "int64")}),
        ({"a": FixedLen((), "str")}, {"a": FixedLen((), "bytes")}),
        ({"a": FixedLen((), "int64")}, {"a": VarLen("int64")}),
        ({"a": FixedLen((), "int64")}, {"a": FixedLen((), "int64", default=7)}),
    ],
)
def test_schema_change_decoding_old_records_is_compatible(old: Any, new: Any) -> None:
    assert Schema(new).reads(Schema(old)) is None
    assert Schema(old).reads(Schema(new)) is not None or not new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {"b": FixedLen((), "int64")}),
        ({}, {"b": Tensor("int64")}),
        ({"a": FixedLen((), "int64")}, {}),
        ({"a": FixedLen((), "int64")}, {"a": FixedLen((), "float32")}),
        ({"a": FixedLen((), "int64")}, {"a": FixedLen((2,), "int64")}),
        ({"a": FixedLen((), "int64", default=0)}, {"a": FixedLen((), "int64", default=1)}),
        ({"a": FixedLen((), "int64", default=0)}, {"a": FixedLen((), "int64")}),
    ],
)
def test_incompatible_change_names_feature(old: Any, new: Any) -> None:
    reason = Schema(new).reads(Schema(old))
    assert reason is not None
    assert reason.startswith("feature '")


def test_allow_extra_may_be_added_but_not_removed() -> None:
    closed, open_ = Schema({"a": VarLen("int64")}), Schema({"a": VarLen("int64")}, allow_extra=True)
    assert open_.reads(closed) is None
    assert "allow_extra" in str(closed.reads(open_))
    assert Schema({}, allow_extra=True).reads(closed) is None
