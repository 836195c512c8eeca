"""The findings of a report, for the whole data set and for each shard. This module does no I/O."""

from __future__ import annotations

from dataclasses import dataclass, field

from asyncrec.tools import SelectedShard, Selection

from .profile import Profile

# The number of bytes of a frame in addition to its data, for the length and two checksums.
_FRAME_BYTES = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault in a shard."""

    path: str
    message: str


@dataclass(slots=True)
class ShardFindings:
    """The findings about one shard.

    Attributes:
        records: the number of records, from the manifest or counted; `None` if unknown.
        compression: the compression, from the manifest or detected; `None` if unknown.
        read: the number of records read.
        payload: the size of the records read, in bytes.
        missing: whether the shard does not exist.
        faults: the faults found.
    """

    shard: SelectedShard
    records: int | None
    compression: str | None
    read: int = 0
    payload: int = 0
    missing: bool = False
    faults: list[Fault] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.shard.name

    @property
    def bytes(self) -> int:
        return self.shard.size


@dataclass(slots=True)
class Findings:
    """The contents of a report.

    Attributes:
        sampled: whether only some of the records were read.
        evenly: whether the records were drawn evenly from all shards rather than from the beginnings of shards.
    """

    path: str
    selection: Selection
    shards: list[ShardFindings]
    profile: Profile
    sampled: bool = False
    evenly: bool = True
    notes: list[str] = field(default_factory=list)

    @property
    def records(self) -> int | None:
        """The number of records in all shards, or `None` if that of any shard is unknown."""
        counts = [shard.records for shard in self.shards if shard.records is not None]
        return sum(counts) if len(counts) == len(self.shards) else None

    @property
    def bytes(self) -> int:
        """The stored size of all shards in bytes."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def faults(self) -> list[Fault]:
        return [fault for shard in self.shards for fault in shard.faults]

    @property
    def unpacked(self) -> float | None:
        """The decompressed size of all records with their frames, estimated from the mean of those read, or `None`."""
        if self.records is None or not self.profile.records:
            return None
        mean = sum(shard.payload for shard in self.shards) / self.profile.records
        return (mean + _FRAME_BYTES) * self.records
