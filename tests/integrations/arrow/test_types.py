"""A column is read back with the type with which it was written, or the type of its values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from asyncrec.integrations.arrow import read_batches, write_batches

TIMES = (
    pa.timestamp("s"),
    pa.timestamp("ns", "UTC"),
    pa.duration("ms"),
    pa.date32(),
    pa.date64(),
    pa.time32("ms"),
    pa.time64("us"),
)


def read_back(path: Path, column: Any) -> Any:
    write_batches(path / "d", pa.table({"x": column}))
    return read_batches(path / "d").read_all().column("x").combine_chunks()


@pytest.mark.parametrize("time", TIMES, ids=str)
def test_times_in_lists_keep_their_types(tmp_path: Path, time: Any) -> None:
    day = 86_400_000  # a date64 counts milliseconds, and is a multiple of a day
    one, two = (0, day) if pa.types.is_date64(time) else (0, 1)
    for number, (values, kind) in enumerate(
        [
            ([[one], None, [], [two, one]], pa.list_(time)),
            ([[one], [], [two, one]], pa.large_list(time)),
            ([[one, two], [two, one]], pa.list_(time, 2)),
            ([[[one], [two]], [[two], [one]]], pa.list_(pa.list_(time, 1), 2)),
            ([[[one, two], []], [], [[two]]], pa.list_(pa.list_(time))),
            ([[[one, two]], [], [[two, two]]], pa.list_(pa.list_(time, 2))),
        ]
    ):
        column = pa.array(values, kind)
        assert read_back(tmp_path / f"{number}", column).equals(column)


def test_fixed_size_list_with_nulls_becomes_list(tmp_path: Path) -> None:
    column = pa.array([[0, 1], None], pa.list_(pa.timestamp("s"), 2))
    assert read_back(tmp_path, column).equals(column.cast(pa.list_(pa.timestamp("s"))))


@pytest.mark.parametrize("values", [["a", None, "b"], ["a", "b"], [None, "a"]], ids=str)
@pytest.mark.parametrize(
    ("kind", "found"),
    [
        (pa.dictionary(pa.int8(), pa.string()), pa.string()),
        (pa.dictionary(pa.int32(), pa.large_string()), pa.large_string()),
        (pa.string_view(), pa.string()),
        (pa.binary_view(), pa.binary()),
    ],
    ids=str,
)
def test_dictionary_and_view_become_their_values(tmp_path: Path, values: Any, kind: Any, found: Any) -> None:
    column = pa.array(values, kind)
    assert read_back(tmp_path / "a", column).equals(pa.array(values, found))
    assert read_back(tmp_path / "b", column.slice(1)).equals(pa.array(values[1:], found))
    lists = pa.array([[value for value in values if value], None], pa.list_(kind))
    assert read_back(tmp_path / "c", lists).equals(lists.cast(pa.list_(found)))


def test_dictionary_of_times_becomes_times(tmp_path: Path) -> None:
    column = pa.array([1, None, 1], pa.timestamp("ms"))
    assert read_back(tmp_path, column.dictionary_encode()).equals(column)


class Identifier(pa.ExtensionType):  # type: ignore[misc]  # pyarrow has no types
    """Sixteen bytes with their own type name, like the UUIDs of pyarrow 18."""

    def __init__(self) -> None:
        super().__init__(pa.binary(16), "asyncrec.tests.identifier")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Identifier:
        return cls()


def test_extension_column_becomes_its_storage(tmp_path: Path) -> None:
    column = pa.array([b"0123456789abcdef", None], pa.binary(16))
    assert read_back(tmp_path, pa.ExtensionArray.from_storage(Identifier(), column)).equals(column)
