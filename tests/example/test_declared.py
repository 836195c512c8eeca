"""Examples of a declared class are stored as declared and read back unchanged; TFRecorder's faults raise errors."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.errors import SchemaError
from asyncrec.example._codec import decode_example, encode_example
from asyncrec.example._declared import DeclaredExample, IgnoreExample, check_round_trip, tfrecordable
from asyncrec.example._schema import FixedLen, Schema, Tensor

Field = DeclaredExample.Field


class ToyExample(DeclaredExample):
    """The example class from TFRecorder's documentation."""

    def __init__(self, name: str, label: int) -> None:
        super().__init__()
        self.name = name
        self._label = label
        self._data: Any = None

    @tfrecordable(dtype=Field.TYPE_INT32)
    def label(self) -> int:
        return self._label

    @label.setter
    def label(self, val: int) -> None:
        self._label = val

    @tfrecordable(dtype=Field.TYPE_ARRAY_FLOAT32)
    def data(self) -> Any:
        return self._data

    @data.setter
    def data(self, val: Any) -> None:
        self._data = val

    def load(self, src_data_dirpath: Any = None, normalize: bool = False, **kwargs: Any) -> None:
        data = np.load(Path(src_data_dirpath) / f"{self.name}.npy")
        if normalize:
            data /= np.max(data)
        self.data = data

    def split(self, chunk_size_in_bins: int = 5, **kwargs: Any) -> list[ToyExample]:
        chunks = []
        for start in range(0, self.data.shape[0], chunk_size_in_bins):
            chunk = ToyExample(f"{self.name}_{start}", self._label)
            chunk.data = self.data[start : start + chunk_size_in_bins]
            chunks.append(chunk)
        return chunks

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> ToyExample:
        return ToyExample(name=row[0], label=int(row[1]))

    def to_csv_row(self) -> list[object]:
        return [self.name, self._label]


def one_field(kind: int) -> type[Any]:
    """Return a class with a single field ``x`` of this type, set by its only argument."""

    class One(DeclaredExample):
        def __init__(self, x: object) -> None:
            self._x = x

        @tfrecordable(dtype=kind)
        def x(self) -> object:
            return self._x

        @x.setter
        def x(self, value: object) -> None:
            self._x = value

    return One


def stored(kind: int, value: object) -> Any:
    """Return the value that is decoded after this one was stored."""
    cls = one_field(kind)
    example = cls(value)
    check_round_trip(example)
    return cls.decode(example.encode())[0]


def test_tfrecorder_usage_example_works(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(24, dtype=np.float32).reshape(12, 2))
    example = ToyExample.from_csv_row(["a", "3"])
    example.load(src_data_dirpath=tmp_path, normalize=True)
    parts = [ToyExample.decode(part.encode()) for part in example.split(chunk_size_in_bins=5)]
    assert [label for label, _ in parts] == [3, 3, 3]
    assert [data.shape for _, data in parts] == [(5, 2), (5, 2), (2, 2)]
    assert np.concatenate([data for _, data in parts]).max() == 1
    check_round_trip(ToyExample, ["a", "3"], src_data_dirpath=tmp_path)


def test_fields_decode_to_tuple_in_declaration_order() -> None:
    class Page(DeclaredExample):
        zebra = tfrecordable(dtype=Field.TYPE_STRING)(lambda self: "z")
        apple = tfrecordable(dtype=Field.TYPE_INT64)(lambda self: 1)
        mango = tfrecordable(dtype=Field.TYPE_BOOL)(lambda self: True)

    assert list(Page.fields()) == ["zebra", "apple", "mango"]
    assert Page.decode(Page().encode()) == ("z", 1, True)


def test_field_types_match_tfrecorder_plus_bytes() -> None:
    assert [kind.name for kind in Field] == [
        "TYPE_BOOL", "TYPE_INT32", "TYPE_INT64", "TYPE_FLOAT", "TYPE_DOUBLE", "TYPE_STRING", "TYPE_ARRAY_FLOAT32",
        "TYPE_ARRAY_INT32", "TYPE_BYTES",
    ]  # fmt: skip
    assert all(isinstance(kind, int) for kind in Field)


