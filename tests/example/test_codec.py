"""Mappings are encoded as in protobuf and decoded unchanged; TensorFlow's messages are accepted unchanged."""

from __future__ import annotations

import contextlib
import gc
import struct
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.errors import DecodeError, SchemaError
from asyncrec.example._codec import decode_example, decode_sequence_example, encode_example, encode_sequence_example
from asyncrec.example.proto.example_pb2 import Example, Feature, FeatureList, FeatureLists, Features, SequenceExample

pytestmark = pytest.mark.usefixtures("implementation")

NAMES = st.text(max_size=6)
VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=30),
    st.floats(width=32, allow_nan=False),
    st.lists(st.floats(width=32, allow_nan=False), max_size=30),
    st.binary(max_size=300),
    st.lists(st.binary(max_size=200), max_size=4),
    st.text(max_size=20),
    st.booleans(),
)


def message_of(value: Any) -> Feature:
    """Return the Feature message for a value."""
    values = value if isinstance(value, list) else [value]
    if not values:
        return Feature()
    if isinstance(values[0], int):
        return Feature(int64_list={"value": [int(v) for v in values]})  # protobuf does not accept bools here
    if isinstance(values[0], float):
        return Feature(float_list={"value": values})
    return Feature(bytes_list={"value": [v.encode() if isinstance(v, str) else v for v in values]})


@settings(deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_encoding_matches_protobuf_up_to_name_order(features: dict[str, Any]) -> None:
    """Each protobuf runtime has its own deterministic order of names; ours is the order of their UTF-8 bytes."""
    messages = {name: message_of(value) for name, value in features.items()}
    assert Example.FromString(encode_example(features)) == Example(features=Features(feature=messages))
    one_by_one = [Features(feature={name: messages[name]}).SerializeToString() for name in sorted(messages)]
    assert encode_example(features).endswith(b"".join(one_by_one))


@settings(deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_encoded_values_decode_unchanged(features: dict[str, Any]) -> None:
    decoded = decode_example(encode_example(features))
    assert list(decoded) == sorted(features)
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        expected = [v.encode() if isinstance(v, str) else v for v in values]
        found = decoded[name]
        assert (found if isinstance(found, list) else found.tolist()) == expected


def test_encoding_matches_known_bytes() -> None:
    assert encode_example({"a": [1]}).hex() == "0a0c0a0a0a016112051a030a0101"


def test_encoding_is_independent_of_insertion_order() -> None:
    assert encode_example({"b": 1, "a": 2, "é": 3, "𐀀": 4, "\uffff": 5}) == encode_example(
        {"𐀀": 4, "\uffff": 5, "é": 3, "a": 2, "b": 1}
    )


def test_numbers_decode_to_writable_arrays_and_bytes_to_list() -> None:
    decoded = decode_example(encode_example({"i": 5, "f": [0.5, 1.5], "b": "x", "n": []}))
    integers, floats = decoded["i"], decoded["f"]
    assert isinstance(integers, np.ndarray)
    assert isinstance(floats, np.ndarray)
    assert (integers.dtype, floats.dtype) == (np.int64, np.float32)
    assert integers.flags.writeable
    assert floats.flags.writeable
    assert (decoded["b"], decoded["n"]) == ([b"x"], [])


@pytest.mark.parametrize("size", [0, 1, 100, 124, 127, 128, 16_378, 16_384, 2_100_000])
def test_encoded_lengths_of_every_width_match_protobuf(size: int) -> None:
    for value in (bytes(size), [bytes(size), b""]):
        message = Example(features=Features(feature={"a": message_of(value)}))
        assert encode_example({"a": value}) == message.SerializeToString(deterministic=True)
    array = np.zeros(size // 4, np.float32)
    message = Example(features=Features(feature={"a": Feature(float_list={"value": array})}))
    assert encode_example({"a": array}) == message.SerializeToString(deterministic=True)


def test_array_is_stored_as_raw_bytes() -> None:
    array = np.arange(256, dtype=np.float32)
    assert array.tobytes() in encode_example({"emb": array})


def test_error_names_feature() -> None:
    with pytest.raises(
        SchemaError, match="feature 'emb': the array of float64 contains values that float32 cannot represent"
    ):
        encode_example({"label": 1, "emb": np.array([0.1])}, narrow=False)
    with pytest.raises(SchemaError, match=r"^feature list 'emb', step 1: the array of float64 .*narrow=False"):
        encode_sequence_example({}, {"emb": np.array([[0.5], [0.1]])}, narrow=False)


def test_float64_values_are_rounded_by_default() -> None:
    assert encode_example({"emb": np.array([0.1])}) == encode_example({"emb": [0.1]})
    steps = {"emb": np.array([[0.5], [0.1]])}
    assert encode_sequence_example({}, steps) == encode_sequence_example({}, {"emb": [[0.5], [0.1]]})


def test_encoder_rejects_names_other_than_utf8_text() -> None:
    with pytest.raises(TypeError, match="the name of a feature must be a str, not int: 1"):
        encode_example({1: 2})  # type: ignore[dict-item]  # deliberately wrong
    with pytest.raises(TypeError, match="the name of a feature must be a str"):
        encode_example({1: 2, "a": 3})  # type: ignore[dict-item]  # deliberately wrong
    with pytest.raises(
        SchemaError, match=r"feature '\\ud800': the name contains characters that cannot be encoded as UTF-8"
    ):
        encode_example({"\ud800": 2})


def test_encoder_accepts_own_message_and_rejects_others() -> None:
    message = Example(features=Features(feature={"b": message_of(1), "a": message_of(2)}))
    assert encode_example(message) == encode_example({"a": 2, "b": 1})
    sequence = SequenceExample(context=message.features)
    assert encode_sequence_example(sequence) == sequence.SerializeToString(deterministic=True)
    for wrong in (sequence, message.features, 3, None, [("a", 1)]):
        with pytest.raises(TypeError, match="expected a mapping of names to values, or a message Example"):
            encode_example(wrong)  # type: ignore[arg-type]  # deliberately wrong


@pytest.mark.parametrize("convert", [bytes, bytearray, memoryview])
def test_decoder_accepts_any_buffer(convert: Any) -> None:
    assert decode_example(convert(encode_example({"a": "x"}))) == {"a": [b"x"]}


def test_truncated_number_error_names_feature() -> None:
    data = encode_example({"a": 77}).replace(b"\x4d", b"\xcd")
    with pytest.raises(DecodeError, match="feature 'a': the last int64 value"):
        decode_example(data)


STEPS = st.one_of(
    st.lists(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4), max_size=4),
    st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4), max_size=4),
    st.lists(st.binary(max_size=150), max_size=4),
)


