"""Rows of CSV are read with their line numbers, and errors name the damaged line."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._datasets.from_csv.csv_rows import CsvRows, csv_line
from asyncrec.errors import DatasetError


def rows_of(content: bytes, encoding: str = "utf-8") -> list[list[str]]:
    rows = CsvRows(content, path="a.csv", encoding=encoding)
    return [rows[index] for index in range(len(rows))]


@given(
    st.lists(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1), min_size=1),
    st.sampled_from(["\n", "\r\n", "\r"]),
)
def test_csv_rows_round_trip(rows: list[list[str]], ending: str) -> None:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=ending, quoting=csv.QUOTE_ALL).writerows(rows)
    if text.getvalue().startswith("\ufeff"):
        return  # it would be read as a byte order mark
    assert rows_of(text.getvalue().encode()) == rows


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff")), min_size=1))
def test_csv_line_round_trips(row: list[str]) -> None:
    assert rows_of(csv_line(row).encode()) == [row]


def test_cells_of_other_types_become_text() -> None:
    assert csv_line(["a", 3, 0.5, None]) == "a,3,0.5,\r\n"


@pytest.mark.parametrize("row", ["abc", 3, None, [], b"a"])
def test_csv_line_rejects_invalid_row(row: object) -> None:
    with pytest.raises(TypeError, match="a row must be a list"):
        csv_line(row)


def test_csv_rows_skip_empty_lines_but_count_lines() -> None:
    rows = CsvRows(b'\n"a\nb",1\n\n\nc,2', path="a.csv", encoding="utf-8")
    assert [rows[0], rows[1]] == [["a\nb", "1"], ["c", "2"]]
    assert rows.where(0) == "a.csv, line 2, row ['a\\nb', '1']"
    assert rows.where(1) == "a.csv, line 6, row ['c', '2']"


def test_csv_rows_drop_byte_order_mark() -> None:
    assert rows_of(b"\xef\xbb\xbfa,1\n") == [["a", "1"]]


def test_csv_rows_decode_with_given_encoding() -> None:
    assert rows_of("é,1\n".encode("latin-1"), "latin-1") == [["é", "1"]]
    assert rows_of("é,1\nb,2\n".encode("utf-16"), "utf-16") == [["é", "1"], ["b", "2"]]
    with pytest.raises(LookupError):
        rows_of(b"a", "no-such-encoding")


def test_encoding_error_names_byte_offset_and_line() -> None:
    with pytest.raises(
        DatasetError, match=r"a\.csv, line 3: byte 0xe9 at offset 9 is not valid utf-8; pass the file's encoding"
    ) as caught:
        rows_of(b"a,1\nb,2\nc\xe9,3\n")
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)


def test_unclosed_quote_raises_with_line() -> None:
    with pytest.raises(DatasetError, match=r"a\.csv, line 2: this is not a valid CSV row: unexpected end of data"):
        rows_of(b'a,1\n"b,2\nc,3\n')


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xef\xbb\xbf"])
def test_file_without_rows_raises(content: bytes) -> None:
    with pytest.raises(DatasetError, match=r"a\.csv: the file has no rows; write one row per example"):
        rows_of(content)