@pytest.mark.parametrize(
    ("kind", "value", "type_"),
    [
        (Field.TYPE_BOOL, False, bool),
        (Field.TYPE_BOOL, np.bool_(True), bool),
        (Field.TYPE_INT32, -(2**31), int),
        (Field.TYPE_INT32, np.uint8(7), int),
        (Field.TYPE_INT64, 2**63 - 1, int),
        (Field.TYPE_FLOAT, 0.1, float),
        (Field.TYPE_FLOAT, 3, float),
        (Field.TYPE_FLOAT, float("nan"), float),
        (Field.TYPE_DOUBLE, 0.1, float),
        (Field.TYPE_DOUBLE, np.float64(1e300), float),
        (Field.TYPE_STRING, "", str),
        (Field.TYPE_STRING, "é", str),
        (Field.TYPE_BYTES, b"\xff\0", bytes),
    ],
)
def test_value_round_trips_with_type(kind: int, value: object, type_: type) -> None:
    found = stored(kind, value)
    assert type(found) is type_
    if kind != Field.TYPE_FLOAT:
        assert found == value


@settings(deadline=None)
@given(st.floats(allow_nan=False))
def test_double_round_trips_exactly(value: float) -> None:
    assert struct.pack("<d", stored(Field.TYPE_DOUBLE, value)) == struct.pack("<d", value)


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 4), (1, 2, 3, 4)])
@pytest.mark.parametrize("kind", [Field.TYPE_ARRAY_FLOAT32, Field.TYPE_ARRAY_INT32])
def test_array_round_trips_with_type_and_shape(kind: Any, shape: tuple[int, ...]) -> None:
    dtype = np.float32 if kind == Field.TYPE_ARRAY_FLOAT32 else np.int32
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = stored(kind, array)
    assert found.dtype == dtype
    assert found.shape == shape
    assert np.array_equal(found, array)
    assert found.flags.writeable


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4")[::2],
        np.array([0.5, np.nan, np.inf]),
        np.array([1, 2, 3]),
        np.ones((2, 2), np.float16).T,
    ],
    ids=repr,
)
def test_array_of_other_type_is_accepted_without_loss(array: Any) -> None:
    found = stored(Field.TYPE_ARRAY_FLOAT32, array)
    assert found.dtype == np.float32
    assert np.array_equal(found, array, equal_nan=True)


@pytest.mark.parametrize("kind", Field)
def test_missing_value_raises_instead_of_storing_zero(kind: int) -> None:
    with pytest.raises(SchemaError, match=r"^One\.x: the value is None; set it in load\(\)"):
        one_field(kind)(None).encode()


@pytest.mark.parametrize("kind", Field)
def test_missing_field_raises_instead_of_reading_zero(kind: int) -> None:
    with pytest.raises(SchemaError, match="feature 'x': missing"):
        one_field(kind).decode(encode_example({}))


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (Field.TYPE_BOOL, 1, "expected a bool, not the int 1"),
        (Field.TYPE_INT32, 2**31, "2147483648 is out of range for int32"),
        (Field.TYPE_INT32, True, "not the bool True"),
        (Field.TYPE_INT32, 1.0, "not the float 1.0"),
        (Field.TYPE_INT64, 2**63, "out of range for int64"),
        (Field.TYPE_INT64, "3", "not the str '3'"),
        (Field.TYPE_FLOAT, "3", "expected a float"),
        (Field.TYPE_FLOAT, True, "expected a float"),
        (Field.TYPE_FLOAT, 2**53 + 1, "cannot be stored exactly"),
        (Field.TYPE_FLOAT, 2**24 + 1, "16777217 cannot be stored exactly as float32"),
        pytest.param(Field.TYPE_FLOAT, 10**400, "cannot be stored exactly as float32", id="huge"),
        (Field.TYPE_DOUBLE, 2**53 + 1, "cannot be stored exactly"),
        (Field.TYPE_DOUBLE, np.int64(2**53 + 1), "cannot be stored exactly"),
        (Field.TYPE_DOUBLE, np.longdouble(1) + np.finfo(np.longdouble).eps, "cannot be stored exactly"),
        (Field.TYPE_STRING, b"a", "expected a str"),
        (Field.TYPE_BYTES, "a", "expected bytes"),
        (Field.TYPE_ARRAY_FLOAT32, [1.0, 2.0], "expected an array, not a list; convert it with numpy.asarray"),
        (
            Field.TYPE_ARRAY_FLOAT32,
            np.array([0.5, 1e300, 0.1, -1e300]),
            r"declared as float32. Converting it would change .*1e\+300.* and 1 more",
        ),
        (Field.TYPE_ARRAY_FLOAT32, np.array([2**24 + 1]), "declared as float32. Converting it would change"),
        (Field.TYPE_ARRAY_FLOAT32, np.array([-(2**63)]), "declared as float32. Converting it would change"),
        (
            Field.TYPE_ARRAY_FLOAT32,
            np.array([1j]),
            "the value is an array of complex128, but the field is declared as float32",
        ),
        (
            Field.TYPE_ARRAY_FLOAT32,
            np.array(["a"]),
            "the value is an array of <U1, but the field is declared as float32",
        ),
        (
            Field.TYPE_ARRAY_INT32,
            np.array([1.0]),
            "the value is an array of float64, but the field is declared as int32",
        ),
        (Field.TYPE_ARRAY_INT32, np.array([1, 2**31]), r"declared as int32. .* \.astype\(numpy.int32\)"),
        (Field.TYPE_ARRAY_INT32, np.array([2**32 - 1], np.uint32), "declared as int32"),
        (Field.TYPE_ARRAY_INT32, np.array([True]), "the value is an array of bool, but the field is declared as int32"),
    ],
    ids=repr,
)
def test_wrong_type_error_names_class_and_field(kind: int, value: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=rf"^One\.x: .*{message}"):
        one_field(kind)(value).encode()


