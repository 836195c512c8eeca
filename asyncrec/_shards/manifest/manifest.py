"""`Manifest`: the segments of all commits of a data set are merged into a snapshot.

Segments are merged as events ordered by time: an addition at its ``committed``, a removal at its segment's ``time``
(a writer that removes takes care that its time is later than all it has read). So every reader of the same segments
gets the same snapshot, in whatever order the store lists them. The snapshot's id depends on its shards alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from asyncrec._shards.manifest.schemas import agreed
from asyncrec._shards.manifest.segment import Segment, ShardEntry, format_time
from asyncrec.errors import ManifestError

__all__ = ["Manifest", "WriterState", "merge_segments"]


@dataclass(frozen=True, slots=True)
class WriterState:
    """The state of one writer, as its data set's manifest has it.

    Attributes:
        closed: it ended well; what it committed is all there is of it.
        abandoned: somebody gave it up; it can commit nothing more.
        recovered: it had died, and what it left on its disk was committed for it.
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
    """A snapshot of a data set: which shards it consists of, and what is known of them.

    Attributes:
        path: the data set, as the caller gave it.
        id: 32 hexadecimal digits, which are equal for equal shards, whoever reads them and whenever.
        shards: the shards, in the order of their names.
        schema: the features of the records, as JSON; if writers gave different schemas, the latest.
        metadata: that of all writers, merged; for equal names the latest counts.
        writers: the writers, by id.
        removals: the highest number, in the log of removals and replacements, that was taken and committed.
        conflicts: sentences about contradictions in the manifest, none of which is fatal.
    """

    path: str
    id: str
    shards: tuple[ShardEntry, ...]
    schema: Mapping[str, Any] | None
    metadata: Mapping[str, Any]
    writers: Mapping[str, WriterState]
    removals: int = 0
    conflicts: tuple[str, ...] = ()

    @property
    def records(self) -> int:
        """How many records the shards have."""
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        """How many bytes the shards have as stored, compressed or not, without index and keys."""
        return sum(shard.bytes for shard in self.shards)


def merge_segments(path: str, segments: Iterable[Segment], *, at: str | datetime | None = None) -> Manifest:
    """Merge segments into a snapshot, in whatever order they come.

    ``at`` asks for an earlier one: a time (everything committed until then), or the id of a snapshot.

    Raises:
        ManifestError: no state of this data set has that id, or its counts add up to more than any data set has.
    """
    events: list[tuple[str, int, str, ShardEntry | str]] = []
    described: list[tuple[str, str, Segment]] = []
    for segment in segments:
        described.append((segment.time, segment.writer, segment))
        events.extend((entry.committed or segment.time, 1, segment.writer, entry) for entry in segment.add)
        events.extend((segment.time, 0, segment.writer, removed) for removed in segment.remove)
    # Removals first within one instant: a rewritten split removes and adds the same names in one segment.
    events.sort(key=lambda event: (event[0], event[1], event[2]))

    shards: dict[str, tuple[str, ShardEntry]] = {}
    identity = 0
    wanted = at if isinstance(at, str) else None
    until = format_time(at.timestamp()) if isinstance(at, datetime) else None
    found = wanted is None or wanted == _identity_text(0)
    for position, (time, _, writer, change) in enumerate(events):
        if until is not None and time > until:
            break
        removed = change if isinstance(change, str) else change.path
        if removed in shards:
            identity ^= _entry_identity(shards.pop(removed)[1])
        if isinstance(change, ShardEntry):
            shards[change.path] = (writer, change)
            identity ^= _entry_identity(change)
        last_of_instant = position + 1 == len(events) or events[position + 1][0] != time
        if wanted is not None and last_of_instant and _identity_text(identity) == wanted:
            found = True
            until = time
            break
    if not found:
        raise ManifestError(f"{path}: no snapshot with id {wanted}; it may belong to another data set, or be older")

    for counts in ((entry.records for _, entry in shards.values()), (entry.bytes for _, entry in shards.values())):
        if (total := sum(counts)) >= 1 << 63:
            raise ManifestError(f"{path}: its shards would have {total} records or bytes together; no data set has")

    described.sort(key=lambda item: item[:2])
    metadata: dict[str, Any] = {}
    schemas: list[tuple[str, Mapping[str, Any]]] = []
    for time, writer, segment in described:
        if until is not None and time > until:
            continue
        if segment.schema is not None:
            schemas.append((writer, segment.schema))
        metadata.update(segment.metadata)
    # What was replaced or removed needs no schema.
    owners = {writer for writer, _ in shards.values()}
    schema, conflicts = agreed([each for each in schemas if each[0] in owners or not owners])
    return Manifest(
        path=path,
        id=_identity_text(identity),
        shards=tuple(shards[name][1] for name in sorted(shards)),
        schema=schema,
        metadata=metadata,
        writers=_writers(described, shards),
        removals=max((segment.removal or 0 for _, _, segment in described), default=0),
        conflicts=tuple(dict.fromkeys(conflicts)),
    )


def _writers(
    described: list[tuple[str, str, Segment]], shards: Mapping[str, tuple[str, ShardEntry]]
) -> dict[str, WriterState]:
    owned: dict[str, list[ShardEntry]] = {writer: [] for _, writer, _ in described}
    for writer, entry in shards.values():
        owned[writer].append(entry)
    closed = {writer for _, writer, segment in described if segment.closed}
    abandoned = {writer for _, writer, segment in described if segment.abandoned}
    recovered = {writer for _, writer, segment in described if segment.closed and "recovered_by" in segment.extra}
    last = {writer: time for time, writer, _ in described}
    return {
        writer: WriterState(
            id=writer,
            closed=writer in closed,
            abandoned=writer in abandoned,
            shards=len(entries),
            records=sum(entry.records for entry in entries),
            last_commit=last[writer],
            recovered=writer in recovered,
        )
        for writer, entries in sorted(owned.items())
    }


def _entry_identity(entry: ShardEntry) -> int:
    """Hash a shard to 128 bits. XORed together, those of several shards stand for the set, in any order."""
    text = f"{entry.path}\0{entry.records}\0{entry.bytes}\0{entry.crc32c}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "big")


def _identity_text(identity: int) -> str:
    return f"{identity:032x}"
