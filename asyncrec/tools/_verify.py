"""`verify` checks all shards of a path against their checksums, their manifest, their indexes and their keys."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from asyncrec._arguments import Size, check_age
from asyncrec._concurrency.map import side_by_side
from asyncrec._framing.frames import MAX_RECORD_BYTES
from asyncrec.errors import ArgumentValueError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.tools import _orphans as orphans_
from asyncrec.tools._checks import Problem, ShardReport, check_shard
from asyncrec.tools._orphans import MIN_AGE, Orphan, find_orphans
from asyncrec.tools._parameters import Advance, Progress, at_once, check_jobs
from asyncrec.tools._report_json import json_of
from asyncrec.tools._selection import SelectedDataset, SelectedShard, Selection, selected


@dataclass(slots=True, kw_only=True)
class VerifyReport:
    """The result of `verify`.

    Attributes:
        shards: a report on each shard, in order.
        orphans: the objects that are named like objects of a data set but are in no manifest.
        conflicts: contradictions in the manifests.
        adopted, deleted: the paths of the orphans that were added to the data set, and of those that were deleted.
        seconds: the time that reading took.
        spool: whether the path is the folder of a spool, in which shards wait to be uploaded. In a spool, only complete
            shards are read.
    """

    path: str
    kind: str
    shards: list[ShardReport] = field(default_factory=list)
    orphans: list[Orphan] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    adopted: list[str] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    seconds: float = 0.0
    spool: bool = False

    @property
    def records(self) -> int:
        return sum(shard.records for shard in self.shards)

    @property
    def bytes(self) -> int:
        return sum(shard.bytes for shard in self.shards)

    @property
    def damaged(self) -> list[ShardReport]:
        """The shards with problems, except those that the store did not return."""
        return [shard for shard in self.shards if any(problem.kind != "unreadable" for problem in shard.problems)]

    @property
    def unreadable(self) -> list[ShardReport]:
        return [shard for shard in self.shards if any(problem.kind == "unreadable" for problem in shard.problems)]

    @property
    def ok(self) -> bool:
        """Whether all shards were read and are intact, and no manifest has contradictions. Orphans are ignored."""
        return all(shard.ok for shard in self.shards) and not self.conflicts

    def to_json(self) -> dict[str, Any]:
        return json_of(self, "path kind ok records bytes seconds shards orphans conflicts adopted deleted spool")


async def verify(
    path: str | os.PathLike[str],
    *,
    jobs: int | None = None,
    adopt: bool = False,
    delete: bool = False,
    min_age: float = MIN_AGE,
    progress: Progress = lambda done, total: None,
    max_record_bytes: Size = MAX_RECORD_BYTES,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> VerifyReport:
    """Read all shards of a file, a folder, a pattern or a data set, and report the problems.

    Every checksum is verified. In data sets, the sizes, counts and checksums are also compared with the manifest, and
    every line of the indexes and the size and checksum of each keys file are checked. Problems do not raise errors.

    Args:
        jobs: the number of shards to read at once, each in a worker thread with about 16 MiB of memory; by default the
            number of processors that this process may use, but at least 8 for a remote store. The report is the same
            for any number.
        adopt: add intact shards that no manifest lists to their data set.
        delete: delete orphans instead, even in a data set without a commit.
        min_age: the minimum age, in seconds, of orphans to adopt or delete. Orphans of a job that has not ended are
            left to `asyncrec.recover` regardless of age.
        max_record_bytes: as for `asyncrec.open_reader`; longer records that a manifest allows are read in any case.
        progress: called with the number of bytes read, and the total.

    Raises:
        ObjectNotFoundError, StoragePermissionError: there is nothing at the path, or the path cannot be listed.
        ManifestError: a manifest cannot be read.
        ValueError: both ``adopt`` and ``delete`` were passed, ``jobs`` is less than 1, or ``min_age`` is longer than a
            century.
    """
    check_jobs(jobs)
    check_age(min_age, "min_age")
    if adopt and delete:
        raise ArgumentValueError("adopt and delete cannot be combined")
    async with selected(
        path, given_up=delete, max_record_bytes=max_record_bytes, storage=storage, storage_options=storage_options
    ) as selection:
        report = VerifyReport(path=selection.path, kind=selection.kind, spool=await selection.is_spool())
        report.conflicts = [conflict for dataset in selection.datasets for conflict in dataset.manifest.conflicts]
        found = {
            id(dataset): await find_orphans(dataset, selection.base, min_age=min_age) for dataset in selection.datasets
        }
        report.orphans = [orphan for each in found.values() for orphan in each]
        orphaned = {orphan.path for orphan in report.orphans}
        shards = [shard for shard in selection.shards if shard.display_path not in orphaned]
        begun = time.monotonic()
        report.shards = await _check_all(selection, shards, jobs, progress)
        report.seconds = time.monotonic() - begun
        for dataset in selection.datasets:
            if adopt:
                await _adopt(report, selection, dataset, found[id(dataset)])
            if delete:
                removed = await orphans_.remove(dataset, found[id(dataset)])
                report.deleted += [orphan.path for orphan in removed]
    return report


async def _check_all(
    selection: Selection, shards: list[SelectedShard], jobs: int | None, progress: Progress
) -> list[ShardReport]:
    advance = Advance(progress, sum(shard.size for shard in shards))

    async def check(shard: SelectedShard) -> ShardReport:
        return await check_shard(selection.storage, shard, advance=advance)

    return await side_by_side(check, shards, tasks=at_once(jobs, selection.storage))


async def _adopt(report: VerifyReport, selection: Selection, dataset: SelectedDataset, orphans: list[Orphan]) -> None:
    """Check the orphaned shards that may be adopted, and adopt those that are intact."""
    candidates = [each for each in orphans if each.refused is None and each.is_free]
    whole = []
    for orphan in candidates:
        shard = SelectedShard(key=dataset.prefix + orphan.key, display_path=orphan.path, size=orphan.size)
        found = await check_shard(selection.storage, shard)
        report.shards.append(found)
        if found.ok:
            whole.append((orphan, found))
        else:
            found.problems.append(
                Problem(kind="damaged", message="this orphaned shard is damaged, so it was not adopted")
            )
    if whole:
        try:
            await orphans_.commit_unlisted(dataset, whole)
        except StorageError as error:
            error.add_note(f"{report.path}: {len(whole)} intact orphans were not adopted, because of this error")
            raise
        report.adopted += [orphan.path for orphan, _ in whole]
