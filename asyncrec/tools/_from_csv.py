"""`from_csv` makes train, eval and test splits from the rows of a CSV file whose first row names the columns."""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from asyncrec._arguments import Size
from asyncrec._concurrency.tasks import in_thread
from asyncrec._datasets.from_csv.csv_rows import CsvRows
from asyncrec._datasets.from_csv.splitting import weights_of
from asyncrec._framing.compression import Compression
from asyncrec.errors import ArgumentValueError, DatasetError
from asyncrec.example._entries import Entry
from asyncrec.example._kinds import FixedLen, VarLen
from asyncrec.example._schema import Schema
from asyncrec.storage._base import Storage
from asyncrec.storage._registry import located
from asyncrec.storage._url import redact
from asyncrec.tools._parameters import Progress
from asyncrec.tools._splits import ExampleParts, SplitOptions, SplitsReport, write_splits


async def from_csv(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    label: str | None = None,
    key: str | None = None,
    files: Sequence[str] = (),
    ratios: float | Sequence[float] = 0.8,
    seed: int = 0,
    max_shard_bytes: Size | None = None,
    compression: Compression = "",
    encoding: str = "utf-8",
    progress: Progress = lambda done, total: None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
    target_storage: Storage | None = None,
    target_storage_options: Mapping[str, Any] | None = None,
) -> SplitsReport:
    """Make train, eval and test splits from the rows of a CSV file, whose first row names the columns.

    A column of whole numbers becomes an int64 feature, a column of other numbers float32, and any other column text. A
    number that does not fit the type, such as an identifier of 20 digits, counts as text. An empty cell in a column of
    numbers is an absent value, and makes the feature a ``VarLen``; in a column of text, it is the empty string. If a
    few cells turn a column of numbers into text, ``notes`` of the report locates the first of these cells. The file is
    held in memory.

    Args:
        label: a column of classes, which are numbered in sorted order. Each split gets its share of each class.
            ``notes`` reports rows with an empty class, and an unusually large number of classes.
        key: a column of unique keys, which are text.
        files: columns of paths, relative to the CSV file. The feature holds the contents of the file.
        ratios: one number, such as 0.8 for train and the rest for eval; two numbers; or three, for train, eval and
            test. With three numbers, the ratio of eval or test may be 0; that split is then not written.
        seed: the seed of the random order.

    Raises:
        DatasetError: a row does not have as many cells as the header, a key occurs twice, a split gets no row, or the
            file is not in ``encoding``.
        ValueError: ``label``, ``key`` or one of ``files`` is not a column, or two of these are the same column; or
            ``ratios`` is not valid.
        ObjectNotFoundError: a file named in a row does not exist. Nothing is changed.
    """
    report = SplitsReport(source=redact(os.fspath(source)), target=redact(os.fspath(target)))
    options = SplitOptions(
        target, weights_of(ratios), seed, max_shard_bytes, compression, target_storage, target_storage_options
    )
    async with located(source, storage=storage, storage_options=storage_options) as (store, file):
        content = await store.get(file)

        def parse() -> _Table:
            _refuse_json_lines(content, report.source)
            rows = CsvRows(content, path=report.source, encoding=encoding)
            folder = file[: file.rfind("/") + 1]
            return _Table(rows, path=report.source, folder=folder, label=label, key=key, files=tuple(files))

        await write_splits(await in_thread(parse), store, options, report, progress)
    return report


def _refuse_json_lines(content: bytes, path: str) -> None:
    """Reject a JSON lines file, which could be mistaken for a table whose first line names its only column.

    Raises:
        DatasetError: the first line is a JSON object.
    """
    line = content[:_MOST_LINE].removeprefix(codecs.BOM_UTF8).lstrip().partition(b"\n")[0]
    if not line.startswith(b"{"):  # only a JSON object begins like this
        return
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return
    raise DatasetError(f"{path}: the first line is JSON, not CSV; to read JSON lines, use 'asyncrec convert'")


