"""`DetachedJob`: a joint job whose steps are done by processes that end in between, so that no process can hold it.

Spark begins a write in one process, and commits or aborts it in another one. A lock that says that the job lives would be
gone with the first of them, before any task has begun. The naive way out is a process that stays and keeps the lock:
then the others have to find it, to trust it and to end it, and a job dies with a process that does none of its work.

Here the header says that the job is detached. Nothing proves such a job dead, so others leave it alone, as they do a job
on another machine; and its ``job_id`` stands in for the proof: a run of an id ends the runs of that id before it, whether
they live or not. Let A begin run 1, and B run 2. B creates the tombstone of run 1; A, when its tasks are done, the closing
segment. Both have the same name and are created exclusively, so that one of them wins. If A was first, B finds the commit
and has nothing to do. If B was first, A's `DetachedJob.commit` raises ConflictError, and nothing of run 1 is in the data
set. No clock decides. If B's own process dies, run 3 ends run 2 in the same way.

Without a ``job_id`` no other run can say that the job is over: if its processes were killed, `asyncrec.recover` names it
as unfinished, and gives it up when it is told to (``abandon``).
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from asyncrec._concurrency.tasks import in_thread
from asyncrec._framing.compression import Compression, parse_compression
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.journal import has_header
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.names import new_writer_id
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import dataset_at, load_manifest
from asyncrec._shards.ownership.abandonment import abandon
from asyncrec._shards.ownership.claims import settle_dead
from asyncrec._shards.ownership.marks import load_mark
from asyncrec._shards.writing.job import Job, Mode
from asyncrec._shards.writing.joint_job import JobShare, JointJob, check_job_id, failures_logged, run_of
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec.errors import ConflictError, ObjectExistsError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import local_folder
from asyncrec.storage._url import redact


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachedJob:
    """A job that was begun, made by `begin_detached_job`. It can be pickled; any process ends it, once.

    Attributes:
        share: for `asyncrec._shards.writing.joint_job.open_share`, in whatever process.
        repeated: an earlier run of its id has committed: nothing is to be done.
        replaced: what it replaces, as compressed JSON; `None` if it appends. Tasks carry it, too.
        removals: the last place in the log of removals that it knew of.
    """

    share: JobShare
    repeated: bool
    header: JobHeader = field(repr=False)
    replaced: bytes | None = field(default=None, repr=False)
    removals: int = 0

    async def commit(
        self, entries: Collection[ShardEntry], *, records: int | None = None, storage_options: dict[str, Any] | None
    ) -> None:
        """Make these shards part of the data set, in one step, and end the job; as `JointJob.commit`.

        Raises:
            ConflictError: another run of its id has ended it, or it was given up, or the data set was replaced; nothing
                is committed.
            DatasetError: there are others than were counted; nothing is committed.
            StorageError: nothing is committed; or nobody knows, as a note says, and a run with the same id finds out.
        """
        if self.repeated:
            return
        header = self.header
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
                journal=None,
                claim=None,
                budget=ByteBudget(1),  # it makes no shards
                on_commit=None,
            )
            try:
                await JointJob(self.share, job, None).commit(entries, records=records)
            except ConflictError as error:
                closing = await load_closing(folder, name, header.writer)
                if closing is not None and closing.abandoned:
                    raise ConflictError(
                        f"{redact(self.share.path)}: the job {header.writer} was ended before it committed, by another "
                        "run of the same job_id, or by 'asyncrec recover --abandon'; nothing of it is in the data set"
                    ) from error
                raise
            with failures_logged(folder, header):
                await settle_dead(folder, name, header.writer, take_over=True)

    async def give_up(self, *, storage_options: dict[str, Any] | None) -> None:
        """End the job without a commit, and delete what its tasks made. Of one that is committed, what is in it stays.

        Raises:
            ConflictError: another process is just ending it.
            StorageError: it may not have ended; a run with the same id ends it.
        """
        if self.repeated:
            return
        async with dataset_at(self.share.path, storage_options=storage_options) as (folder, name):
            if not await settle_dead(folder, name, self.header.writer, take_over=True):
                # Another run has ended it; tasks may have gone on.
                await abandon(folder, self.header, plain=False)

    def _what_it_replaces(self, now: Manifest | None) -> Manifest | None:
        """The data set as it was when the job began. Blocks.

        Raises:
            ConflictError: some of it was removed since.
        """
        paths = set(json.loads(zlib.decompress(self.replaced or b"")))
        entries = [] if now is None else [entry for entry in now.shards if entry.path in paths]
        if len(entries) < len(paths):
            gone = min(paths.difference(entry.path for entry in entries))
            raise ConflictError(
                f"{redact(self.share.path)}: {gone} was to be replaced, and was removed meanwhile; nothing of this "
                "writer is in the data set"
            )
        return None if now is None else replace(now, shards=entries, removals=self.removals)  # type: ignore[arg-type]


async def begin_detached_job(
    path: str | os.PathLike[str],
    *,
    job_id: str | None = None,
    mode: Mode = "append",
    schema: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    compression: Compression = "",
    index: bool = True,
    storage_options: dict[str, Any] | None = None,
) -> DetachedJob:
    """Begin a job that no process holds, or find that it was done. An earlier run of its id is ended.

    Args:
        job_id: names the work: a run with this id ends an earlier one that has not committed, and adds nothing to what
            an earlier one has committed.
        path, mode, schema, metadata, compression, index, storage_options: as for
            `asyncrec._shards.writing.joint_job.open_joint_job`.

    Raises:
        ConflictError: a lock on this machine shows that a run of this id is being begun, committed or held.
        ObjectExistsError: with ``mode="new"`` there is a data set.
        ValueError: an id that cannot be one.
    """
    options = parse_compression(compression)
    check_job_id(job_id)
    async with dataset_at(path, storage_options=storage_options) as (folder, name):
        writer, closing = new_writer_id(), None
        if job_id is not None:
            writer, closing = await run_of(folder, name, job_id, take_over=True)
        header = whole_job_header(
            folder,
            name,
            writer=writer,
            compression=options,
            index=index,
            schema=schema,
            metadata=dict(metadata or {}),
            detached=True,
        )
        local = local_folder(folder) is not None
        share = JobShare(path=header.url if local else str(path), writer=writer, compression=options, index=index)
        if closing is not None:
            with failures_logged(folder, header):
                await settle_dead(folder, name, writer, take_over=True)
            return DetachedJob(share=share, repeated=True, header=header)
        try:
            async with open_job(folder, header, path=redact(str(path)), mode=mode) as job:
                replaced = await in_thread(_paths, job.before) if mode == "replace" else None
                job.left_over = True  # its mark stays
        except ObjectExistsError as error:
            if job_id is not None and await _is_begun(folder, header):
                raise ConflictError(
                    f"{redact(str(path))}: another run of the job {job_id} began at the same moment, and makes it"
                ) from error
            raise
        removals = job.before.removals if job.before is not None else 0
        return DetachedJob(share=share, repeated=False, header=job.header, replaced=replaced, removals=removals)


def _paths(before: Manifest | None) -> bytes:
    return zlib.compress(json.dumps([] if before is None else list(before.shards.paths())).encode())


async def _is_begun(folder: Storage, header: JobHeader) -> bool:
    """Whether another job has this one's id."""
    name, writer = header.name, header.writer
    local = local_folder(folder)
    if local is not None and await in_thread(has_header, local, name, writer):
        return True
    return await load_mark(folder, name, writer) is not None or await load_closing(folder, name, writer) is not None