@settings(deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=3), st.dictionaries(NAMES, STEPS, max_size=3))
def test_sequence_examples_match_protobuf_and_round_trip(context: Any, lists: Any) -> None:
    message = SequenceExample(
        context=Features(feature={name: message_of(value) for name, value in context.items()}),
        feature_lists=FeatureLists(
            feature_list={
                name: FeatureList(feature=[message_of(step) for step in steps]) for name, steps in lists.items()
            }
        ),
    )
    data = encode_sequence_example(context, lists)
    assert SequenceExample.FromString(data) == message
    assert len(data) == message.ByteSize()
    decoded_context, decoded = decode_sequence_example(data)
    assert set(decoded_context) == set(context)
    assert {name: len(steps) for name, steps in decoded.items()} == {name: len(steps) for name, steps in lists.items()}
    for name, steps in lists.items():
        for step, found in zip(steps, decoded[name], strict=True):
            expected = step if isinstance(step, list) else [step]
            assert (found if isinstance(found, list) else found.tolist()) == expected


def test_array_steps_follow_first_axis() -> None:
    _, lists = decode_sequence_example(encode_sequence_example({}, {"x": np.arange(6, dtype=np.float32).reshape(3, 2)}))
    assert [step.tolist() for step in lists["x"] if not isinstance(step, list)] == [[0, 1], [2, 3], [4, 5]]


def test_feature_list_errors_name_list_and_step() -> None:
    with pytest.raises(
        SchemaError, match="feature list 'x', step 1: the value is None; leave the feature out, or pass a value"
    ):
        encode_sequence_example({}, {"x": [1, None]})
    with pytest.raises(SchemaError, match="feature list 'x', step 2: the value has a different type"):
        encode_sequence_example({}, {"x": [1, [], 2.5]})
    for value in ("text", 3, {"a": 1}):
        with pytest.raises(SchemaError, match=r"feature list 'x' is .* one value per step"):
            encode_sequence_example({}, {"x": value})  # type: ignore[dict-item]  # deliberately wrong


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_decoding_arbitrary_bytes_raises_only_decode_error(data: bytes) -> None:
    for decode in (decode_example, decode_sequence_example):
        with contextlib.suppress(DecodeError):
            decode(data)


def test_python_float_is_rounded_to_float32() -> None:
    found = decode_example(encode_example({"x": 0.1}))["x"]
    assert list(found) == [struct.unpack("<f", struct.pack("<f", 0.1))[0]]


class Column:
    """An object that runs a function while it is converted to an array."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile

    def __array__(self, dtype: object = None, copy: object = None) -> npt.NDArray[np.int64]:
        self._meanwhile()
        return np.arange(3)


def test_encoder_survives_values_mutating_their_mapping() -> None:
    values = [f"text {n}" for n in range(100)]
    features: dict[str, object] = {"b": Column(lambda: (features.clear(), values.clear(), gc.collect()))}
    features |= {"a": values, "c": values, "d": np.arange(100.0), "e": "word" * 100}
    with contextlib.suppress(KeyError):  # Python code raises KeyError for removed items
        assert decode_example(encode_example(features))["b"].tolist() == [0, 1, 2]  # type: ignore[union-attr]  # of int64


def test_interrupt_during_encoding_propagates() -> None:
    def interrupt() -> None:
        nonlocal times
        times += 1
        raise KeyboardInterrupt

    times = 0
    with pytest.raises(KeyboardInterrupt):
        encode_example({"a": 1, "b": Column(interrupt)})
    assert times == 1


def test_encoding_leaks_no_reference() -> None:
    values: list[object] = [
        1 << 40, 2.5, "text" * 9, b"bytes" * 9, [b"in a list" * 2], (1.5,), np.arange(5.0), np.int64(3),
    ]  # fmt: skip
    before = [sys.getrefcount(value) for value in values]
    for _ in range(10):
        encode_example({f"feature {n}": value for n, value in enumerate(values)})
        with pytest.raises(SchemaError):
            encode_example({"a": values[2], "b": values[4], "c": values[6], "z": None})
    assert [sys.getrefcount(value) for value in values] == before


def test_features_are_sorted_by_utf8_name() -> None:
    names = ["b", "a", "\U0001f600", "é", "ab", "", "\uffff", *(f"n{n}" for n in range(40))]
    encoded = encode_example(dict.fromkeys(names, 1))
    assert list(decode_example(encoded)) == sorted(names, key=str.encode)