class _Table:
    """The contents of a CSV file with a header, and the type of each column. The constructor blocks.

    Args:
        folder: the folder of the CSV file. Paths in the columns ``files`` are relative to it.
    """

    def __init__(
        self, rows: CsvRows, *, path: str, folder: str, label: str | None, key: str | None, files: tuple[str, ...]
    ) -> None:
        self._rows = rows
        self._folder = folder
        self._columns = self._rows[0]
        self._label = label
        self.key = key
        self._files = files
        if len(set(self._columns)) < len(self._columns) or "" in self._columns:
            raise DatasetError(
                f"{path}: the first row must contain a different name for each column, not {self._columns}"
            )
        special = [*files, *(name for name in (label, key) if name is not None)]
        for name in special:
            if name not in self._columns:
                raise ArgumentValueError(
                    f"{path}: there is no column {name!r}; the columns are {', '.join(self._columns)}"
                )
            if special.count(name) > 1:
                raise ArgumentValueError(
                    f"{path}: the column {name!r} is used more than once; a column can be only one of label, key "
                    "and files"
                )
        columns = [_Column() for _ in self._columns]
        values: set[str] = set()
        keys: dict[str, int] = {}
        for number in range(1, len(self._rows)):
            row = self._rows[number]
            if len(row) != len(self._columns):
                cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
                raise DatasetError(f"{self._rows.where(number)}: {cells}, but there are {len(self._columns)} columns")
            for column, cell in zip(columns, row, strict=True):
                column.add(cell, number)
            if label is not None:
                values.add(row[self._columns.index(label)])
            if key is not None and (first := keys.setdefault(row[self._columns.index(key)], number)) != number:
                raise DatasetError(f"{self._rows.where(number)}: line {self._rows.line(first)} has the same key")
        self._kinds = {name: column.kind for name, column in zip(self._columns, columns, strict=True)}
        if key is not None:
            self._kinds[key] = "str"
        self._gaps = {name for name, column in zip(self._columns, columns, strict=True) if column.empty}
        # A single wrong cell turns a column of numbers into text, which might otherwise go unnoticed.
        self.notes = [
            f"{name} is text: line {self._rows.line(column.row)} has {column.text[:_SHOWN_CELL]!r}"
            for name, column in zip(self._columns, columns, strict=True)
            if column.kind == "str" and column.numbers > column.texts and name not in special
        ]
        self.labels = sorted(values)
        if label is not None:
            self.notes += self._notes_on_labels(label, columns[self._columns.index(label)])
        self._numbers = {name: number for number, name in enumerate(self.labels)}

    def _notes_on_labels(self, label: str, column: _Column) -> list[str]:
        """Return notes on anomalies in a column of labels, one sentence each."""
        notes = []
        rows, classes = len(self._rows) - 1, len(self.labels)
        if column.empty:
            count = "1 row" if column.empty == 1 else f"{column.empty:,} rows"
            first = self._rows.line(column.first_empty)
            notes.append(
                f"{label} is empty in {count}, the first at line {first}: these rows form a class of their own, ''"
            )
        if classes == rows > 1:
            notes.append(
                f"{label} has a different value in each of {rows:,} rows: if it is a column of keys, pass it as "
                "--key (key=)"
            )
        elif classes > _MANY_CLASSES:
            notes.append(f"{label} has {classes:,} classes in {rows:,} rows; check that it is the column of labels")
        return notes

    @property
    def strata(self) -> list[str | None]:
        if self._label is None:
            return [None] * (len(self._rows) - 1)
        at = self._columns.index(self._label)
        return [self._rows[number][at] for number in range(1, len(self._rows))]

    @property
    def schema(self) -> Schema:
        entries: dict[str, Entry] = {}
        for name in self._columns:
            kind = "bytes" if name in self._files else "int64" if name == self._label else self._kinds[name]
            entries[name] = VarLen(kind) if self._is_absent_where_empty(name) else FixedLen((), kind)
        return Schema(entries)

    def parts(self, number: int) -> ExampleParts:
        convert = {"int64": int, "float32": float, "str": str}
        features: dict[str, Any] = {}
        files: dict[str, str] = {}
        for name, cell in zip(self._columns, self._rows[number + 1], strict=True):
            if name in self._files:
                files[name] = self._folder + cell
            elif name == self._label:
                features[name] = self._numbers[cell]
            elif cell or not self._is_absent_where_empty(name):
                features[name] = convert[self._kinds[name]](cell)
        return ExampleParts(features, files)

    def _is_absent_where_empty(self, name: str) -> bool:
        numbers = name != self._label and name not in self._files and self._kinds[name] != "str"
        return numbers and name in self._gaps


class _Column:
    """The type of a column, determined cell by cell, and facts about the column for the report.

    Attributes:
        numbers, texts: the number of cells that are numbers, and of cells that are other text.
        empty, first_empty: the number of empty cells, and the row of the first.
        row, text: the row in which the column became text, and the cell in that row.
    """

    def __init__(self) -> None:
        self._kind = _KINDS[0]
        self.numbers = self.texts = self.row = self.empty = self.first_empty = 0
        self.text = ""

    def add(self, cell: str, row: int) -> None:
        if not cell:
            self.first_empty = self.first_empty or row
            self.empty += 1
            return
        kind = _kind(cell)
        if kind != "str":
            self.numbers += 1
        else:
            self.texts += 1
            if self.texts == 1:
                self.row, self.text = row, cell
        self._kind = max(self._kind, kind, key=_KINDS.index)

    @property
    def kind(self) -> str:
        """The type of all cells of the column; text if all are empty."""
        return self._kind if self.numbers or self.texts else "str"


# Each type can hold the values of the types before it.
_KINDS = ("int64", "float32", "str")
# More classes than this are rare for a label, but not necessarily a mistake.
_MANY_CLASSES = 1000
# The number of bytes of the first line to read, to determine whether it is JSON.
_MOST_LINE = 1 << 20
# The largest float32. Larger numbers would become infinite.
_LARGEST = (2 - 2**-23) * 2.0**127
# The number of characters of a cell to show in a message.
_SHOWN_CELL = 80


def _kind(cell: str) -> str:
    """Return the first type that can hold a cell. Numbers with underscores count as text, although Python accepts them.

    Integers that do not fit int64 are text, because they may be identifiers, and many would become the same float32.
    """
    if "_" in cell:
        return "str"
    try:
        return "int64" if -(1 << 63) <= int(cell) < 1 << 63 else "str"
    except ValueError:
        pass
    try:
        number = float(cell)
    except ValueError:
        return "str"
    return "float32" if abs(number) <= _LARGEST or "inf" in cell.lower() or number != number else "str"
