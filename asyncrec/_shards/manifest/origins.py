"""`Origin`: a shard whose records are now part of another shard, with the time when they were committed.

If several records have the same key, the one that was committed first counts. Therefore, the entry of a rewritten shard
states when its records were first committed: in `since` or, if several shards were joined, in `joined`, which has a
line for each original shard::

    6740a1-000000 1024 2026-11-21T03:20:00.123456Z

A line states the name of the original shard without the data set's name, the number of its records, which keep their
order, and the time when they were committed. A program that follows the data set uses the names to determine which
records it has already received. If adjacent lines have a ``~`` before the name, their records were sorted together, so
only the sum of their counts is exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from asyncrec._numpy import np
from asyncrec._shards.manifest.names import original_of
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.shard_columns import format_micros, micros_of
from asyncrec._shards.manifest.shard_list import ShardList

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Optional members of a shard's entry. `SORTED` names the feature by which the shard's records are sorted.
SINCE, JOINED, SORTED = "since", "joined", "sorted"


class Origin(NamedTuple):
    """A shard whose records are now in another shard.

    Attributes:
        shard: the name that the shard had before it was rewritten for the first time.
        records: the number of the shard's records.
        since: the time when these records were committed.
        mixed: whether these records may be interspersed with the records of adjacent origins that are also mixed.
    """

    shard: str
    records: int
    since: str
    mixed: bool = False


def origins_of(entry: ShardEntry, name: str) -> list[Origin]:
    """Return the origins of a shard of the data set ``name``, in the order of their records.

    If the shard was not joined from others, return one origin, for the shard itself.
    """
    origins = _joined(entry)
    if origins is None:
        return [Origin(original_of(entry.path), entry.records, _since(entry))]
    return [each._replace(shard=f"{name}-{each.shard}.tfrecord") for each in origins]


def with_origins(entry: ShardEntry, origins: Iterable[Origin], name: str) -> ShardEntry:
    """Return a copy of a shard's entry with these origins. ``name`` is the name of the data set."""
    origins = list(origins)
    extra = {member: value for member, value in entry.extra.items() if member not in (SINCE, JOINED)}
    if len(origins) == 1 and origins[0].shard == original_of(entry.path):
        same = origins[0].since == entry.committed
        return replace(entry, extra=extra if same else {**extra, SINCE: origins[0].since})
    lines = (
        f"{'~' * mixed}{shard.removeprefix(f'{name}-').removesuffix('.tfrecord')} {records} {since}\n"
        for shard, records, since, mixed in origins
    )
    return replace(entry, extra={**extra, JOINED: "".join(lines)})


def _joined(entry: ShardEntry) -> list[Origin] | None:
    """Return the origins that an entry states, without the data set's name; `None` if they are missing or invalid."""
    text = entry.extra.get(JOINED)
    if not isinstance(text, str):
        return None
    try:
        lines = [line.split(" ") for line in text.splitlines()]
        origins = [
            Origin(shard.removeprefix("~"), int(records), format_micros(micros_of(since)), shard.startswith("~"))
            for shard, records, since in lines
        ]
    except (TypeError, ValueError, OverflowError):  # the text comes from a store and may be invalid
        return None
    sound = all(each.records >= 0 for each in origins) and sum(each.records for each in origins) == entry.records
    return origins if origins and sound else None


def _since(entry: ShardEntry) -> str:
    try:
        return format_micros(micros_of(entry.extra[SINCE]))
    except (KeyError, TypeError, ValueError, OverflowError):  # the text comes from a store and may be invalid
        return entry.committed


def times_of(entry: ShardEntry) -> list[tuple[int, str]]:
    """Return ``(number of records, commit time)`` for each origin of a shard, in the order of the records."""
    joined = _joined(entry)
    return [(entry.records, _since(entry))] if joined is None else [(each.records, each.since) for each in joined]


def sorted_together(origins: Iterable[Origin], *, first: bool) -> list[Origin]:
    """Return the origins of a shard whose records were sorted together, giving all of them the same commit time.

    ``first`` states which record of each key is to be kept: the one committed first, or else the one committed last.
    The common time is the earliest or the latest one, so that this record still precedes or follows its duplicates in
    other shards.
    """
    origins = list(origins)
    times = sorted(each.since for each in origins)
    since = times[0] if first else times[-1]
    return [each._replace(since=since, mixed=len(origins) > 1) for each in origins]


class CommitOrder:
    """The order in which the records of some shards were committed. It determines which record of a key is the first.

    The shards' names are not enough, because they only show when the writers were opened. Records that were committed
    at the same time, or that no manifest lists, keep the order of their shards.
    """

    def __init__(self, shards: Sequence[ShardEntry]) -> None:
        """Determine the order of all shards. Blocks."""
        if isinstance(shards, ShardList):
            counts, times = shards.counts, shards.committed
            rows = shards.rows_with(SINCE, JOINED)
        else:
            counts = np.array([entry.records for entry in shards], np.int64)
            times = np.zeros(len(shards), np.int64)
            rows = list(range(len(shards)))
        if rows:
            counts, times = _in_parts(shards, rows, counts, times)
        order = np.argsort(times, kind="stable")
        self._starts = np.cumsum(counts) - counts
        self._places = np.empty(len(counts), np.int64)
        self._places[order] = np.cumsum(counts[order]) - counts[order]

    def places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the places of records in this order. ``numbers`` are their numbers among all records of the shards."""
        parts = np.searchsorted(self._starts, numbers, side="right") - 1
        places: NDArray[np.int64] = numbers - self._starts[parts] + self._places[parts]
        return places


def _in_parts(
    shards: Sequence[ShardEntry], rows: Sequence[int], counts: NDArray[np.int64], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the counts and times of shards, but replace each of the given rows with the rows of its origins."""
    parts_of, parts_at, last = [], [], 0
    for row in rows:
        told = times_of(shards[row])
        parts_of += [counts[last:row], np.array([records for records, _ in told], np.int64)]
        parts_at += [times[last:row], np.array([micros_of(time) if time else 0 for _, time in told], np.int64)]
        last = row + 1
    return np.concatenate([*parts_of, counts[last:]]), np.concatenate([*parts_at, times[last:]])
