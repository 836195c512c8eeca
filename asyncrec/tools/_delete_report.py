"""`DeleteReport`, the result of `delete`, is a receipt that contains no key and no part of a record."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from asyncrec._shards.recovery.report import UnfinishedJob
from asyncrec.tools._report_json import json_of

_OUT_OF_REACH = (
    "copies of the data set, backups, and files that were made from its records",
    "earlier versions of objects, in a bucket that keeps versions",
    "copies in memory, in downloads and in folders passed as cache=, here and on other machines",
    "records that no writer has committed yet: run the deletion again when those in 'unfinished' have ended",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """One commit of `delete`, which replaced some shards.

    Attributes:
        time: the time of the commit, in UTC.
        job: the id under which it was committed.
        records: the number of records that it removed.
        shards: the shards that it removed.
        bytes: the size of these shards.
        written: the size of the shards that replaced them.
    """

    time: datetime
    job: str
    records: int
    shards: tuple[str, ...]
    bytes: int
    written: int

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "time job records bytes written shards")


@dataclass(slots=True, kw_only=True)
class DeleteReport:
    """The result of `delete`, a receipt that contains no key and no part of a record.

    Attributes:
        keys: the number of different keys that were passed; ``keys_found`` is the number of those that a record had.
        where: the conditions.
        dry_run: whether nothing was changed. ``records``, ``shards`` and ``bytes`` are then the numbers that a deletion
            would report.
        records: the number of records removed.
        shards: the number of shards that contained these records and were rewritten.
        bytes: the size of these shards.
        deletions: the commits, in order.
        objects: all deleted objects: shards, indexes, keys and runs of keys, including leftovers of an earlier
            deletion.
        uncommitted: objects of the data set that are in no commit, which were not searched.
        unfinished: the jobs that have not ended. Their later commits were not searched.
        out_of_reach: descriptions of other places where the records may still be.
        begun: the time at which the call began, in UTC. All such records committed before then were deleted.
    """

    path: str
    keys: int = 0
    keys_found: int = 0
    where: list[str] = field(default_factory=list)
    dry_run: bool = False
    records: int = 0
    shards: int = 0
    bytes: int = 0
    deletions: list[Deletion] = field(default_factory=list)
    objects: list[str] = field(default_factory=list)
    uncommitted: list[str] = field(default_factory=list)
    unfinished: list[UnfinishedJob] = field(default_factory=list)
    out_of_reach: tuple[str, ...] = _OUT_OF_REACH
    begun: datetime

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "path begun dry_run keys keys_found where records shards bytes deletions objects uncommitted "
            "unfinished out_of_reach",
            unfinished=[json_of(job, "id kind host pid spool") for job in self.unfinished],
        )