def test_float_beyond_float32_raises() -> None:
    with pytest.raises(SchemaError, match="'x': 1e\\+300 is out of range for float32"):
        one_field(Field.TYPE_FLOAT)(1e300).encode()


def test_subclass_inherits_fields_without_changing_relatives() -> None:
    class Child(ToyExample):
        score = tfrecordable(dtype=Field.TYPE_DOUBLE)(lambda self: 0.1)

    class Other(ToyExample):
        word = tfrecordable(dtype=Field.TYPE_STRING)(lambda self: "w")

    class Both(Child, Other):
        pass

    assert list(ToyExample.fields()) == ["label", "data"]
    assert list(Child.fields()) == ["label", "data", "score"]
    assert list(Other.fields()) == ["label", "data", "word"]
    assert set(Both.fields()) == {"label", "data", "score", "word"}
    Child.fields().clear()
    assert list(Child.fields()) == ["label", "data", "score"]


def test_redeclared_field_keeps_place_and_plain_attribute_removes_field() -> None:
    class Wider(ToyExample):
        label = tfrecordable(dtype=Field.TYPE_INT64)(lambda self: 2**40)  # type: ignore[assignment]  # another property

    class Without(ToyExample):
        label = 3  # type: ignore[assignment]  # deliberately wrong

    assert Wider.fields() == {"label": Field.TYPE_INT64, "data": Field.TYPE_ARRAY_FLOAT32}
    assert list(Without.fields()) == ["data"]


def test_subclass_may_override_setter_of_parent_field() -> None:
    class Checked(ToyExample):
        @ToyExample.label.setter  # type: ignore[attr-defined]  # as of a property
        def label(self, value: int) -> None:
            self._label = value + 1

    example = Checked("a", 1)
    example.label = 5
    example.data = np.zeros(1, np.float32)
    assert Checked.decode(example.encode())[0] == 6
    assert ToyExample.fields()["label"] == Field.TYPE_INT32


def test_class_with_unstorable_fields_is_rejected_at_definition() -> None:
    with pytest.raises(
        TypeError, match=r"Bad\.data_shape: this name is reserved for the shape of 'data'; choose another name"
    ):
        type("Bad", (ToyExample,), {"data_shape": tfrecordable(dtype=Field.TYPE_INT64)(lambda self: 1)})
    with pytest.raises(TypeError, match=r"Bad\.split: DeclaredExample has a method with this name"):
        type("Bad", (DeclaredExample,), {"split": tfrecordable(dtype=Field.TYPE_INT64)(lambda self: 1)})
    with pytest.raises(TypeError, match=r"dtype=99: must be a member of DeclaredExample\.Field"):
        tfrecordable(dtype=99)


def test_declared_class_has_matching_schema() -> None:
    schema = ToyExample.schema()
    assert schema == Schema({"label": FixedLen((), "int32"), "data": Tensor("float32", raw=True)})
    example = ToyExample("a", 1)
    example.data = np.zeros((2, 2), np.float32)
    batch = schema.decode_batch([example.encode()] * 3)
    assert [data.shape for data in batch["data"]] == [(2, 2)] * 3


