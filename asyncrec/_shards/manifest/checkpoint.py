"""A checkpoint is a history in one object: a line of JSON, and blocks of columns, in the order of `_KINDS`.

    {"version": 3, "checkpoint": 1, "name": "pages", "number": 5, "time": "2026-11-22T...", "runs": [{...}]}
    covered:  a line of JSON each, {"writer": ..., "ranges": [[0, 499]]} or {"others": [...], "fences": [...]}
    writers, values:  a line of JSON each; by its place, the rows below name it
    commits:  the columns of `COMMITS`
    removed:  paths, and the commit of each
    names:    of indexes and keys that follow from nothing
    shards:   paths, and the columns of `NUMBERS`, by path and time
    end:      {"commits": ..., "removed": ..., "shards": ..., "identity": "..."}

It is written in steps, and read as it comes, so that neither side holds it whole; every path in it is checked as those
of a segment are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from asyncrec._numpy import np
from asyncrec._shards.manifest.checkpoint_blocks import (
    BLOCK_ROWS,
    HEADER_BYTES,
    Block,
    decode_columns,
    encode_block,
    encode_columns,
    parse_header,
)
from asyncrec._shards.manifest.checkpoint_checks import check_commits, check_paths, check_shards, check_sorted
from asyncrec._shards.manifest.covered import CoveredNames
from asyncrec._shards.manifest.history import COMMITS, History
from asyncrec._shards.manifest.key_run import KeyRun
from asyncrec._shards.manifest.shard_columns import NUMBERS, ShardColumns
from asyncrec._shards.manifest.texts import TextColumn
from asyncrec.errors import ManifestError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_JOINED_AT_ONCE = 64


class ColumnParts:
    """The parts of a column of texts and of columns of numbers, in their order."""

    def __init__(self, kinds: Mapping[str, Any]) -> None:
        """``kinds`` are the types of the columns of numbers, by name."""
        self._kinds = kinds
        self._small: list[tuple[TextColumn, dict[str, NDArray[Any]]]] = []
        self._texts: list[TextColumn] = []
        self._numbers: dict[str, list[NDArray[Any]]] = {name: [] for name in kinds}

    def add(self, texts: TextColumn, numbers: dict[str, NDArray[Any]]) -> None:
        """Add rows."""
        self._small.append((texts, numbers))
        if len(self._small) == _JOINED_AT_ONCE:
            self._join()

    def whole(self) -> tuple[TextColumn, dict[str, NDArray[Any]]]:
        """Return all rows. Once: what they were in is let go of, column by column."""
        self._join()
        texts = TextColumn.joined(self._texts) if self._texts else TextColumn.of(())
        self._texts.clear()
        numbers = {}
        for name, kind in self._kinds.items():
            parts = self._numbers.pop(name)
            numbers[name] = parts[0] if len(parts) == 1 else np.concatenate([*parts, np.empty(0, kind)])
        return texts, numbers

    def _join(self) -> None:
        if not self._small:
            return
        self._texts.append(TextColumn.joined([texts for texts, _ in self._small]))
        for name, parts in self._numbers.items():
            parts.append(np.concatenate([numbers[name] for _, numbers in self._small]))
        self._small.clear()


# Not that of segments: a checkpoint cannot be taken for one.
VERSION = 3
_FORMAT = 1
MOST_HEAD = 1 << 16
_KINDS = ("covered", "writers", "values", "commits", "removed", "names", "shards", "end")
_JSON_KINDS = tuple(map(_KINDS.index, ("covered", "writers", "values", "end")))
_REMOVED = {"commit": "uint32"}


def encode_checkpoint(history: History, *, name: str, number: int, time: str) -> Iterator[bytes]:
    """Yield a checkpoint of a history, in pieces. For a worker thread.

    Raises:
        ManifestError: a row of it is larger than is read.
    """
    runs = [run.to_json() for run in history.runs]
    head = {"version": VERSION, "checkpoint": _FORMAT, "name": name, "number": number, "time": time, "runs": runs}
    yield json.dumps(head).encode() + b"\n"
    yield from _lines("covered", _covered(history.covered))
    yield from _lines("writers", history.writers)
    yield from _lines("values", history.values)
    commits = [history.commits[name] for name in COMMITS]
    yield from _columns("commits", TextColumn.of(()), commits, len(history.commits["time"]))
    yield from _columns("removed", history.removed, [history.removed_by], len(history.removed))
    names = history.shards.names
    yield from _columns("names", names, [], len(names))
    numbers = [history.shards.numbers[name] for name in NUMBERS]
    yield from _columns("shards", history.shards.paths, numbers, len(history.shards))
    end = {**_sizes(history), "identity": f"{history.identity:032x}"}
    yield from _lines("end", [end])


def _sizes(history: History) -> dict[str, int]:
    return {"commits": len(history.commits["time"]), "removed": len(history.removed), "shards": len(history.shards)}


def _covered(covered: CoveredNames) -> Iterator[dict[str, Any]]:
    for writer, ranges in covered.ranges.items():
        for at in range(0, len(ranges), 1000):
            yield {"writer": writer, "ranges": ranges[at : at + 1000]}
    for kind in ("others", "fences"):
        names = sorted(getattr(covered, kind))
        for at in range(0, len(names), 100):
            yield {kind: names[at : at + 100]}


def _lines(kind: str, objects: Iterable[Any]) -> Iterator[bytes]:
    """Blocks of JSON, a NUL behind each line; JSON itself has none."""
    lines = [json.dumps(each, separators=(",", ":")).encode() + b"\0" for each in objects]
    for at in range(0, len(lines), BLOCK_ROWS):
        some = lines[at : at + BLOCK_ROWS]
        yield encode_block(_KINDS.index(kind), len(some), b"".join(some), json=True)


def _columns(kind: str, texts: TextColumn, columns: list[NDArray[Any]], rows: int) -> Iterator[bytes]:
    for start in range(0, rows, BLOCK_ROWS):
        stop = min(start + BLOCK_ROWS, rows)
        content = encode_columns(
            texts.encode(start, stop) if len(texts) else b"", [column[start:stop] for column in columns]
        )
        yield encode_block(_KINDS.index(kind), stop - start, content, json=False)


class CheckpointDecoder:
    """Reads a checkpoint as it comes. It blocks: a millisecond for each 4,096 shards.

    Attributes:
        covered: the names of the segments that it covers, once `knows_covered`.
        knows_covered: whether what was fed holds all of them.
        runs: the runs of keys that it names; `None` until that was fed.
    """

    def __init__(self, name: str) -> None:
        """``name`` is for errors."""
        self.covered = CoveredNames()
        self.knows_covered = False
        self.runs: tuple[KeyRun, ...] | None = None
        self._name = name
        self._waiting = bytearray()
        self._head: dict[str, Any] | None = None
        self._block: Block | None = None
        self._kind = 0
        self._covered = _CoveredLines(name)
        self._writers: list[str] = []
        self._values: list[dict[str, Any]] = []
        self._columns: dict[str, ColumnParts] = {}
        self._last = b""
        self._end: dict[str, Any] | None = None

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        Raises:
            ManifestError: this is no checkpoint, one of a later format, or a damaged one.
        """
        self._waiting += data
        at = 0
        if self._head is None:
            end = self._waiting.find(b"\n", 0, MOST_HEAD)
            if end < 0:
                if len(self._waiting) >= MOST_HEAD:
                    raise ManifestError(f"{self._name}: it is no checkpoint")
                return
            self._read_head(bytes(self._waiting[:end]))
            at = end + 1
        while True:
            if self._block is None:
                if len(self._waiting) < at + HEADER_BYTES:
                    break
                self._block = parse_header(bytes(self._waiting[at : at + HEADER_BYTES]), _JSON_KINDS, self._name)
                at += HEADER_BYTES
            if len(self._waiting) < at + self._block.stored:
                break
            stored = bytes(self._waiting[at : at + self._block.stored])
            at += self._block.stored
            self._take(self._block, self._block.content(stored, self._name))
            self._block = None
        del self._waiting[:at]

    def finish(self) -> History:
        """Return the history, when all was fed.

        Raises:
            ManifestError: it is cut off, or does not fit together.
        """
        if self._end is None or self._waiting or self._head is None:
            raise ManifestError(f"{self._name}: it is cut off, or goes on behind its end")
        _, commits = self._joined("commits", COMMITS)
        removed, by = self._joined("removed", _REMOVED)
        names, _ = self._joined("names", {})
        paths, numbers = self._joined("shards", NUMBERS)
        history = History(
            writers=tuple(self._writers),
            values=tuple(self._values),
            commits=commits,
            shards=ShardColumns(paths, numbers, names),
            removed=removed,
            removed_by=by["commit"],
            identity=self._identity(),
            covered=self.covered,
            checkpoint=self._head["number"],
            runs=self.runs or (),
        )
        if {**_sizes(history), "identity": self._end["identity"]} != self._end:
            raise ManifestError(f"{self._name}: it does not hold what its end says")
        check_commits(history, self._name)
        check_shards(history, self._name)
        return history

    def _identity(self) -> int:
        try:
            identity = int(self._end["identity"], 16)  # type: ignore[index]  # finish has looked
        except (KeyError, TypeError, ValueError):
            identity = -1
        if not 0 <= identity < 1 << 128:
            raise ManifestError(f"{self._name}: its end has no id of a snapshot")
        return identity

    def _read_head(self, line: bytes) -> None:
        head = self._parsed(line)
        if not isinstance(head, dict):
            raise ManifestError(f"{self._name}: it is no checkpoint")
        if head.get("version") != VERSION or head.get("checkpoint") != _FORMAT:
            raise ManifestError(
                f"{self._name}: a checkpoint of format {str(head.get('checkpoint'))[:20]}, version "
                f"{str(head.get('version'))[:20]}, and this release reads format {_FORMAT}, version {VERSION}; "
                "a newer asyncrec may read it"
            )
        if not isinstance(head.get("number"), int) or not 0 <= head["number"] < 1 << 63:
            raise ManifestError(f"{self._name}: the checkpoint has no valid number; it is damaged")
        runs = head.get("runs", [])
        if not isinstance(runs, list):
            raise ManifestError(f"{self._name}: the checkpoint has no valid list of key runs; it is damaged")
        self._head, self.runs = head, tuple(KeyRun.from_json(run, self._name) for run in runs)

    def _take(self, block: Block, content: bytes) -> None:
        if not self._kind <= block.kind < len(_KINDS) or self._end is not None:
            raise ManifestError(f"{self._name}: its blocks are not in their order; it is damaged")
        self._kind = block.kind
        kind = _KINDS[block.kind]
        if kind != "covered" and not self.knows_covered:
            self.covered, self.knows_covered = self._covered.names(), True
        lines: dict[str, Callable[[Any], None]] = {
            "covered": self._covered.take,
            "writers": self._take_writer,
            "values": self._take_value,
            "end": self._take_end,
        }
        if kind in lines:
            texts = content.split(b"\0")
            if len(texts) != block.rows + 1 or texts.pop():
                raise ManifestError(f"{self._name}: a block does not have its {block.rows:,} lines; it is damaged")
            for text in texts:
                lines[kind](self._parsed(text))
            return
        kinds = {"commits": COMMITS, "removed": _REMOVED, "names": {}, "shards": NUMBERS}[kind]
        raw, columns = decode_columns(content, block.rows, kinds, self._name)
        texts_of = TextColumn.decode(raw)
        if kind != "commits":
            check_paths(raw, block.rows, self._name)
        if kind in ("removed", "shards"):
            first = kind not in self._columns
            self._last = check_sorted(raw, b"" if first else self._last, self._name)
        self._columns.setdefault(kind, ColumnParts(kinds)).add(texts_of, columns)

    def _take_writer(self, writer: Any) -> None:
        if not isinstance(writer, str):
            raise ManifestError(f"{self._name}: {str(writer)[:40]!r} is no writer's id")
        self._writers.append(writer)

    def _take_value(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise ManifestError(f"{self._name}: {str(value)[:40]!r}, where an object should be")
        self._values.append(value)

    def _take_end(self, end: Any) -> None:
        if not isinstance(end, dict) or not isinstance(end.get("identity"), str):
            raise ManifestError(f"{self._name}: its end says nothing; it is damaged")
        self._end = end

    def _joined(self, kind: str, kinds: Any) -> tuple[TextColumn, dict[str, NDArray[Any]]]:
        """All rows of one kind."""
        return self._columns.pop(kind, ColumnParts(kinds)).whole()

    def _parsed(self, text: bytes) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ManifestError(f"{self._name}: what should be JSON is not: {str(error)[:80]}") from error


class _CoveredLines:
    """The names of segments, line by line as `_covered` gives them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ranges: dict[str, list[tuple[int, int]]] = {}
        self._others: list[str] = []
        self._fences: list[str] = []

    def take(self, line: Any) -> None:
        match line:
            case {"writer": str(writer), "ranges": list(ranges)} if all(map(_is_range, ranges)):
                self._ranges.setdefault(writer, []).extend((first, last) for first, last in ranges)
            case {"others": list(names)} if all(isinstance(name, str) for name in names):
                self._others += names
            case {"fences": list(names)} if all(isinstance(name, str) for name in names):
                self._fences += names
            case _:
                raise ManifestError(f"{self._name}: it does not say which segments it covers; it is damaged")

    def names(self) -> CoveredNames:
        return CoveredNames(self._ranges, self._others, self._fences)


def _is_range(each: Any) -> bool:
    return (
        isinstance(each, list)
        and len(each) == 2
        and all(isinstance(number, int) and not isinstance(number, bool) for number in each)
        and 0 <= each[0] <= each[1]
    )
