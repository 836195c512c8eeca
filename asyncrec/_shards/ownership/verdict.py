"""The types of the permissions that `end_job` gets from its caller, and of its result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from asyncrec._shards.manifest.segment import ShardEntry

Answer: TypeAlias = Literal["alive", "unknown", "promised", "ended", "finished", "given up"]
"""The outcome of a job. A job with one of the first three answers has not ended, and stays as it is.

``"alive"``: the job or a process that is ending it holds its lock. ``"unknown"``: nothing here proves it dead, and no
person declares it dead. ``"promised"``: it is dead, and holds records that this caller may neither finish nor discard.
``"ended"``: it had ended itself, or another process ended it. ``"finished"``: the records it had promised are
committed. ``"given up"``: a tombstone stands in the place of its closing segment.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The steps that a caller allows `end_job` to take, beyond those that the state of the job's lock justifies.

    Attributes:
        dead: whether a person declares the job dead (``take_over=``, ``dead=``).
        abandon: whether a person wants to abandon the job, even if it promised to keep records (``abandon=``). In that
            case, it counts as dead unless a lock proves it alive.
        living: whether to end the job even if a lock proves it alive, unless it has files on a disk. Its next request
            to create a segment or a flush entry fails. A writer that flushes to its store continues in a new log.
        finishes: which shards of the job may be committed: none, those of a rolling writer, or also those of a fixed
            set that is promised or complete. A caller that does not allow any needs the job's name, so a fixed set for
            which nothing was promised is abandoned.
    """

    dead: bool = False
    abandon: bool = False
    living: bool = False
    finishes: Literal["nothing", "rolling", "all"] = "nothing"


@dataclass(kw_only=True)
class Ending:
    """The accumulated results of ending one or more jobs. The attributes have the same meaning as in `Recovery`."""

    shards: list[ShardEntry] = field(default_factory=list)
    cut_bytes: int = 0
    damaged: list[str] = field(default_factory=list)
    discarded: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    targets: dict[str, None] = field(default_factory=dict)

    def commits(self, shard: ShardEntry, target: str) -> None:
        """Add a shard that was committed."""
        self.shards.append(shard)
        self.targets[target] = None
