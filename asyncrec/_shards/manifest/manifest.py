"""`Manifest`: a snapshot of a data set, computed from its history.

Segments are merged as a series of events ordered by time. A shard is added at its ``committed`` time, and removed at
the ``time`` of the segment that removes it; a writer that removes shards uses a time later than any it has read. Thus
all readers of the same segments compute the same snapshot, no matter in which order the store lists the segments. The
snapshot's id depends only on its shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from asyncrec._numpy import np
from asyncrec._shards.manifest.history import ABANDONED, CLOSED, History
from asyncrec._shards.manifest.merging import plus, shard_identity
from asyncrec._shards.manifest.progress import Reached, newer, positions
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec._shards.manifest.shard_columns import format_micros, micros_of
from asyncrec._shards.manifest.shard_list import ShardList
from asyncrec.errors import ManifestError, ObjectNotFoundError, SchemaError

if TYPE_CHECKING:
    from numpy.typing import NDArray

if TYPE_CHECKING:
    from asyncrec.example._schema import Schema


@dataclass(frozen=True, slots=True)
class WriterState:
    """The state of one writer, according to the manifest of its data set.

    Attributes:
        closed: whether the writer ended well, without uncommitted records.
        abandoned: whether another process ended the writer with a tombstone, so that it can commit nothing more.
        recovered: whether the writer died and another job committed the records on its disk.
    """

    id: str
    closed: bool
    abandoned: bool
    shards: int
    records: int
    last_commit: str
    recovered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A snapshot of a data set: its shards, and information about them.

    Attributes:
        path: the path of the data set, as the caller passed it.
        id: 32 hexadecimal digits. Snapshots with equal shards have equal ids, in every process and at any time.
        shards: the shards, in order of name. Each `ShardEntry` is created on demand.
        schema: the features of the records of all writers, as JSON; the latest schema if their schemas conflict.
        metadata: the metadata of all writers, merged; the latest value of each name counts.
        writers: the state of each writer, by id.
        removals: the highest committed place in the log of removals.
        conflicts: messages about contradictions in the manifest. None of them is fatal.
        progress: for each source, the position up to which its records are committed. Removing shards does not change
            it. It is empty in an earlier snapshot (``at=``), because past progress is not kept.
    """

    path: str
    id: str
    shards: ShardList
    schema: Mapping[str, Any] | None
    metadata: Mapping[str, Any]
    writers: Mapping[str, WriterState]
    removals: int = 0
    conflicts: tuple[str, ...] = ()
    progress: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.shards, ShardList):  # the caller passed a sequence of entries
            history = plus(History(), [Segment(writer="", time=format_time(0), add=tuple(self.shards))])
            object.__setattr__(self, "shards", ShardList(history))

    @property
    def records(self) -> int:
        """The number of records in the shards."""
        return self.shards.records

    @property
    def bytes(self) -> int:
        """The number of bytes in the shards as stored, compressed or not, without indexes and keys."""
        return self.shards.bytes


def carried_from(manifests: Iterable[Manifest]) -> dict[str, Any]:
    """Return the source progress for a data set that combines these snapshots, as keyword arguments of `Segment`."""
    progress: dict[str, Reached] = {}
    releases: dict[str, int] = {}
    for manifest in manifests:
        history = manifest.shards.history
        progress.update(newer(progress, history.progress))
        releases.update(newer(releases, history.releases))
    return {"progress": progress, "releases": releases}


def merge_segments(path: str, segments: Iterable[Segment], *, at: str | datetime | None = None) -> Manifest:
    """Merge segments, in any order, into a snapshot. ``at`` has the same meaning as for `manifest_of`."""
    return manifest_of(path, plus(History(), segments), at=at)


