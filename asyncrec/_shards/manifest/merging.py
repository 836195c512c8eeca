"""`plus` merges segments into a history: it applies their additions and removals, and determines which shards are live.

A writer's closing segment repeats its earlier segments, so these are discarded. A path refers to the last shard that
was added under it, unless that shard was removed later. Only the paths that a commit changes are examined, so merging
is fast even if the history has a million shards. For each source, the highest turn counts, with the highest position in
that turn; removing shards does not change this. Merging blocks for about 15 microseconds per new shard.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from asyncrec._numpy import np
from asyncrec._shards.manifest.history import ABANDONED, CLOSED, COMMITS, History
from asyncrec._shards.manifest.progress import Level, Reached, newer
from asyncrec._shards.manifest.segment import Segment
from asyncrec._shards.manifest.shard_columns import LACKS, Added, ShardColumns, micros_of
from asyncrec._shards.manifest.texts import TextColumn

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The number of items to sort before letting other threads run. Sorting them takes a millisecond or two.
_SORTED_AT_ONCE = 2048


def plus(history: History, segments: Iterable[Segment], *, names: Collection[str] = ()) -> History:
    """Return the history with these segments merged into it, in any order.

    ``names`` are the file names of segments that are to count as covered by the new history.
    """
    segments = list(segments)
    history, touched = _without(history, {each.writer for each in segments if each.closed and not each.abandoned})
    tables = _Tables(history)
    added: list[Added] = []
    removed: list[tuple[bytes, int]] = []
    progress: dict[str, Reached] = {}
    releases: dict[str, int] = {}
    for segment in segments:
        commit = tables.commit(segment)
        for entry in segment.add:
            time = micros_of(entry.committed or segment.time)
            tie = (entry.records, entry.bytes, entry.crc32c or 0)
            extra = tables.value(entry.extra)
            added.append(Added(entry.path.encode(), time, segment.writer, tie, commit, extra, entry))
        removed += ((path.encode(), commit) for path in segment.remove)
        progress.update(newer(progress, segment.progress))
        releases.update(newer(releases, segment.releases))
    added = _sorted(added)
    removed = _sorted(removed)
    touched.update(path for path, _ in removed)
    shards, groups = _inserted(history, added)
    history = replace(
        history,
        writers=tuple(tables.writers),
        values=tuple(tables.values),
        commits=tables.columns(),
        shards=shards,
        covered=history.covered.plus(names) if names else history.covered,
        progress=_with(history.progress, progress),
        releases=_with(history.releases, releases),
        **_removals(history, removed),
    )
    groups.update((path, shards.paths.range_of(path)) for path in touched if path not in groups)
    return _settled(history, groups)


def _with(known: Mapping[str, Level], more: Mapping[str, Level]) -> Mapping[str, Level]:
    return {**known, **added} if (added := newer(known, more)) else known


class _Tables:
    """The tables of a history's writers, values and commits, to which segments add rows."""

    def __init__(self, history: History) -> None:
        self.writers = list(history.writers)
        self.values = list(history.values)
        self._commits = history.commits
        self._first = len(history.commits["time"])
        self._rows: list[tuple[int, ...]] = []
        self._number_of = {writer: number for number, writer in enumerate(self.writers)}
        self._value_of = {_text(value): number for number, value in enumerate(self.values)}

    def commit(self, segment: Segment) -> int:
        """Add a commit and return its row."""
        row = {
            "writer": self._writer(segment.writer),
            "time": micros_of(segment.time),
            "schema": -1 if segment.schema is None else self.value(segment.schema, always=True),
            "metadata": self.value(segment.metadata),
            "extra": self.value(segment.extra),
            "removal": -1 if segment.removal is None else segment.removal,
            "flags": CLOSED * segment.closed | ABANDONED * segment.abandoned,
        }
        self._rows.append(tuple(row[name] for name in COMMITS))
        return self._first + len(self._rows) - 1

    def value(self, value: Any, *, always: bool = False) -> int:
        """Return the number of a JSON object, adding it if new. Return -1 if it is empty, unless ``always`` is set."""
        if not value and not always:
            return -1
        number = self._value_of.setdefault(_text(value), len(self.values))
        if number == len(self.values):
            self.values.append(value)
        return number

    def columns(self) -> dict[str, NDArray[Any]]:
        if not self._rows:
            return dict(self._commits)
        new = zip(*self._rows, strict=True)
        return {
            name: np.concatenate([self._commits[name], np.array(column, kind)])
            for (name, kind), column in zip(COMMITS.items(), new, strict=True)
        }

    def _writer(self, writer: str) -> int:
        number = self._number_of.setdefault(writer, len(self.writers))
        if number == len(self.writers):
            self.writers.append(writer)
        return number


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _sorted(items: list[Any]) -> list[Any]:
    """Sort items in chunks, so that other threads can run in between."""
    key = attrgetter("path", "time", "writer", "tie") if items and isinstance(items[0], Added) else None
    if len(items) <= _SORTED_AT_ONCE:
        return sorted(items, key=key)
    runs = [sorted(items[at : at + _SORTED_AT_ONCE], key=key) for at in range(0, len(items), _SORTED_AT_ONCE)]
    return list(heapq.merge(*runs, key=key))