def test_array_of_float64_declared_as_float32_is_rounded() -> None:
    class One(DeclaredExample):
        @tfrecordable(dtype=Field.TYPE_ARRAY_FLOAT32)
        def x(self) -> Any:
            return np.array([0.1, np.nan, np.inf])

    (read,) = One.decode(One().encode())
    assert np.array_equal(read, np.array([0.1, np.nan, np.inf], np.float32), equal_nan=True)


def test_array_is_stored_as_bytes_and_shape() -> None:
    example = ToyExample("a", 1)
    example.data = np.arange(6, dtype=np.float32).reshape(2, 3)
    decoded = decode_example(example.encode())
    assert decoded["data"] == [example.data.tobytes()]
    assert list(decoded["data_shape"]) == [2, 3]


def test_tfrecorder_record_reads_back_flat() -> None:
    record = encode_example({"label": 3, "data": np.arange(6, dtype="<f4").tobytes()})
    label, data = ToyExample.decode(record)
    assert (label, data.tolist()) == (3, [0, 1, 2, 3, 4, 5])


def test_release_drops_only_arrays_and_bytes() -> None:
    example = ToyExample("a", 1)
    example.data = np.zeros(5, np.float32)
    example.release()
    assert example.data is None
    assert example.to_csv_row() == ["a", 1]
    unset = type("Fixed", (DeclaredExample,), {"x": tfrecordable(dtype=Field.TYPE_BYTES)(lambda self: b"x")})()
    unset.release()
    assert unset.x == b"x"


def test_class_without_base_constructor_call_works() -> None:
    assert one_field(Field.TYPE_INT32)(5).encode() == encode_example({"x": 5})


def test_default_methods_name_required_override() -> None:
    example = one_field(Field.TYPE_INT32)(1)
    assert example.load(anything=1) is None
    assert example.split(anything=1) == [example]
    with pytest.raises(NotImplementedError, match="override from_csv_row"):
        type(example).from_csv_row(["a"])
    with pytest.raises(NotImplementedError, match=r"override One\.to_csv_row"):
        example.to_csv_row()
    assert not issubclass(IgnoreExample, SchemaError)


class Forgetful(ToyExample):
    """An example class whose CSV row does not contain the label."""

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> Forgetful:
        return Forgetful(row[0], int(row[1]))

    def to_csv_row(self) -> list[object]:
        return [self.name, "0"] if self._label else [self.name, "1"]


class Changing(DeclaredExample):
    """An example class whose value differs each time it is read."""

    counter = 0

    @tfrecordable(dtype=Field.TYPE_INT32)
    def x(self) -> int:
        Changing.counter += 1
        return Changing.counter


class Waiting(ToyExample):
    """An example class with an async load method."""

    @staticmethod
    def from_csv_row(row: list[str], **kwargs: Any) -> Waiting:
        return Waiting(row[0], int(row[1]))

    async def load(self, **kwargs: Any) -> None:  # type: ignore[override]  # the contract of load allows both
        self.data = np.zeros(1, np.float32)


def test_checker_detects_values_that_do_not_round_trip() -> None:
    with pytest.raises(SchemaError, match=r"Changing\.x: \d+ was written, but \d+ was read"):
        check_round_trip(Changing())
    with pytest.raises(SchemaError, match="to_csv_row returned"):
        check_round_trip(Forgetful, ["a", "3"])
    with pytest.raises(
        TypeError, match="DeclaredExample has no field declared with @tfrecordable; declare at least one"
    ):
        check_round_trip(DeclaredExample())
    with pytest.raises(TypeError, match="pass a CSV row as well, or pass a loaded example"):
        check_round_trip(ToyExample)
    with pytest.raises(TypeError, match=r"Stranger\.from_csv_row returned a ToyExample instead of an example"):
        check_round_trip(type("Stranger", (ToyExample,), {}), ["a", "3"])
    with pytest.raises(TypeError, match="this method is async; await it, then pass the loaded example"):
        check_round_trip(Waiting, ["a", "3"])
    with pytest.raises(SchemaError, match=r"ToyExample\.data: the value is None"):
        check_round_trip(ToyExample("a", 3))
