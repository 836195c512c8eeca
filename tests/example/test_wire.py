"""The wire format is read as protobuf reads it, and any malformed bytes raise DecodeError."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.unknown_fields import UnknownFieldSet
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.errors import DecodeError
from asyncrec.example._varints import int64_values
from asyncrec.example._wire import BYTES, FLOAT, INT64, NONE, Raw, parse_example, parse_sequence_example
from asyncrec.example.proto.example_pb2 import Example, Feature, Features, SequenceExample

INT64S = st.integers(-(2**63), 2**63 - 1)
FLOATS = st.floats(width=32)
FEATURES = st.one_of(
    st.builds(lambda v: Feature(int64_list={"value": v}), st.lists(INT64S, max_size=5)),
    st.builds(lambda v: Feature(float_list={"value": v}), st.lists(FLOATS, max_size=5)),
    st.builds(lambda v: Feature(bytes_list={"value": v}), st.lists(st.binary(max_size=200), max_size=3)),
    st.just(Feature()),
)
EXAMPLES = st.dictionaries(st.text(max_size=5), FEATURES, max_size=4).map(
    lambda features: Example(features=Features(feature=features))
)


def known(feature: Feature) -> tuple[str | None, list[object]]:
    """Return a feature's kind and values as protobuf reads them, with floats as bytes, so that NaN equals itself."""
    kind = feature.WhichOneof("kind")
    values = list(getattr(feature, kind).value) if kind else []
    return kind, [struct.pack("<f", value) for value in values] if kind == "float_list" else values


def ours(raw: Raw) -> tuple[str | None, list[object]]:
    kind, payload = raw
    if isinstance(payload, list):
        return "bytes_list", list(payload)
    if kind == FLOAT:
        return "float_list", [payload[at : at + 4] for at in range(0, len(payload), 4)]
    return ("int64_list", list(int64_values(payload).tolist())) if kind == INT64 else (None, [])


def without_bits_of_nan(values: tuple[str | None, list[object]]) -> tuple[str | None, list[object]]:
    """Replace NaNs by one value: protobuf converts floats to Python's, which changes the payload of some NaNs."""
    kind, items = values
    if kind != "float_list":
        return values
    numbers = [struct.unpack("<f", item)[0] for item in items]  # type: ignore[arg-type]  # bytes, as above
    return kind, [item if number == number else "nan" for item, number in zip(items, numbers, strict=True)]


def agree(data: bytes) -> None:
    """Check that asyncrec and protobuf parse the data to the same result, or both reject it."""
    try:
        message = Example.FromString(data)
    except ProtobufError:
        with pytest.raises(DecodeError):
            for raw in parse_example(data).values():
                ours(raw)
        return
    there = {name: without_bits_of_nan(known(feature)) for name, feature in message.features.feature.items()}
    here = {name: without_bits_of_nan(ours(raw)) for name, raw in parse_example(data).items()}
    # Unlike protobuf's C++ runtime, upb treats an entry that contains an unknown field as unknown itself.
    if not len(UnknownFieldSet(message.features)):
        assert here == there


@settings(deadline=None)
@given(EXAMPLES)
def test_parser_reads_protobuf_output(message: Example) -> None:
    agree(message.SerializeToString())


@settings(deadline=None)
@given(st.binary(max_size=60))
def test_parser_agrees_with_protobuf_on_arbitrary_bytes(data: bytes) -> None:
    agree(data)


@settings(max_examples=300, deadline=None)
@given(EXAMPLES, st.data())
def test_parser_agrees_with_protobuf_on_flipped_bytes(message: Example, data: st.DataObject) -> None:
    mutable = bytearray(message.SerializeToString())
    for _ in range(data.draw(st.integers(1, 3))):
        if mutable:
            mutable[data.draw(st.integers(0, len(mutable) - 1))] = data.draw(st.integers(0, 255))
    agree(bytes(mutable))


@settings(deadline=None)
@given(EXAMPLES)
def test_parser_agrees_with_protobuf_on_every_truncation(message: Example) -> None:
    data = message.SerializeToString()
    for end in range(len(data)):
        agree(data[:end])


@settings(deadline=None)
@given(st.lists(EXAMPLES, min_size=2, max_size=3))
def test_concatenated_examples_merge_like_protobuf(messages: list[Example]) -> None:
    agree(b"".join(message.SerializeToString() for message in messages))


def field(number: int, wire: int, value: bytes = b"") -> bytes:
    return bytes([number << 3 | wire]) + value


def delimited(number: int, value: bytes) -> bytes:
    assert len(value) < 128
    return field(number, 2, bytes([len(value)]) + value)


