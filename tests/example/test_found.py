"""Records without a schema are read as columns with the same contents as each record decoded on its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec import decode_example, encode_example, encode_sequence_example
from asyncrec.errors import DecodeError
from asyncrec.example import _columns, decode_columns

VALUES = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.lists(st.integers(0, 300), max_size=3),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3),
    st.lists(st.binary(max_size=4), max_size=3),
)
SOME = st.dictionaries(st.sampled_from("abc"), VALUES).map(encode_example) | st.binary(max_size=4)
OF_ONE_KIND = st.fixed_dictionaries(
    {},
    optional={
        "n": st.integers(-(2**63), 2**63 - 1),
        "ints": st.lists(st.integers(0, 300), max_size=3),
        "floats": st.lists(st.floats(width=32, allow_nan=False), max_size=3),
        "bytes": st.lists(st.binary(max_size=4), max_size=3),
        "nothing": st.just([]),
    },
)


def one_by_one(records: list[bytes]) -> dict[str, Any] | None:
    """Return the expected columns: the values of each feature, and how many of them each record has."""
    columns: dict[str, tuple[list[Any], list[int], set[str]]] = {}
    for row, record in enumerate(records):
        try:
            features = decode_example(record)
        except DecodeError:
            return None
        for name, found in features.items():
            values, counts, kinds = columns.setdefault(name, ([], [-1] * len(records), set()))
            counts[row] = len(found)
            values += found if isinstance(found, list) else found.tolist()
            if isinstance(found, np.ndarray) or found:
                kinds.add(str(found.dtype) if isinstance(found, np.ndarray) else "bytes")
    if any(len(kinds) > 1 for _, _, kinds in columns.values()):
        return None
    return {name: (values, counts) for name, (values, counts, _) in columns.items()}


def plain(records: list[bytes]) -> dict[str, Any] | None:
    columns = decode_columns(records)
    if columns is None:
        return None
    return {
        name: (flat if isinstance(flat, list) else flat.tolist(), counts.tolist())
        for name, (_, flat, counts) in columns.items()
    }


@pytest.fixture(params=["as it is", "in Python"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "in Python":
        monkeypatch.setattr(_columns, "native", None)


@pytest.mark.usefixtures("path")
@given(st.lists(OF_ONE_KIND, max_size=5), st.integers(1, 40))
def test_columns_match_single_records_in_order(rows: list[Any], times: int) -> None:
    records = [encode_example(row) for row in rows] * times
    found, expected = plain(records), one_by_one(records)
    assert found == expected
    assert found is not None
    assert expected is not None
    assert list(found) == list(expected)


@pytest.mark.usefixtures("path")
@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), VALUES).map(encode_example) | st.binary(max_size=4), max_size=5)
)
def test_decode_columns_matches_records_or_declines(records: list[bytes]) -> None:
    found = plain(records)
    assert found is None or found == one_by_one(records)


CUT_SHORT = encode_example({"c": 1}).replace(b"\x1a\x03\x0a\x01\x01", b"\x1a\x03\x0a\x01\x81")
ROW = {"a": 1, "b": [b"x", b"y"]}


@pytest.mark.usefixtures("path")
@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"\xff" * 9, id="no Example"),
        pytest.param(encode_sequence_example(ROW, {"steps": [1, 2]}), id="feature lists"),
        pytest.param(encode_example(ROW) + b"\x12\x03\x0a\x01\x0a", id="feature lists that cannot be read"),
        pytest.param(encode_example({"a": 0.5}), id="of another kind"),
        pytest.param(encode_example({f"f{n}": 1 for n in range(1001)}), id="over 1,000 features"),
        pytest.param(CUT_SHORT, id="cut short"),
    ],
)
@pytest.mark.parametrize("count", [0, 3, 60])
def test_deviating_record_makes_decode_columns_decline(record: bytes, count: int) -> None:
    records = [encode_example(ROW)] * count
    if count:
        assert decode_columns(records) is not None
        assert decode_columns([*records, record, *records]) is None


def test_empty_batch_decodes_to_no_columns() -> None:
    assert decode_columns([]) == {}
