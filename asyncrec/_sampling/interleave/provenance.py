"""A `RecordSource` is the origin of a record in an interleaved stream: its shard, and its position in the shard.

Sources are computed on demand, because most are never needed. A `SourcedBatch` keeps what is needed to compute them.
`TracedRecords` are records of many shards, with the information needed to trace each record to its source.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from asyncrec._records.position import Position, RecordBatch
from asyncrec._sampling.state_values import StateValues


class RecordSource(NamedTuple):
    """The number of a record's shard, and the record's position in the shard."""

    shard: int
    position: Position


class Traceable(Protocol):
    """A sequence of records that can return the source of each record."""

    def sources(self, begin: int, end: int) -> list[RecordSource]:
        """Return the sources of the records ``begin`` to ``end - 1``."""


@dataclass(frozen=True, slots=True)
class SourcedBatch:
    """One or more record batches that were read together, with the number of their shard.

    Attributes:
        records: the records of all batches.
    """

    shard: int
    batches: Sequence[RecordBatch]
    records: list[bytes]

    @classmethod
    def of(cls, shard: int, batches: Sequence[RecordBatch]) -> SourcedBatch:
        records = batches[0].records if len(batches) == 1 else [each for batch in batches for each in batch.records]
        return cls(shard, batches, records)

    def sources(self, begin: int, end: int) -> list[RecordSource]:
        """Return the source of each of ``records[begin:end]``."""
        found: list[RecordSource] = []
        first = 0
        for batch in self.batches:
            count = len(batch.records)
            here = batch.positions(max(0, begin - first), max(0, min(end - first, count)))
            found += [RecordSource(self.shard, position) for position in here]
            first += count
        return found

    def position(self, index: int) -> Position:
        """Return the position of ``records[index]``; for ``len(records)``, the position after the last record."""
        for batch in self.batches[:-1]:
            if index < len(batch.records):
                return batch.position(index)
            index -= len(batch.records)
        return self.batches[-1].position(index)


@dataclass(slots=True)
class TracedRecords:
    """Records in the order in which they were read. Each record can be traced to its shard and position.

    Attributes:
        known: the sources of the first records, if they have already been computed.
        slices: where the sources of the other records can be computed. A slice consists of a `Traceable` sequence, the
            index of the slice's first record in that sequence, and the number of records in the slice.
    """

    records: list[bytes] = field(default_factory=list)
    known: list[RecordSource] = field(default_factory=list)
    slices: list[tuple[Traceable, int, int]] = field(default_factory=list)

    def add(self, record: bytes, source: RecordSource) -> None:
        """Append one record. There must be no slices yet."""
        self.records.append(record)
        self.known.append(source)

    def extend(self, other: TracedRecords) -> None:
        """Append the records of ``other``, which were read after these. ``other`` must not be used afterwards."""
        if not self.records:
            self.records, self.known, self.slices = other.records, other.known, other.slices
            return
        if other.known:
            self.known, self.slices = self.sources(), []
        self.records += other.records
        self.known += other.known
        self.slices += other.slices

    def split(self, count: int) -> tuple[TracedRecords, TracedRecords]:
        """Return the first ``count`` records and the rest, which may be empty.

        If the rest is empty, the first part is this object itself, which must not be extended.
        """
        if count >= len(self.records):
            return self, TracedRecords()
        sources = self.sources()
        first = TracedRecords(self.records[:count], known=sources[:count])
        return first, TracedRecords(self.records[count:], known=sources[count:])

    def sources(self) -> list[RecordSource]:
        sources = self.known.copy()
        for traceable, begin, count in self.slices:
            sources += traceable.sources(begin, begin + count)
        return sources

    def source_of(self, index: int) -> RecordSource:
        """Return the source of ``records[index]``."""
        if index < len(self.known):
            return self.known[index]
        index -= len(self.known)
        for traceable, begin, count in self.slices:
            if index < count:
                return traceable.sources(begin + index, begin + index + 1)[0]
            index -= count
        raise IndexError(index)


def pack_sources(sources: Iterable[RecordSource]) -> list[list[int]]:
    """Return the sources as JSON, four numbers for each source."""
    return [[shard, *position] for shard, position in sources]


def parse_sources(values: StateValues, name: str, shards: int) -> list[RecordSource]:
    """Parse a result of `pack_sources`, for a stream of ``shards`` shards.

    Raises:
        ValueError: the value is not a result of `pack_sources`, or contains a shard that does not exist.
    """
    return [RecordSource(row[0], Position(*row[1:])) for row in values.rows(name, shards, None, None, None)]
