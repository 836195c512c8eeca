"""`Origin`: which shards a shard stands for that was made of others, and the order in which records were committed.

Of several records with one key the first committed counts. So a shard that was rewritten says when its records were
committed at first: in `since`, or, if it was joined of several shards, in `joined`, a line for each of these::

    6740a1-000000 1024 2026-11-21T03:20:00.123456Z

which is the name of the shard without that of the data set, how many of its records are there, in their order, and
when they were committed. By the names a follower of the data set knows which of these records it was given. If a ``~``
is before the name, its records are sorted among those of the neighbours that have one, too: only the sum is exact.
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

# Optional members of an entry; the last one is the feature by which the records of the shard are sorted.
SINCE, JOINED, SORTED = "since", "joined", "sorted"


class Origin(NamedTuple):
    """A shard whose records are in another one.

    Attributes:
        shard: its name, as it was before it was ever rewritten.
        records: how many of its records there are.
        since: when they were committed.
        mixed: its records are anywhere among those of its neighbours that are mixed.
    """

    shard: str
    records: int
    since: str
    mixed: bool = False


def origins_of(entry: ShardEntry, name: str) -> list[Origin]:
    """The shards that one of the data set ``name`` stands for, in the order of their records; or itself alone."""
    origins = _joined(entry)
    if origins is None:
        return [Origin(original_of(entry.path), entry.records, _since(entry))]
    return [each._replace(shard=f"{name}-{each.shard}.tfrecord") for each in origins]


def with_origins(entry: ShardEntry, origins: Iterable[Origin], name: str) -> ShardEntry:
    """The entry of a shard of the data set ``name`` that stands for these."""
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
    """What the entry of a joined shard says, without the name of the data set; `None` for any other, or nonsense."""
    text = entry.extra.get(JOINED)
    if not isinstance(text, str):
        return None
    try:
        lines = [line.split(" ") for line in text.splitlines()]
        origins = [
            Origin(shard.removeprefix("~"), int(records), format_micros(micros_of(since)), shard.startswith("~"))
            for shard, records, since in lines
        ]
    except (TypeError, ValueError, OverflowError):  # it was read
        return None
    sound = all(each.records >= 0 for each in origins) and sum(each.records for each in origins) == entry.records
    return origins if origins and sound else None


def _since(entry: ShardEntry) -> str:
    try:
        return format_micros(micros_of(entry.extra[SINCE]))
    except (KeyError, TypeError, ValueError, OverflowError):  # it was read
        return entry.committed


def times_of(entry: ShardEntry) -> list[tuple[int, str]]:
    """When the records of a shard were committed: how many, and when, in their order."""
    joined = _joined(entry)
    return [(entry.records, _since(entry))] if joined is None else [(each.records, each.since) for each in joined]


def sorted_together(origins: Iterable[Origin], *, first: bool) -> list[Origin]:
    """What a shard stands for when its records are sorted: all have the time of the ``first`` of them, or of the last.

    Of each key one record is to stay, the first that was committed, or else the last. If it is here, and the others are
    still elsewhere, it stays the one.
    """
    origins = list(origins)
    times = sorted(each.since for each in origins)
    since = times[0] if first else times[-1]
    return [each._replace(since=since, mixed=len(origins) > 1) for each in origins]


class CommitOrder:
    """In which order the records of some shards were committed: of several records of a key, which is the first.

    The names of shards say when their writers were opened. Of what was committed together, or is in no manifest, the
    order stays.
    """

    def __init__(self, shards: Sequence[ShardEntry]) -> None:
        """Look at all shards. Blocks."""
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
        """The places of records, by their numbers among the records of all these shards."""
        parts = np.searchsorted(self._starts, numbers, side="right") - 1
        places: NDArray[np.int64] = numbers - self._starts[parts] + self._places[parts]
        return places


def _in_parts(
    shards: Sequence[ShardEntry], rows: Sequence[int], counts: NDArray[np.int64], times: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The counts and times of shards, with several of them in the place of each of these rows."""
    parts_of, parts_at, last = [], [], 0
    for row in rows:
        told = times_of(shards[row])
        parts_of += [counts[last:row], np.array([records for records, _ in told], np.int64)]
        parts_at += [times[last:row], np.array([micros_of(time) if time else 0 for _, time in told], np.int64)]
        last = row + 1
    return np.concatenate([*parts_of, counts[last:]]), np.concatenate([*parts_at, times[last:]])