def _without(history: History, writers: set[str]) -> tuple[History, set[bytes]]:
    """Return the history without the commits of these writers, and the paths that these commits changed."""
    numbers = [number for number, writer in enumerate(history.writers) if writer in writers]
    gone = np.isin(history.commits["writer"], numbers)
    if not gone.any():
        return history, set()
    shards, identity = history.shards, history.identity
    lost = gone[shards.numbers["commit"]]
    touched = set()
    for row in np.flatnonzero(lost).tolist():
        touched.add(shards.paths.raw(row))
        if shards.numbers["live"][row]:
            identity ^= _row_identity(shards, row)
    renumbered = (np.cumsum(~gone) - 1).clip(0).astype(np.uint32)
    if touched:
        shards = shards.take(np.flatnonzero(~lost))
    shards = replace(shards, numbers={**shards.numbers, "commit": renumbered[shards.numbers["commit"]]})
    stays = np.flatnonzero(~gone[history.removed_by])
    touched.update(history.removed.raw(row) for row in np.flatnonzero(gone[history.removed_by]).tolist())
    return replace(
        history,
        commits={name: column[~gone] for name, column in history.commits.items()},
        shards=shards,
        removed=history.removed.take(stays),
        removed_by=renumbered[history.removed_by[stays]],
        identity=identity,
    ), touched


def _inserted(history: History, added: Sequence[Added]) -> tuple[ShardColumns, dict[bytes, tuple[int, int]]]:
    """Return the history's shards with the new ones inserted, and for each added path, the range of its rows."""
    there = history.shards
    places: list[int] = []
    groups: dict[bytes, tuple[int, int]] = {}
    at = 0
    for path, same in groupby(added, attrgetter("path")):
        more = list(same)
        low, high = 0, 0
        if len(there):
            low, high = there.paths.range_of(path)
            keys = [_key(history, row) for row in range(low, high)]
            places += [low + sum(key <= (each.time, each.writer, each.tie) for key in keys) for each in more]
        groups[path] = low + at, high + at + len(more)
        at += len(more)
    return there.inserted(ShardColumns.of(added), np.array(places, np.int64)), groups


def _key(history: History, row: int) -> tuple[int, str, tuple[int, int, int]]:
    time, *tie = (int(history.shards.numbers[name][row]) for name in ("committed", "records", "bytes", "crc32c"))
    return time, history.writer_of(row), (tie[0], tie[1], tie[2])


def _removals(history: History, removed: Sequence[tuple[bytes, int]]) -> dict[str, Any]:
    if not removed:
        return {}
    there, new = history.removed, TextColumn.decode(b"".join(path + b"\0" for path, _ in removed))
    commits = np.array([commit for _, commit in removed], np.uint32)
    if not len(there):
        return {"removed": new, "removed_by": commits}
    places = np.array([there.find(path) for path, _ in removed], np.int64)
    order = np.insert(np.arange(len(there)), places, np.arange(len(there), len(there) + len(new)))
    return {
        "removed": TextColumn.joined([there, new]).take(order),
        "removed_by": np.concatenate([history.removed_by, commits])[order],
    }


def _settled(history: History, groups: dict[bytes, tuple[int, int]]) -> History:
    """Mark which shard is live under each of these paths: the last one added, unless it was removed later."""
    if not groups:
        return history
    numbers, times = history.shards.numbers, history.commits["time"]
    live, added = numbers["live"].copy(), numbers["committed"]
    identity = history.identity
    for path, (low, high) in groups.items():
        for row in range(low, high):
            if live[row]:
                identity ^= _row_identity(history.shards, row)
                live[row] = False
        if low == high:
            continue
        if len(history.removed):
            first, last = history.removed.range_of(path)
            if last > first and times[history.removed_by[first:last]].max() > added[high - 1]:
                continue
        live[high - 1] = True
        identity ^= _row_identity(history.shards, high - 1)
    shards = replace(history.shards, numbers={**numbers, "live": live})
    return replace(history, shards=shards, identity=identity)


def _row_identity(shards: ShardColumns, row: int) -> int:
    numbers = shards.numbers
    crc32c = None if numbers["flags"][row] & LACKS["crc32c"] else int(numbers["crc32c"][row])
    return shard_identity(shards.paths[row], int(numbers["records"][row]), int(numbers["bytes"][row]), crc32c)


def shard_identity(path: str, records: int, size: int, crc32c: int | None) -> int:
    """Return a 128-bit hash of a shard. The XOR of the hashes identifies a set of shards, regardless of their order."""
    text = f"{path}\0{records}\0{size}\0{crc32c}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")
