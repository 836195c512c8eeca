"""Where records that were mixed came from: `Origin`; `Held`, a record batch of one shard; `Taken`, records of one step.

Origins are found when somebody asks: most records need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from asyncrec.records.position import Position, RecordBatch

__all__ = ["Held", "Located", "Origin", "Taken", "pack_origins", "unpack_origins"]


class Origin(NamedTuple):
    """A record: the number of its shard, and its position in that."""

    source: int
    position: Position


class Located(Protocol):
    """Records in a row that can say where they came from."""

    def origins(self, begin: int, end: int) -> list[Origin]:
        """Of the records ``begin`` to ``end - 1``."""


@dataclass(frozen=True, slots=True)
class Held:
    """A record batch of shard number ``source``."""

    source: int
    batch: RecordBatch

    def origins(self, begin: int, end: int) -> list[Origin]:
        return [Origin(self.source, position) for position in self.batch.positions(begin, end)]

    def position(self, index: int) -> Position:
        return self.batch.position(index)


@dataclass(slots=True)
class Taken:
    """Records in the order they were taken.

    Attributes:
        drawn: the origins of the first of them, where they are known one by one.
        runs: of the rest: what they were taken from, from which index on, how many.
    """

    records: list[bytes] = field(default_factory=list)
    drawn: list[Origin] = field(default_factory=list)
    runs: list[tuple[Located, int, int]] = field(default_factory=list)

    def add(self, record: bytes, origin: Origin) -> None:
        """One more, while there are no runs."""
        self.records.append(record)
        self.drawn.append(origin)

    def extend(self, other: Taken) -> None:
        """What was taken after this; it is not to be used afterwards."""
        if not self.records:
            self.records, self.drawn, self.runs = other.records, other.drawn, other.runs
            return
        if other.drawn:
            self.drawn, self.runs = self.origins(), []
        self.records += other.records
        self.drawn += other.drawn
        self.runs += other.runs

    def split(self, count: int) -> tuple[Taken, Taken]:
        """The first ``count``, and the rest. Neither is to be extended where nothing is cut off: it is this one."""
        if count >= len(self.records):
            return self, Taken()
        origins = self.origins()
        return Taken(self.records[:count], drawn=origins[:count]), Taken(self.records[count:], drawn=origins[count:])

    def origins(self) -> list[Origin]:
        origins = self.drawn.copy()
        for located, begin, count in self.runs:
            origins += located.origins(begin, begin + count)
        return origins

    def origin(self, index: int) -> Origin:
        """Of ``records[index]``."""
        if index < len(self.drawn):
            return self.drawn[index]
        index -= len(self.drawn)
        for located, begin, count in self.runs:
            if index < count:
                return located.origins(begin + index, begin + index + 1)[0]
            index -= count
        raise IndexError(index)


def pack_origins(origins: Iterable[Origin]) -> list[list[int]]:
    """As JSON: four numbers each."""
    return [[source, *position] for source, position in origins]


def unpack_origins(packed: Sequence[Sequence[Any]], sources: int) -> list[Origin]:
    """
    Raises:
        ValueError: they are not what `pack_origins` gave, or name a source that is not there.
    """
    origins = []
    for source, offset, skip, record in packed:
        if not 0 <= source < sources or min(offset, skip, record) < 0:
            raise ValueError("the state names records that cannot be")
        origins.append(Origin(source, Position(offset, skip, record)))
    return origins
