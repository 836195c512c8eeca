"""`DetachedJob` is a joint job that begins in one process and is committed in another, so no single process owns it.

Spark begins a write in one process, and commits or aborts it in another. Usually, a lock shows that a job is alive, but
here the lock would be released as soon as the first process exits. A helper process could keep the lock instead. But
then the other processes would have to find it, trust it and stop it, and the job would fail if this helper died,
although it does none of the work.

The header therefore declares the job detached. Nothing can prove such a job dead, so other processes leave it alone,
just like a job on another machine. Its ``job_id`` takes the place of the proof: a run with an id ends all earlier runs
with the same id, whether or not they are alive. Suppose A begins run 1, and B begins run 2. B creates the tombstone of
run 1, and A creates the closing segment of run 1 when its tasks are done. Both objects have the same name and are
created exclusively, so only one of the two can succeed. If A was first, B finds the commit and has nothing to do. If B
was first, A's `DetachedJob.commit` raises ConflictError, and no record of run 1 is in the data set. No clock is
involved. If B's own process dies, run 3 ends run 2 in the same way.

Without a ``job_id``, no other run can tell that the job is over. If its processes are killed, `asyncrec.recover`
reports it as unfinished, and abandons it only on request (``abandon``).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.staging import Staging
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import dataset_at, load_manifest
from asyncrec._shards.ownership.census import FoundJob
from asyncrec._shards.ownership.claims import settle_dead
from asyncrec._shards.ownership.end_job import end_job
from asyncrec._shards.ownership.verdict import Verdict
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.joint_job import JobShare, JointJob, failures_logged, open_joint_job
from asyncrec.errors import ConflictError
from asyncrec.storage._url import redact


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedJob:
    """A job begun by `begin_detached_job`. It can be pickled, and any process can commit it or give it up, once.

    Attributes:
        share: the information with which any process can make shards for the job, with
            `asyncrec._shards.writing.joint_job.open_share`.
        header: the job's header; `None` if an earlier run with the same id has already committed, so that there is
            nothing to do.
        replaced: the paths of the shards to replace, as JSON, compressed to make the pickled job small; `None` if the
            job appends.
        removals: the last place that was taken in the log of removals when the job began.
    """

    share: JobShare
    header: JobHeader | None = field(default=None, repr=False)
    replaced: bytes | None = field(default=None, repr=False)
    removals: int = 0

    async def commit(
        self, entries: Collection[ShardEntry], *, records: int | None = None, storage_options: dict[str, Any] | None
    ) -> None:
        """Commit these shards in one step, and end the job, as `JointJob.commit` does.

        Raises:
            ConflictError: another run with the same id has ended the job, the job was abandoned, or the data set was
                replaced; nothing is committed.
            DatasetError: the shards do not contain exactly ``records`` records; nothing is committed.
            StorageError: nothing is committed, unless a note on the error says that this is unknown; the next run then
                finds out.
        """
        if (header := self.header) is None:
            return
        async with dataset_at(self.share.path, storage_options=storage_options) as (folder, name):
            before = await load_manifest(folder, name, path=redact(self.share.path))
            if self.replaced is not None:
                before = await in_thread(self._what_it_replaces, before)
            job = Job(
                header,
                folder,
                folder,
                mode="append" if self.replaced is None else "replace",
                before=before,
                staging=Staging(header, None),
                claim=None,
                budget=ByteBudget(1),  # this job makes no shards
                on_commit=None,
            )
            try:
                await JointJob(self.share, job, None).commit(entries, records=records)
            except ConflictError as error:
                closing = await load_closing(folder, name, header.writer)
                if closing is not None and closing.abandoned:
                    raise ConflictError(
                        f"{redact(self.share.path)}: the job {header.writer} was ended before it committed, by "
                        "another run of the same job_id, or by 'asyncrec recover --abandon'; none of its records "
                        "is in the data set"
                    ) from error
                raise
            with failures_logged(folder, header):
                await settle_dead(folder, name, header.writer, take_over=True)

    async def give_up(self, *, storage_options: dict[str, Any] | None) -> None:
        """End the job without committing it, and delete the objects that its tasks have created.

        If the job has already committed, its records stay in the data set.

        Raises:
            ConflictError: another process is currently ending the job.
            StorageError: the job may not have ended; the next run with the same id ends it.
        """
        if (header := self.header) is None:
            return
        async with dataset_at(self.share.path, storage_options=storage_options) as (folder, name):
            if not await settle_dead(folder, name, header.writer, take_over=True):
                # Another run has ended the job, but the job's tasks may have created more objects since.
                await end_job(folder, FoundJob(header), Verdict(abandon=True))

    def _what_it_replaces(self, now: Manifest | None) -> Manifest | None:
        """Return the manifest with only the shards that this job replaces. Blocks.

        Raises:
            ConflictError: some of these shards were removed after the job began.
        """
        paths = set(json.loads(zlib.decompress(self.replaced or b"")))
        entries = [] if now is None else [entry for entry in now.shards if entry.path in paths]
        if gone := paths.difference(entry.path for entry in entries):
            raise ConflictError(
                f"{redact(self.share.path)}: the shard {min(gone)}, which this job was replacing, was removed by "
                "another process; no record of this job is in the data set"
            )
        return None if now is None else replace(now, shards=entries, removals=self.removals)  # type: ignore[arg-type]


async def begin_detached_job(path: str | os.PathLike[str], **options: Any) -> DetachedJob:
    """Begin a job that no single process owns, and end all earlier runs with the same id.

    If an earlier run has already committed, the returned job has no header, and there is nothing left to do.

    Args:
        path, options: passed to `asyncrec._shards.writing.joint_job.open_joint_job`, which also lists the errors.
    """
    async with open_joint_job(path, take_over=True, detached=True, **options) as joint:
        if (job := joint.job) is None:
            return DetachedJob(share=joint.share)
        detached = DetachedJob(
            share=joint.share,
            header=job.header,
            replaced=await in_thread(_paths, job.before) if job.replaces else None,
            removals=0 if job.before is None else job.before.removals,
        )
        job.shares = "end elsewhere"
        return detached


def _paths(before: Manifest | None) -> bytes:
    return zlib.compress(json.dumps([] if before is None else list(before.shards.paths())).encode())