def manifest_of(path: str, history: History, *, at: str | datetime | None = None) -> Manifest:
    """Return a snapshot of a history.

    ``at`` selects an earlier snapshot, by time (everything committed up to that time) or by id. This takes a few
    microseconds per shard. Without ``at``, return the current snapshot.

    Raises:
        ManifestError: the data set never had a snapshot with that id, or the counts add up to an impossible total.
    """
    if at is None:
        live, identity, until = history.shards.numbers["live"], history.identity, None
        rows = None if live.all() else np.flatnonzero(live)
    else:
        rows, identity, until = _earlier(path, history, at)
    shards = ShardList(history, rows)
    for total in (shards.records, shards.bytes):
        if total >= 1 << 63:
            raise ManifestError(
                f"{path}: the shards add up to {total} records or bytes, which is impossible; the manifest is damaged"
            )
    counts, records = shards.by_writer()
    owners = counts > 0
    schema, conflicts = agreed(_schemas(history, until, owners=owners))
    removals = history.commits["removal"]
    return Manifest(
        path=path,
        id=f"{identity:032x}",
        shards=shards,
        schema=schema,
        metadata=_metadata(history, until, owners=owners),
        writers=_writers(history, counts, records),
        removals=max(int(removals.max()), 0) if len(removals) else 0,
        conflicts=tuple(dict.fromkeys(conflicts)),
        progress=positions(history.progress) if at is None else {},
    )


