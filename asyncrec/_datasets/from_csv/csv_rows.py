"""`CsvRows` contains the rows of a CSV file, as Python's csv module reads them, with their line numbers.

It stores the text once, with the positions at which rows begin and end, and parses a row when it is needed. Lists of
strings would take about ten times as much memory.
"""

from __future__ import annotations

import codecs
import csv
import re
from array import array
from collections.abc import Iterable, Iterator

from asyncrec.errors import ArgumentTypeError, DatasetError

_LINE = re.compile(r"[^\r\n]+(?:\r\n?|\n)?|\r\n?|\n")
_SHOWN_ROW = 200


class CsvRows:
    """The rows of ``content``. Empty lines are not rows. The first row is not treated as a header.

    ``path`` is the file's name in error messages.

    Raises:
        DatasetError: the content does not have this encoding, a quote is not closed, or there are no rows.
        LookupError: the encoding is unknown.
    """

    def __init__(self, content: bytes, *, path: str, encoding: str) -> None:
        self._path = path
        self._text = _decode(content, path, encoding)
        self._starts = array("q")
        self._ends = array("q")
        self._lines = array("q")
        self._position = 0
        reader = csv.reader(self._each_line(), strict=True)
        while True:
            start, line = self._position, reader.line_num + 1
            try:
                row = next(reader)
            except StopIteration:
                break
            except csv.Error as error:
                advice = "; csv.field_size_limit(bytes) raises the limit" if "field limit" in str(error) else ""
                raise DatasetError(f"{path}, line {line}: this is not a valid CSV row: {error}{advice}") from error
            if row:
                self._starts.append(start)
                self._ends.append(self._position)
                self._lines.append(line)
        if not self._starts:
            raise DatasetError(f"{path}: the file has no rows; write one row per example")

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, row: int) -> list[str]:
        return next(csv.reader([self._text[self._starts[row] : self._ends[row]]], strict=True))

    def line(self, row: int) -> int:
        """Return the number of the line, counted from 1, on which a row begins."""
        return self._lines[row]

    def where(self, row: int) -> str:
        """Return a description of a row for error messages: its file, the line on which it begins, and the row."""
        return f"{self._path}, line {self.line(row)}, row {repr(self[row])[:_SHOWN_ROW]}"

    def _each_line(self) -> Iterator[str]:
        for match in _LINE.finditer(self._text):
            self._position = match.end()
            yield match[0]


def csv_line(row: object) -> str:
    """Return a row as a line of CSV. Reading this line returns the same strings.

    Raises:
        TypeError: the row is not a list of at least one cell.
    """
    if isinstance(row, str | bytes) or not isinstance(row, Iterable) or not (cells := list(row)):
        raise ArgumentTypeError(f"a row must be a list of at least one cell, not {row!r:.80}")
    written: list[str] = []
    csv.writer(_Into(written)).writerow(cells)
    return "".join(written)


class _Into:
    """The part of a file's interface that csv.writer needs."""

    def __init__(self, parts: list[str]) -> None:
        self.write = parts.append


def _decode(content: bytes, path: str, encoding: str) -> str:
    if codecs.lookup(encoding).name == "utf-8":
        content = content.removeprefix(codecs.BOM_UTF8)  # written by Excel; it would become part of the first cell
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].decode(encoding, "replace").count("\n") + 1
        raise DatasetError(
            f"{path}, line {line}: byte {content[error.start]:#04x} at offset {error.start:,} is not valid {encoding}"
        ).with_remedy("pass the file's encoding as encoding=", command="save the table as UTF-8") from error
