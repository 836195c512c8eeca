"""The values that a generator yields are converted to the features of an Example."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from asyncrec._datasets.from_generator.examples import flatten, prepare, with_shapes
from asyncrec.errors import ObjectNotFoundError, SchemaError
from asyncrec.example._codec import encode_example


def test_nested_dicts_are_flattened_with_slashes() -> None:
    assert flatten({"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": {}}) == {"a": 1, "b/c": 2, "b/d/e": 3}


@pytest.mark.parametrize("datum", [{"a/b": 1, "a": {"b": 2}}, {"a": {"b": 1}, "a/b": 2}])
def test_colliding_feature_names_are_rejected(datum: dict[str, object]) -> None:
    with pytest.raises(SchemaError, match="'a/b' occurs twice"):
        flatten(datum)


def test_non_text_feature_name_is_rejected() -> None:
    with pytest.raises(TypeError, match="the name of a feature must be a str, not int: 3"):
        flatten({"a": {3: 1}})  # type: ignore[dict-item]  # deliberately wrong


def test_path_is_replaced_by_file_content(tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(b"\x89PNG")
    assert prepare({"image": path}) == {"image": b"\x89PNG"}
    assert prepare({"images": [path, path]}) == {"images": [b"\x89PNG"] * 2}


def test_text_naming_existing_file_remains_text(tmp_path: Path) -> None:
    path = tmp_path / "secret.png"
    path.write_bytes(b"\x89PNG")
    datum = {"a": str(path), "b": [str(path)], "c": "https://example.org/cat.png", "d": "nowhere.jpg"}
    assert prepare(datum) == datum


def test_missing_file_error_names_feature(tmp_path: Path) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"file of feature 'in/image'.*nowhere\.png"):
        prepare({"in": {"image": tmp_path / "nowhere.png"}})


def test_nested_lists_become_encodable_arrays() -> None:
    found = prepare({"i": [[1, 2], [3, 4]], "f": [[0.1], [0.2]], "s": [["a"], ["b"]], "b": [[b"x\0", b""]]})
    assert found["i"].shape == (2, 2)
    assert found["f"].dtype == np.float32
    assert found["s"].tolist() == [["a"], ["b"]]
    assert found["b"].tolist() == [[b"x\0", b""]], "NumPy's own strings would lose the zero byte"
    encode_example(found)


def test_float64_array_in_list_keeps_dtype() -> None:
    found = prepare({"f": [np.array([0.1, 0.2])]})
    assert found["f"].dtype == np.float64
    with pytest.raises(
        SchemaError, match="feature 'f': the array of float64 contains values that float32 cannot represent"
    ):
        encode_example(found, narrow=False)


def test_single_float64_makes_entire_list_float64() -> None:
    assert prepare({"f": [[0.1, np.float64(0.2)]]})["f"].dtype == np.float64


@pytest.mark.parametrize("rows", [[[1e39, 1.0]], [[2**63, -1], [2**63 + 1, 5]], [[2**64, 0]], [[-(2**63) - 1, 0]]])
def test_nested_numbers_out_of_range_are_rejected(rows: list[list[float]]) -> None:
    with pytest.raises(SchemaError, match="feature 'x'"):
        encode_example(prepare({"x": rows}))


def test_nested_infinity_is_stored_as_infinity() -> None:
    assert prepare({"x": [[float("inf"), 1.0]]})["x"].tolist() == [[float("inf"), 1.0]]


def test_ragged_nested_list_is_rejected() -> None:
    with pytest.raises(
        SchemaError, match="feature 'x': the rows of the nested list differ in length, so it has no shape; pad"
    ):
        prepare({"x": [[1, 2], [3]]})


def test_arrays_and_flat_lists_are_stored_unchanged() -> None:
    array = np.zeros((2, 3))
    flat = [1, 2, 3]
    found = prepare({"array": array, "flat": flat, "empty": []})
    assert found["array"] is array
    assert found["flat"] is flat


def test_shapes_are_added_for_multidimensional_sparse_features() -> None:
    datum = {"one": [1, 2], "two": [[1, 2]], "array": np.zeros((3, 1, 2)), "in": {"deep": [[0]]}, "not": [[0]]}
    found = with_shapes(datum, ("one", "two", "array", "in/deep", "absent"))
    assert found == {**datum, "two_shape": [1, 2], "array_shape": [3, 1, 2], "in/deep_shape": [1, 1]}
    assert "two_shape" not in datum


def test_empty_list_remains_a_list() -> None:
    assert prepare({"x": [], "y": {"z": ()}}) == {"x": [], "y/z": ()}
    assert with_shapes({"x": []}, ["x"]) == {"x": []}
    assert with_shapes({"x": [1, 2]}, ["x"]) == {"x": [1, 2]}
