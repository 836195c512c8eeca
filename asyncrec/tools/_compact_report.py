"""`CompactReport` describes the changes that `compact` made to shards and to the manifest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from asyncrec.tools._report_json import json_of


@dataclass(slots=True, kw_only=True)
class CompactReport:
    """The result of `compact`.

    Attributes:
        joined: the number of shards that were joined; ``into`` is the number of new shards. With ``dry_run``, both are
            planned numbers.
        bytes: the total size of the shards that were joined; ``rewritten`` is the total size of the new shards.
        duplicates: the number of records left out because another record with the same key was committed earlier or,
            with ``newest``, is newer.
        commits: the number of commits that replaced shards.
        left: the number of pieces left to other calls that were working on them.
        removed: the objects of replaced shards that were deleted, after the grace for readers.
        id, shards, records: the snapshot id, number of shards and number of records of the data set afterwards.
        checkpoint: the path of the newest checkpoint, which `asyncrec.open_dataset` accepts; `None` before the first
            checkpoint.
        written: whether this call wrote that checkpoint; false if there were no new segments or another call wrote it.
        merged: the number of segments that were not in any checkpoint before.
        deleted: the segments, older checkpoints, runs of keys and turns of sources that were deleted.
        latest: the path of the object that names the checkpoint, if it was requested.
    """

    path: str
    dry_run: bool = False
    joined: int = 0
    into: int = 0
    bytes: int = 0
    rewritten: int = 0
    duplicates: int = 0
    commits: int = 0
    left: int = 0
    removed: tuple[str, ...] = ()
    id: str = ""
    shards: int = 0
    records: int = 0
    checkpoint: str | None = None
    written: bool = False
    merged: int = 0
    deleted: tuple[str, ...] = ()
    latest: str | None = None

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "path dry_run joined into bytes rewritten duplicates commits left removed id shards records checkpoint "
            "written merged deleted latest",
        )