def record(feature: bytes, name: bytes = b"a") -> bytes:
    return delimited(1, delimited(1, delimited(1, name) + delimited(2, feature)))


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        pytest.param(
            delimited(3, field(1, 0, b"\x05") + field(1, 0, b"\x81\x01")), (INT64, [5, 129]), id="unpacked ints"
        ),
        pytest.param(delimited(2, field(1, 5, b"\0\0\x80\x3f") * 2), (FLOAT, [1.0, 1.0]), id="unpacked floats"),
        pytest.param(delimited(3, delimited(1, b"\x05") + field(1, 0, b"\x06")), (INT64, [5, 6]), id="both ways"),
        pytest.param(delimited(3, delimited(1, b"\x05")) * 2, (INT64, [5, 5]), id="a list in two pieces"),
        pytest.param(delimited(3, b"") + delimited(2, b""), (FLOAT, []), id="the last kind counts"),
        pytest.param(delimited(3, delimited(1, b"\x05") + delimited(9, b"xyz")), (INT64, [5]), id="an unknown field"),
        pytest.param(
            field(7, 3) + field(1, 0, b"\1") + field(2, 3) + field(2, 4) + field(7, 4), (NONE, []), id="groups"
        ),
        pytest.param(field(9, 1, bytes(8)) + field(8, 5, bytes(4)) + delimited(1, b""), (BYTES, []), id="fixed fields"),
        pytest.param(delimited(3, delimited(1, b"\x80\x00")), (INT64, [0]), id="a number longer than it need be"),
    ],
)
def test_unusual_valid_encodings_are_parsed(feature: bytes, expected: tuple[int, list[object]]) -> None:
    agree(record(feature))
    kind, payload = parse_example(record(feature))["a"]
    if kind == INT64:
        values: object = int64_values(payload).tolist()  # type: ignore[arg-type]  # not a list: of INT64
    else:
        values = np.frombuffer(payload, "<f4").tolist() if kind == FLOAT else list(payload)  # type: ignore[call-overload]  # as above
    assert (kind, values) == expected


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(
            b"\x0a\xff\xff\xff\xff\x0f",
            "offset 0: field 1 extends to byte 4294967301, but its message ends at byte 6",
            id="length",
        ),
        pytest.param(b"\x0a\x80", "offset 1: a number is truncated", id="varint cut"),
        pytest.param(b"\x0a" + b"\xff" * 11, "offset 1: a number is longer than 5 bytes", id="varint too long"),
        pytest.param(b"\x02\x00", "offset 0: there is no field with the number 0", id="field 0"),
        pytest.param(b"\x0f", "offset 0: wire type 7", id="wire type"),
        pytest.param(b"\x0c", "offset 0: wire type 4", id="a group that only ends"),
        pytest.param(b"\x3b\x44", "offset 1: a group ends without a start", id="another group ends"),
        pytest.param(b"\x3b" * 5000, "offset 5000: a number is truncated", id="groups that never end"),
        pytest.param(record(b"", b"\xff\xfe"), "offset 6: a name is not UTF-8", id="name"),
        pytest.param(record(delimited(2, delimited(1, b"abc"))), "offset 13: 3 bytes of packed floats", id="floats"),
    ],
)
def test_malformed_data_error_names_offset(data: bytes, message: str) -> None:
    with pytest.raises(DecodeError, match=message):
        parse_example(data)


def overlong(value: int, size: int) -> bytes:
    return bytes([value >> 7 * at & 0x7F | 0x80 for at in range(size - 1)] + [value >> 7 * (size - 1) & 0x7F])


@pytest.mark.parametrize("size", range(2, 12))
@pytest.mark.parametrize("high", [0, 34, 62, 63, 65])
def test_parser_agrees_with_protobuf_on_overlong_numbers(size: int, high: int) -> None:
    value = 2 | (1 << high if high else 0)
    agree(record(delimited(3, field(1, 0, overlong(value, size)))))
    agree(field(5, 2, overlong(value, size) + b"ab"))
    agree(overlong(0x28 | value >> 3 << 3, size) + b"\0")
    agree(b"\x3b" + overlong(0x3C | value >> 3 << 3, size))


@settings(deadline=None)
@given(
    st.dictionaries(st.text(max_size=4), FEATURES, max_size=3),
    st.dictionaries(st.text(max_size=4), st.lists(FEATURES, max_size=3), max_size=3),
)
def test_sequence_examples_parse_like_protobuf(context: dict[str, Feature], lists: dict[str, list[Feature]]) -> None:
    message = SequenceExample(
        context=Features(feature=context),
        feature_lists={"feature_list": {name: {"feature": steps} for name, steps in lists.items()}},
    )
    read_context, read_lists = parse_sequence_example(message.SerializeToString())
    assert {name: ours(raw) for name, raw in read_context.items()} == {n: known(f) for n, f in context.items()}
    assert {name: [ours(raw) for raw in steps] for name, steps in read_lists.items()} == {
        name: [known(step) for step in steps] for name, steps in lists.items()
    }


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_parser_accepts_same_sequence_examples_as_protobuf(data: bytes) -> None:
    try:
        message = SequenceExample.FromString(data)
    except ProtobufError:
        with pytest.raises(DecodeError):
            context, lists = parse_sequence_example(data)
            for raw in [*context.values(), *(raw for steps in lists.values() for raw in steps)]:
                ours(raw)
        return
    context, lists = parse_sequence_example(data)
    if len(UnknownFieldSet(message.context)) or len(UnknownFieldSet(message.feature_lists)):
        return  # for the same reason as in agree()
    assert set(context) == set(message.context.feature)
    assert {name: len(steps) for name, steps in lists.items()} == {
        name: len(steps.feature) for name, steps in message.feature_lists.feature_list.items()
    }
