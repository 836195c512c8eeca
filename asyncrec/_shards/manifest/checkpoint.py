"""A checkpoint stores a history in one object: lines of JSON, each compressed by gzip, so `zcat` and `jq` can read it.

    {"kind": "checkpoint", "version": 1, "name": "pages", "number": 5, "time": "2026-...", "runs": [...]}
    {"kind": "logs", "writer": ["w1"], "last": [499]}                    the last merged segment of each log
    {"kind": "writers", "writer": ["w1"]}                                the ids of the writers
    {"kind": "values", "value": [{...}]}                                 schemas, metadata, and unknown JSON members
    {"kind": "commits", "writer": [0], "time": [1795472914339130], "schema": 0, "metadata": 1, "extra": -1,
     "removal": -1, "flags": 1}
    {"kind": "removed", "path": [...], "commit": [...]}                  removed paths, and the commit of each removal
    {"kind": "names", "path": [...]}                                     sidecars whose names do not follow a rule
    {"kind": "shards", "path": ["pages-w1-000000.tfrecord"], "records": 10, "bytes": 181, "crc32c": 740119087,
     "index": -2, "index_bytes": 87, "index_crc32c": 1089801560, "keys": -1, "keys_bytes": 0, "keys_crc32c": 0,
     "first": 1795472914238458, "last": 1795472914272681, "committed": 1795472914272758, "flags": 1, "extra": -1,
     "commit": 0, "live": true, "end_crc32c": 740119087}                 all shards ever added, sorted by path and time
    {"kind": "progress", "source": ["topic/3"], "turn": 2, "position": 917, "released": 0}   the progress of sources
    {"kind": "end", "rows": {"logs": 1, ...}, "identity": "..."}     the number of rows of each kind, the snapshot's id

A kind without rows has no line. A kind with many rows has one line for every 4,096 rows, or for fewer if these take
more than 16 MiB. If all numbers in a column are equal, only that number is stored, except in the first column. Rows of
other kinds are referred to by number, counted from 0, and -1 means no row: ``writer`` is the number of a writer,
``commit`` of a commit, and ``schema``, ``metadata`` and ``extra`` of a value. ``index`` and ``keys`` are numbers of
names, or constants of `shard_columns`, which also defines the ``flags`` of shards. The flags of a commit are 1 for a
writer's last commit, plus 2 if the writer was abandoned. ``removal`` is a place in the log of removals. A source's
``turn`` is 0 if it has no progress, and its ``released`` is 0 if no turn was released. The last line counts sources
only if the data set has any. Times are microseconds since 1970. ``runs`` describes the runs of keys (`KeyRun`).

A checkpoint is written and read in steps, so its encoded form is never entirely in memory. Its paths are checked like
those of a segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import le
from typing import TYPE_CHECKING, Any, Final

from asyncrec._numpy import np
from asyncrec._shards.manifest.checkpoint_lines import (
    MOST_ROWS,
    LineReader,
    check_names_by_writer,
    check_paths,
    check_shards,
    check_sources,
    encode_line,
    limits,
)
from asyncrec._shards.manifest.history import COMMITS, History
from asyncrec._shards.manifest.key_run import KeyRun
from asyncrec._shards.manifest.listed import CoveredLogs
from asyncrec._shards.manifest.progress import progress_columns, progress_of
from asyncrec._shards.manifest.shard_columns import NUMBERS, ShardColumns
from asyncrec._shards.manifest.texts import TextColumn
from asyncrec.errors import ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

VERSION = 1
MOST_HEAD = 1 << 16
_JOINED_AT_ONCE = 64

# The kinds of lines between the first and the last, in order. Each kind has the type of its columns: str, dict for JSON
# objects, or a NumPy dtype. Columns of paths are kept as `TextColumn`.
_KINDS: Final[Mapping[str, Mapping[str, type | str]]] = {
    "logs": {"writer": str, "last": "int64"},
    "writers": {"writer": str},
    "values": {"value": dict},
    "commits": COMMITS,
    "removed": {"path": str, "commit": "uint32"},
    "names": {"path": str},
    "shards": {"path": str, **NUMBERS},
    "progress": {"source": str, "turn": "int64", "position": "int64", "released": "int64"},
}
_ORDER = (*_KINDS, "end")
_SORTED = ("removed", "shards")
# Kinds that the last line counts only if they have rows.
_UNCOUNTED = ("progress",)


def encode_checkpoint(history: History, *, name: str, number: int, time: str) -> Iterator[bytes]:
    """Encode a history as a checkpoint, and yield it in pieces. Call this in a worker thread.

    Raises:
        ManifestError: a row is larger than a reader accepts.
    """
    runs = [run.to_json() for run in history.runs]
    head = {"version": VERSION, "name": name, "number": number, "time": time, "runs": runs}
    yield encode_line({"kind": "checkpoint", **head})
    rows = {}
    for kind, columns in _tables(history).items():
        count = len(next(iter(columns.values())))
        if count or kind not in _UNCOUNTED:
            rows[kind] = count
        for start in range(0, count, MOST_ROWS):
            yield from _encode_rows(kind, columns, start, min(start + MOST_ROWS, count))
    yield encode_line({"kind": "end", "rows": rows, "identity": f"{history.identity:032x}"})


def _tables(history: History) -> dict[str, dict[str, Any]]:
    """Return the columns of each kind."""
    logs = history.covered.last
    return {
        "logs": {"writer": list(logs), "last": list(logs.values())},
        "writers": {"writer": history.writers},
        "values": {"value": history.values},
        "commits": {name: history.commits[name] for name in COMMITS},
        "removed": {"path": history.removed, "commit": history.removed_by},
        "names": {"path": history.shards.names},
        "shards": {"path": history.shards.paths, **{name: history.shards.numbers[name] for name in NUMBERS}},
        "progress": progress_columns(history.progress, history.releases),
    }


def _encode_rows(kind: str, columns: Mapping[str, Any], start: int, stop: int) -> Iterator[bytes]:
    members: dict[str, Any] = {"kind": kind}
    for name, column in columns.items():
        if isinstance(column, TextColumn):
            members[name] = column.encode(start, stop).decode().split("\0")[:-1]
        elif isinstance(column, np.ndarray):
            some = column[start:stop]
            same = len(members) > 1 and bool((some == some[0]).all())
            members[name] = some[0].item() if same else some.tolist()
        else:
            members[name] = column[start:stop]
    try:
        yield encode_line(members)
    except ManifestError:
        if stop - start == 1:
            raise
        middle = (start + stop) // 2
        yield from _encode_rows(kind, columns, start, middle)
        yield from _encode_rows(kind, columns, middle, stop)


class ColumnParts:
    """The parts of columns of paths and numbers. The parts are joined in order."""

    def __init__(self, kind: str) -> None:
        self._types = {name: of for name, of in _KINDS[kind].items() if of is not str}
        self._small: list[dict[str, Any]] = []
        self._paths: list[TextColumn] = []
        self._numbers: dict[str, list[NDArray[Any]]] = {name: [] for name in self._types}

    def add(self, columns: dict[str, Any]) -> None:
        """Append rows."""
        self._small.append(columns)
        if len(self._small) == _JOINED_AT_ONCE:
            self._join()

    def whole(self) -> tuple[TextColumn, dict[str, NDArray[Any]]]:
        """Return all rows. Call this only once, because the parts are freed as they are joined."""
        self._join()
        paths = TextColumn.joined(self._paths) if self._paths else TextColumn.of(())
        self._paths.clear()
        numbers = {}
        for name, of in self._types.items():
            parts = self._numbers.pop(name)
            numbers[name] = parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, of)])
        return paths, numbers

    def _join(self) -> None:
        if not self._small:
            return
        if "path" in self._small[0]:
            self._paths.append(TextColumn.joined([each["path"] for each in self._small]))
        for name, parts in self._numbers.items():
            parts.append(np.concatenate([each[name] for each in self._small]))
        self._small.clear()


class CheckpointDecoder:
    """An incremental decoder of a checkpoint.

    Attributes:
        covered: the last covered segment of each log; complete once `knows_covered` is true.
        knows_covered: whether `covered` has been decoded completely.
        runs: the runs of keys that the checkpoint names; `None` until the first line has been decoded.
    """

    def __init__(self, name: str) -> None:
        """``name`` is used in error messages."""
        self.covered = CoveredLogs()
        self.knows_covered = False
        self.runs: tuple[KeyRun, ...] | None = None
        self._name = name
        self._lines = LineReader(name)
        self._number = 0
        self._kind = _ORDER[0]
        self._rows = dict.fromkeys(_KINDS, 0)
        self._lists: dict[str, list[Any]] = {f"{kind}.{name}": [] for kind in _KINDS for name in _KINDS[kind]}
        self._parts = {kind: ColumnParts(kind) for kind in ("commits", "removed", "names", "shards")}
        self._last = ""
        self._identity: int | None = None

    def feed(self, data: bytes) -> None:
        """Decode the next bytes.

        Raises:
            ManifestError: the bytes are not a checkpoint, are damaged, or have an unsupported version.
        """
        for members in self._lines.feed(data):
            kind = members.pop("kind", None)
            if self.runs is None:
                self._read_head(kind, members)
                continue
            if kind not in _ORDER[_ORDER.index(self._kind) :] or self._identity is not None:
                raise self._damaged(f"a line of the kind {str(kind)[:20]!r} is out of place")
            self._kind = kind
            if kind != "logs" and not self.knows_covered:
                self._read_covered()
            if kind == "end":
                self._read_end(members)
            else:
                self._read_rows(kind, members)

    def finish(self) -> History:
        """Return the history after all bytes have been fed.

        Raises:
            ManifestError: the checkpoint is cut off, or its parts do not match.
        """
        if self._identity is None or not self._lines.is_between_lines:
            raise ManifestError(f"{self._name}: the checkpoint is truncated, or continues after its end")
        _, commits = self._parts.pop("commits").whole()
        removed, by = self._parts.pop("removed").whole()
        names, _ = self._parts.pop("names").whole()
        paths, numbers = self._parts.pop("shards").whole()
        progress, releases = progress_of([self._lists[f"progress.{name}"] for name in _KINDS["progress"]])
        history = History(
            writers=tuple(self._lists["writers.writer"]),
            values=tuple(self._lists["values.value"]),
            commits=commits,
            shards=ShardColumns(paths, numbers, names),
            removed=removed,
            removed_by=by["commit"],
            identity=self._identity,
            covered=self.covered,
            checkpoint=self._number,
            runs=self.runs or (),
            progress=progress,
            releases=releases,
        )
        check_names_by_writer(history, self._name)
        return history

    def _damaged(self, what: str) -> ManifestError:
        return ManifestError(f"{self._lines.where}: {what}; the checkpoint is damaged")

    def _read_head(self, kind: object, head: dict[str, Any]) -> None:
        if kind != "checkpoint":
            raise ManifestError(f"{self._lines.where}: this is not the first line of a checkpoint")
        if type(head.get("version")) is not int or head["version"] != VERSION:
            raise ManifestError(
                f"{self._lines.where}: this checkpoint has version {str(head.get('version'))[:20]}, but this release "
                f"reads only version {VERSION}; use a newer release of asyncrec"
            )
        if type(head.get("number")) is not int or not 0 <= head["number"] < 1 << 63:
            raise self._damaged("the checkpoint has no valid number")
        if not isinstance(head.get("runs"), list):
            raise self._damaged("the checkpoint has no valid list of key runs")
        self._number, self.runs = head["number"], tuple(KeyRun.from_json(run, self._name) for run in head["runs"])

    def _read_covered(self) -> None:
        self.covered = CoveredLogs(dict(zip(self._lists["logs.writer"], self._lists["logs.last"], strict=True)))
        self.knows_covered = True

    def _read_end(self, end: dict[str, Any]) -> None:
        if end.get("rows") != {kind: rows for kind, rows in self._rows.items() if rows or kind not in _UNCOUNTED}:
            raise self._damaged("the row counts differ from those in the last line")
        try:
            self._identity = int(end["identity"], 16)
        except (KeyError, TypeError, ValueError):
            self._identity = -1
        if not 0 <= self._identity < 1 << 128:
            raise self._damaged("the last line has no snapshot id")

    def _read_rows(self, kind: str, members: dict[str, Any]) -> None:
        columns, allowed = _KINDS[kind], limits(kind, self._rows)
        first = members.get(next(iter(columns)))
        rows = len(first) if isinstance(first, list) else 0
        if members.keys() != columns.keys() or not 0 < rows <= MOST_ROWS:
            raise self._damaged(f"{rows:,} rows of {kind}, or unexpected columns")
        found: dict[str, Any] = {}
        first = None
        for name, of in columns.items():  # free the columns one by one: freeing 50,000 objects takes a while
            if isinstance(of, str):
                found[name] = self._numbers(f"{kind}.{name}", members.pop(name), rows, of, allowed.get(name))
            elif set(map(type, members[name])) == {of}:
                found[name] = members.pop(name)
            else:
                raise self._damaged(f"{kind}.{name} has a value that is not of type {of.__name__}")
        self._rows[kind] += rows
        if kind == "shards":
            check_shards(found, self._lines.where)
        if kind == "progress":
            check_sources(self._lists["progress.source"][-1:] + found["source"], self._lines.where)
        if kind not in self._parts:
            for name, column in found.items():
                self._lists[f"{kind}.{name}"] += column if isinstance(column, list) else column.tolist()
            return
        if "path" in found:
            found["path"] = self._paths(kind, found["path"])
        self._parts[kind].add(found)

    def _paths(self, kind: str, paths: list[str]) -> TextColumn:
        if kind in _SORTED:
            last = self._last if self._rows[kind] > len(paths) else ""
            if not all(map(le, [last, *paths], paths)):
                raise self._damaged("the paths are out of order")
            self._last = paths[-1]
        try:
            content = ("\0".join(paths) + "\0").encode()
        except UnicodeEncodeError as error:
            raise self._damaged("a path cannot be encoded as UTF-8") from error
        check_paths(content, len(paths), self._lines.where)
        return TextColumn.decode(content)

    def _numbers(self, name: str, value: Any, rows: int, of: str, allowed: tuple[int, int] | None) -> NDArray[Any]:
        """Return a column of numbers. ``value`` is a list with one number per row, or one number for all rows."""
        numbers = value if isinstance(value, list) else [value]
        kind = bool if of == "bool" else int
        if set(map(type, numbers)) != {kind} or (numbers is value and len(numbers) != rows):
            raise self._damaged(f"{name} does not have {rows:,} values of type {kind.__name__}")
        low, high = allowed or ((0, 1) if kind is bool else (np.iinfo(of).min, np.iinfo(of).max))
        try:
            column = np.array(numbers, "int64")
        except OverflowError:
            column = np.array([low - 1])
        if not low <= int(column.min()) <= int(column.max()) <= high:
            raise self._damaged(f"{name} has a number that is out of range")
        return np.repeat(column.astype(of), rows // len(column))
