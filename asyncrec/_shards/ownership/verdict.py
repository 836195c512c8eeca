"""What the caller of `end_job` allows, and the answer that it gets."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from asyncrec._shards.manifest.segment import ShardEntry

Answer: TypeAlias = Literal["alive", "unknown", "promised", "ended", "finished", "given up"]
"""What became of a job. The first three have not ended, and stay as they are.

``"alive"``: its lock is held, by itself or by a process that is ending it. ``"unknown"``: nothing here proves it
dead, and no person says so. ``"promised"``: it is dead, and holds records that this caller may neither finish nor
discard. ``"ended"``: it had ended by itself, or another ended it. ``"finished"``: what it had promised is committed.
``"given up"``: a tombstone stands in the place of its closing segment.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a caller allows, beyond what a lock proves.

    Attributes:
        dead: a person says that the job is dead (``take_over=``, ``dead=``).
        abandon: a person says that it is to be given up, whatever it promised (``abandon=``); dead, too, if nothing
            proves it alive.
        living: the job is ended even if a lock proves it alive, unless it has something on a disk: its next request
            for a segment or a flush entry is refused. A writer that flushes to its store goes on in a new log.
        finishes: what may be committed of it: what a rolling writer left, or also a fixed set that is promised or
            whole. A caller that may finish nothing wants its name, and gives up a fixed set that promised nothing.
    """

    dead: bool = False
    abandon: bool = False
    living: bool = False
    finishes: Literal["nothing", "rolling", "all"] = "nothing"


@dataclass(kw_only=True)
class Ending:
    """What was done to end jobs, so far; the members are those of `Recovery`."""

    shards: list[ShardEntry] = field(default_factory=list)
    cut_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    targets: dict[str, None] = field(default_factory=dict)

    def commits(self, shard: ShardEntry, target: str) -> None:
        """Note a shard that was committed."""
        self.shards.append(shard)
        self.targets[target] = None
