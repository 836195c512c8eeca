"""`Findings` are what a report shows: of the whole, of each shard, and what is wrong. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from asyncrec.tools import SelectedShard, Selection

from .profile import Profile

# What a record takes beside its data: length, checksum of the length, checksum of the data.
_FRAME_BYTES = 16


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong with a shard."""

    path: str
    message: str


@dataclass(slots=True)
class ShardFindings:
    """What is known of one shard.

    Attributes:
        records: as the manifest says, or as counted; `None` where neither is known.
        compression: as the manifest says, or as found; `None` where it was not looked at.
        read: records read.
        payload: bytes of the records read.
        missing: it is not there.
        faults: what was found wrong.
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
    """What a report shows.

    Attributes:
        sampled: not all records were read.
        evenly: those that were come from everywhere; else they are the first ones of each shard.
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
        """In all; `None` where some shard was neither counted nor is in a manifest."""
        counts = [shard.records for shard in self.shards if shard.records is not None]
        return sum(counts) if len(counts) == len(self.shards) else None

    @property
    def bytes(self) -> int:
        """As stored."""
        return sum(shard.bytes for shard in self.shards)

    @property
    def faults(self) -> list[Fault]:
        return [fault for shard in self.shards for fault in shard.faults]

    @property
    def unpacked(self) -> float | None:
        """Bytes of all records with their frames, decompressed: counted, or by the mean of those read."""
        if self.records is None or not self.profile.records:
            return None
        mean = sum(shard.payload for shard in self.shards) / self.profile.records
        return (mean + _FRAME_BYTES) * self.records
