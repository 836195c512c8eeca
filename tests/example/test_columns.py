"""Decoding a batch gives the same result as decoding each record, and errors name the faulty record."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from asyncrec.errors import DecodeError, SchemaError
from asyncrec.example import _columns as columns
from asyncrec.example._codec import encode_example, feature_bytes
from asyncrec.example._columns import Column, JoinedBytes, column_of, read_columns
from asyncrec.example._wire import BYTES, FLOAT, INT64, Raw, parse_example
from asyncrec.example.proto.example_pb2 import Example, Features

pytestmark = pytest.mark.usefixtures("implementation")

KINDS = {"label": INT64, "url": BYTES, "emb": FLOAT, "tokens": INT64, "tags": BYTES}


def accept(features: Mapping[str, Raw], row: int) -> None:
    """Accept every record."""


def plain(column: Column) -> tuple[int, list[Any], list[int]]:
    if isinstance(column.flat, JoinedBytes):
        flat = column.flat.to_list()
        assert b"".join(flat) == bytes(column.flat.contents)
        assert len(column.flat.offsets) == len(flat) + 1
    else:
        flat = column.flat if isinstance(column.flat, list) else column.flat.tolist()
    return column.kind, flat, column.counts.tolist()


def one_by_one(records: list[bytes], wanted: Mapping[str, int]) -> dict[str, tuple[int, list[Any], list[int]]]:
    parsed = [parse_example(record) for record in records]
    return {name: plain(column_of(kind, [raws.get(name) for raws in parsed])) for name, kind in wanted.items()}


def entries(record: bytes) -> list[bytes]:
    """Return each feature of a record as a separate Features message."""
    message = Example.FromString(record)
    return [Features(feature={name: value}).SerializeToString() for name, value in message.features.feature.items()]


def reordered(record: bytes, seed: int) -> bytes:
    parts = entries(record)
    random.Random(seed).shuffle(parts)
    return Example(features=Features.FromString(b"".join(parts))).SerializeToString() if seed < 0 else wrapped(parts)


def wrapped(parts: list[bytes]) -> bytes:
    body = b"".join(parts)
    size = len(body)
    head = bytearray()
    while size >= 128:
        head.append(size & 127 | 128)
        size >>= 7
    return b"\x0a" + bytes([*head, size]) + body


FEATURES = st.fixed_dictionaries(
    {"label": st.integers(-(2**63), 2**63 - 1), "emb": st.lists(st.floats(width=32, allow_nan=False), max_size=40)},
    optional={
        "url": st.binary(max_size=300),
        "tokens": st.lists(st.integers(0, 1000), max_size=4),
        "tags": st.lists(st.binary(max_size=5), max_size=3),
        "unknown": st.one_of(st.integers(), st.binary(max_size=3)).filter(
            lambda v: isinstance(v, bytes) or abs(v) < 99
        ),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(FEATURES, min_size=1, max_size=6), st.integers(0, 2**32), st.integers(0, 80))
def test_columns_match_single_records_for_any_layouts(rows: list[Any], seed: int, repeat: int) -> None:
    rng = random.Random(seed)
    records = [encode_example(row) for row in rows for _ in range(1 + repeat)]
    records = [reordered(record, rng.randrange(3)) for record in records]
    rng.shuffle(records)
    expected = one_by_one(records, KINDS)
    for joined in ((), ("url",), ("url", "tags")):
        read = read_columns(records, KINDS, accept, joined)
        assert {name: plain(column) for name, column in read.items()} == expected
        assert {name for name, column in read.items() if isinstance(column.flat, JoinedBytes)} == {*joined}


ODD = [
    pytest.param(lambda r: r + b"\x28\x01", id="an unknown field behind the features"),
    pytest.param(lambda r: r + r, id="the example twice"),
    pytest.param(lambda r: wrapped([*entries(r), *entries(encode_example({"label": 9}))]), id="a name twice"),
    pytest.param(
        lambda r: wrapped([*entries(r), bytes.fromhex("0a0c0a016c12071a05080108ac02")]), id="unpacked numbers"
    ),
    pytest.param(lambda r: b"", id="nothing"),
]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("common", [True, False])
def test_columns_accept_odd_forms_among_plain_records(odd: Callable[[bytes], bytes], common: bool) -> None:
    records = [encode_example({"label": i, "url": "x" * i, "emb": np.arange(i, dtype=np.float32)}) for i in range(60)]
    mixed = [odd(record) if (i % 7 == 0 or common) else record for i, record in enumerate(records)]
    wanted = KINDS | {"l": INT64}
    for joined in ((), ("url", "tags")):
        read = read_columns(mixed, wanted, accept, joined)
        assert {name: plain(column) for name, column in read.items()} == one_by_one(mixed, wanted)


def test_columns_accept_many_layouts_in_one_batch() -> None:
    names = [f"f{i}" for i in range(9)]
    records = [encode_example({name: i for j, name in enumerate(names) if i >> j & 1}) for i in range(512)]
    wanted = dict.fromkeys(names, INT64)
    read = read_columns(records, wanted, accept)
    assert {name: plain(column) for name, column in read.items()} == one_by_one(records, wanted)


def test_columns_of_large_batch_match_single_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BLOCK_BYTES", 2000)
    records = [encode_example({"label": i, "url": "u" * (i % 50), "tags": ["a"] * (i % 3)}) for i in range(400)]
    records[100] = encode_example({"label": 7, "url": "u" * 5000})
    read = read_columns(records, KINDS, accept)
    assert {name: plain(column) for name, column in read.items()} == one_by_one(records, KINDS)


@pytest.mark.parametrize("names", [40, 900])
def test_columns_ignore_any_number_of_unwanted_names(names: int) -> None:
    records = [
        encode_example({"label": i} | {f"extra {(i * 7 + j) % names}": j for j in range(i % 60)}) for i in range(300)
    ]
    read = read_columns(records, {"label": INT64, "absent": FLOAT}, accept)
    assert read["label"].flat.tolist() == list(range(300))
    assert read["absent"].counts.tolist() == [-1] * 300


def test_columns_accept_over_thousand_requested_features() -> None:
    wanted = {f"f{i}": INT64 for i in range(1001)}
    records = [encode_example({"f0": 1, f"f{i}": i}) for i in range(0, 1001, 100)]
    for count in (1000, 1001):
        some = dict(list(wanted.items())[:count])
        read = read_columns(records, some, accept)
        assert {name: plain(column) for name, column in read.items()} == one_by_one(records, some)


def test_columns_accept_rows_longer_than_first() -> None:
    records = [
        encode_example({"emb": np.arange(n, dtype=np.float32), "tokens": list(range(n)), "tags": ["t"] * n})
        for n in range(1, 300)
    ]
    read = read_columns(records, KINDS, accept)
    assert {name: plain(column) for name, column in read.items()} == one_by_one(records, KINDS)


def test_columns_are_writable() -> None:
    read = read_columns([encode_example({"label": 1, "emb": [0.5]})] * 3, KINDS, accept)
    for name in ("label", "emb"):
        assert read[name].flat.flags.writeable
        assert read[name].flat.flags.aligned


@pytest.mark.parametrize("wrong", [5, "text", None])
def test_read_columns_rejects_non_record(wrong: Any) -> None:
    with pytest.raises(TypeError):
        read_columns([encode_example({"label": 1}), wrong], KINDS, accept)


def test_columns_of_empty_batch_are_empty() -> None:
    assert {name: plain(column)[1:] for name, column in read_columns([], KINDS, accept).items()} == dict.fromkeys(
        KINDS, ([], [])
    )


@pytest.mark.parametrize("count", [3, 100])
@pytest.mark.parametrize("record_type", [bytearray, memoryview])
def test_columns_accept_any_record_buffers(count: int, record_type: Any) -> None:
    records = [encode_example({"label": i, "url": "x"}) for i in range(count)]
    read = read_columns([record_type(record) for record in records], KINDS, accept)
    assert read["label"].flat.tolist() == list(range(count))
    assert read["url"].flat == [b"x"] * count


@pytest.mark.parametrize("count", [3, 100])
def test_damaged_record_error_names_record(count: int) -> None:
    good = [encode_example({"label": 77, "emb": [1.5]}) for _ in range(count)]
    for damaged, message in [
        (good[0][:-1], "record 2 of the batch: offset"),
        (good[0].replace(b"\x4d", b"\xcd"), "record 2 of the batch: feature 'label': the last int64 value"),
        (b"\xff", "record 2 of the batch: offset 0"),
    ]:
        records = [*good[:2], damaged, *good[3:]]
        with pytest.raises(DecodeError, match=message):
            read_columns(records, KINDS, accept)


def test_damaged_bytes_list_error_names_record() -> None:
    good = [encode_example({"tags": ["ab", "cd"]}) for _ in range(100)]
    bad = good[0].replace(b"\x0a\x02cd", b"\x0a\x7fcd")
    with pytest.raises(DecodeError, match="record 50 of the batch: offset"):
        read_columns([*good[:50], bad, *good[51:]], KINDS, accept)


def test_check_is_called_once_per_layout() -> None:
    seen: list[int] = []

    def check(features: Mapping[str, Raw], row: int) -> None:
        seen.append(row)
        if "b" in features:
            raise SchemaError(f"no b in {row}")

    records = [encode_example({"a": i}) for i in range(200)]
    read_columns(records, {"a": INT64}, check)
    assert seen == [0]
    with pytest.raises(SchemaError, match="no b in 150"):
        read_columns([*records[:150], encode_example({"a": 1, "b": 2}), *records[151:]], {"a": INT64}, check)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_batch_behaves_like_single_records(
    data: st.DataObject,
) -> None:
    records = [
        encode_example({"label": 77, "url": "x" * (i % 5), "emb": [1.5] * 3, "tags": ["a", "b"]}) for i in range(30)
    ]
    at = data.draw(st.integers(0, 29))
    damaged = bytearray(records[at])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    records[at] = bytes(damaged)

    def kinds(features: Mapping[str, Raw], row: int) -> None:
        for name, (kind, _) in features.items():
            if kind and kind != KINDS.get(name, kind):
                raise SchemaError(f"record {row}")

    def alone() -> Any:
        for row, record in enumerate(records):
            kinds(parse_example(record), row)
        return one_by_one(records, KINDS)

    try:
        expected = alone()
    except (DecodeError, SchemaError) as error:
        with pytest.raises(type(error)):
            read_columns(records, KINDS, kinds)
        return
    read = read_columns(records, KINDS, kinds)
    assert repr({name: plain(column) for name, column in read.items()}) == repr(expected)  # repr: NaN equals itself


def test_overlong_varint_of_new_feature_raises_with_record_number() -> None:
    feature = feature_bytes((INT64, b"\xff" * 10 + b"\x01"))
    entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
    features = b"\x0a" + bytes([len(entry)]) + entry
    records = [encode_example({"b": [1]}), b"\x0a" + bytes([len(features)]) + features]
    with pytest.raises(DecodeError, match="record 1 of the batch: feature 'a'"):
        read_columns(records, {"a": INT64, "b": INT64}, accept)
