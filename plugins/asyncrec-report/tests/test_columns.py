"""Records that are read together as columns are counted like records that are read one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
from asyncrec_report.profile import Profile
from asyncrec_report.texts import sniff, sniff_all
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncrec
from asyncrec import FixedLen, Schema
from asyncrec.example import decode_columns

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (4).to_bytes(4, "big") * 2 + b"..."

WORDS = st.sampled_from([b"", b"a", b"text", b"<html>", b'{"a": 1}', b" ", b"\xff\0", "é".encode(), PNG, b"ID3"])
ROWS = st.fixed_dictionaries(
    {},
    optional={
        "label": st.integers(-3, 3),
        "ids": st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3),
        "x": st.lists(st.floats(width=32), max_size=3),
        "mixed": st.integers(0, 3) | st.just(0.5) | st.just(b"b"),
        "image": WORDS,
        "tags": st.lists(WORDS, max_size=4),
        "raw": st.lists(st.binary(max_size=20), max_size=2),
    },
)
RECORDS = st.one_of(
    ROWS.map(asyncrec.encode_example),
    st.binary(max_size=5),
    st.builds(lambda row, steps: asyncrec.encode_sequence_example(row, {"steps": steps}), ROWS, st.lists(st.just(1))),
)


def summary(value: Any) -> Any:
    """Convert everything in a value to something that can be compared with ==."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.random.Generator):
        return str(value.bit_generator.state)
    if isinstance(value, dict):
        return [(name, summary(each)) for name, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [summary(each) for each in value]
    if isinstance(value, Schema):
        return value.to_json()
    state = getattr(value, "__dict__", None)
    return repr(value) if state is None or isinstance(value, FixedLen) else summary(state)


@settings(deadline=None)
@given(st.lists(st.lists(ROWS.map(asyncrec.encode_example) | RECORDS), max_size=3), st.booleans())
def test_batched_profile_equals_profile_of_single_records(batches: list[list[bytes]], by_schema: bool) -> None:
    schema = Schema({"raw": FixedLen((1,), "int32", raw=True)}) if by_schema else None
    together, alone = Profile(schema), Profile(schema)
    for records in batches:
        together.add(records, 7, decode_columns(records))
        alone.add(records, 7)
    assert summary(together) == summary(alone)


@given(st.lists(WORDS | st.binary(max_size=12) | st.text().map(str.encode), max_size=20))
def test_sniff_all_agrees_with_sniff_of_each_value(values: list[bytes]) -> None:
    values += [value[:size] + bytes(3) for value in values[:3] for size in (4095, 4096, 4097)]
    values += [b"x" * 4096 + b"\0", b"x" * 4095 + b"\0", b"x" * 4095 + "é".encode(), b"....ftyp", b"RIFF....WAVE"]
    found = sniff_all(values, np.array([len(value) for value in values]))
    assert list(found) == sorted(found)
    assert [found.get(place, "text") for place in range(len(values))] == [sniff(value) for value in values]
    assert "text" not in found.values()