def _in_order(history: History, until: int | None, column: str, *, owners: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the commits that have a value in this column, ordered by time and writer.

    With ``until``, return the commits up to that time, and also all commits of ``owners``, the writers that have shards
    in the snapshot: a writer's closing segment may be later, but it repeats the values of the segments it replaces.
    """
    commits = history.commits
    then = True if until is None else (commits["time"] <= until) | owners[commits["writer"]]
    rows = np.flatnonzero((commits[column] >= 0) & then)
    ranks = np.empty(len(history.writers), np.int64)
    ranks[sorted(range(len(history.writers)), key=history.writers.__getitem__)] = np.arange(len(history.writers))
    return rows[np.lexsort((ranks[commits["writer"][rows]], commits["time"][rows]))]


def _changes(column: NDArray[Any]) -> NDArray[np.int64]:
    return np.flatnonzero(np.diff(column, prepend=-1))


def _schemas(
    history: History, until: int | None, *, owners: NDArray[np.bool_]
) -> Iterable[tuple[str, Mapping[str, Any]]]:
    """Yield each schema change and its writer, in chronological order. If any writers own shards, skip all others."""
    rows = _in_order(history, until, "schema", owners=owners)
    writers = history.commits["writer"]
    if owners.any():
        rows = rows[owners[writers[rows]]]
    for row in rows[_changes(history.commits["schema"][rows])].tolist():
        yield history.writers[writers[row]], history.values[history.commits["schema"][row]]


def _metadata(history: History, until: int | None, *, owners: NDArray[np.bool_]) -> dict[str, Any]:
    rows = _in_order(history, until, "metadata", owners=owners)
    metadata: dict[str, Any] = {}
    for row in rows[_changes(history.commits["metadata"][rows])].tolist():
        metadata.update(history.values[history.commits["metadata"][row]])
    return metadata


def _writers(history: History, shards: NDArray[np.int64], records: NDArray[np.int64]) -> dict[str, WriterState]:
    size, commits = len(history.writers), history.commits
    last = np.full(size, np.iinfo(np.int64).min)
    np.maximum.at(last, commits["writer"], commits["time"])
    flags = np.zeros(size, np.uint8)
    np.bitwise_or.at(flags, commits["writer"], commits["flags"])
    by_others = [number for number, value in enumerate(history.values) if "recovered_by" in value]
    recovered = np.zeros(size, np.bool_)
    recovered[commits["writer"][np.isin(commits["extra"], by_others) & ((commits["flags"] & CLOSED) != 0)]] = True
    return {
        history.writers[number]: WriterState(
            id=history.writers[number],
            closed=bool(flags[number] & CLOSED),
            abandoned=bool(flags[number] & ABANDONED),
            shards=int(shards[number]),
            records=int(records[number]),
            last_commit=format_micros(int(last[number])),
            recovered=bool(recovered[number]),
        )
        for number in sorted(np.unique(commits["writer"]).tolist(), key=history.writers.__getitem__)
    }


def _earlier(path: str, history: History, at: str | datetime) -> tuple[NDArray[np.int64], int, int]:
    """Return the rows of an earlier snapshot, its identity, and the time up to which its events count."""
    wanted = at if isinstance(at, str) else None
    until = np.iinfo(np.int64).max if isinstance(at, str) else micros_of(format_time(at.timestamp()))
    live: dict[str, int] = {}
    identity, last = 0, -(1 << 62)
    if wanted == f"{0:032x}":
        return np.empty(0, np.int64), 0, last
    events = sorted(_events(history))
    for position, (time, adds, _, row) in enumerate(events):
        if time > until:
            break
        removed = history.shards.paths[row] if adds else history.removed[row]
        if removed in live:
            identity ^= _identity(history.entry(live.pop(removed)))
        if adds:
            live[removed] = row
            identity ^= _identity(history.entry(row))
        last_of_instant = position + 1 == len(events) or events[position + 1][0] != time
        if wanted is not None and last_of_instant and f"{identity:032x}" == wanted:
            return np.sort(np.array(list(live.values()), np.int64)), identity, time
    if wanted is not None:
        raise ManifestError(
            f"{path}: the data set has no snapshot with the id {wanted}; the id may belong to another data set, or "
            "to a snapshot that compaction removed"
        )
    return np.sort(np.array(list(live.values()), np.int64)), identity, until


def _events(history: History) -> Iterable[tuple[int, int, str, int]]:
    """Yield removals and additions as ``(time, kind, writer, row)``. The kind is 1 for an addition and 0 for a removal.

    Removals sort before additions of the same time, because rewriting a split removes and adds the same names at once.
    """
    commits = history.commits
    for row, commit in enumerate(history.removed_by.tolist()):
        yield int(commits["time"][commit]), 0, history.writers[commits["writer"][commit]], row
    for row, time in enumerate(history.shards.numbers["committed"].tolist()):
        yield time, 1, history.writer_of(row), row


def _identity(entry: ShardEntry) -> int:
    return shard_identity(entry.path, entry.records, entry.bytes, entry.crc32c)


PUT_BACK = "to restore it, run 'asyncrec copy' from another copy of the data set"


def _told(error: ObjectNotFoundError) -> ObjectNotFoundError:
    """Return the error for a shard that the manifest lists but that does not exist."""
    told = ObjectNotFoundError(
        f"{error}; the manifest lists this shard, but it does not exist. If the shard was replaced or records were "
        "deleted after the data set was opened, open it again; otherwise, the shard was deleted. To list every missing "
        f"shard, run 'asyncrec verify'; {PUT_BACK}"
    )
    told.errno = error.errno
    return told


@contextmanager
def naming_lost_shards() -> Iterator[None]:
    """Replace the error for a missing shard with one that explains that the manifest lists the shard.

    Raises:
        ObjectNotFoundError: the shard does not exist.
    """
    try:
        yield
    except ObjectNotFoundError as error:
        raise _told(error) from error


Json = Mapping[str, Any]


def agreed(given: Iterable[tuple[str, Json]]) -> tuple[Json | None, list[str]]:
    """Return the schema that decodes the records of all writers, and a message about each conflict.

    A schema may replace an earlier one if it decodes every record that the earlier one decodes (`Schema.reads`). In
    that case, it is valid for all records, even while writers with the earlier schema are still running.

    ``given`` contains the writers and their schemas in order of time. If the schemas conflict, return the latest one.
    """
    schema: Json | None = None
    conflicts: list[str] = []
    for writer, other in given:
        if schema is None or schema == other:
            schema = other
            continue
        reason = _why_not(other, schema)
        if reason is None:
            schema = other
        elif _why_not(schema, other) is not None:
            conflicts.append(f"writer {writer} used a different schema than the writers before it: {reason}")
            schema = other
    return schema, conflicts


class CheckedMetadata(dict[str, Any]):
    """Metadata that a writer may add only to some data sets. ``check`` raises an error for the others."""

    def __init__(self, values: Json, check: Callable[[Manifest | None], None]) -> None:
        super().__init__(values)
        self.check = check


def refuse_incompatible(path: str, new: Schema, old: Json | None) -> None:
    """Raise SchemaError if the schema ``new`` cannot decode all records written with the earlier schema ``old``."""
    if old is None:
        return
    reason = _why_not(new.to_json(), old)
    if reason is not None:
        raise SchemaError(
            f"{path}: the new schema cannot decode all records that the data set already has: {reason}. A new "
            "feature needs a default"
        ).with_remedy(
            "write to another name, or replace the data set with mode='replace'", command="write to another name"
        )


def _why_not(new: Json, old: Json) -> str | None:
    from asyncrec.example._schema import Schema  # imported late: most data sets have at most one schema

    try:
        return Schema.from_json(new).reads(Schema.from_json(old))
    except SchemaError as error:
        return str(error)
