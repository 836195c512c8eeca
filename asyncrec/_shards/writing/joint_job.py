"""`open_joint_job` begins a job whose shards are made by many processes and committed by one.

    async with open_joint_job("s3://crawl/pages", job_id="2026-11-22") as job:        # in the driver
        if job.committed is None:                                                     # no earlier run has committed
            ... send job.share to the workers; each returns the entries of open_share
            await job.commit(entries)

Each attempt at a part of the work gives its shards unique names, which contain the job's id. Objects that no commit
names are ignored, such as the shards of an attempt that died or was repeated, or of a failed run. The process that ends
the job deletes these objects, and `verify --delete` deletes any that appear later.

A ``job_id`` makes it safe to repeat a run. Each run is a separate job, called ``<job_id>_run1``, ``_run2`` and so on,
and at most one of them ever commits. A new run first finds out how the earlier runs ended. It abandons a dead run by
creating a tombstone; a detached run (`detached_job`) is abandoned even if it is alive. If the response to a commit was
lost, the next run finds that commit, and adds nothing.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from asyncrec._arguments import Size, byte_count
from asyncrec._concurrency.deadline import Deadline
from asyncrec._concurrency.tasks import Handover, TaskScope, in_thread
from asyncrec._framing.compression import Compression, CompressionOptions, parse_compression
from asyncrec._path_log import PathLog
from asyncrec._records.writing.memory_budget import ByteBudget
from asyncrec._records.writing.object_limits import MAX_SHARD_BYTES
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.commit.shard import CommitClock
from asyncrec._shards.commit.shard_publisher import ShardPublisher
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.home import home_of
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import new_writer_id, rolling_shard_name, validate_writer_id
from asyncrec._shards.manifest.segment import Segment, ShardEntry
from asyncrec._shards.manifest.snapshot import dataset_at
from asyncrec._shards.ownership.census import find_job
from asyncrec._shards.ownership.claims import settle_dead
from asyncrec._shards.writing.job import Job, Mode
from asyncrec._shards.writing.open_job import open_job, whole_job_header
from asyncrec._shards.writing.ordered_writer import KeyedBatch, Limits, Supply, write_shard
from asyncrec.errors import ArgumentValueError, ConflictError, DatasetError, ObjectExistsError
from asyncrec.storage._base import Storage
from asyncrec.storage._url import join, redact

_path_log = PathLog("asyncrec.shards")

_MOST_ID = 50  # a writer's id has at most 64 characters; the rest is for the number of the run
_MEMORY_LIMIT = 256 << 20
# A shard's number combines the numbers of its part, its attempt, and the shard within the attempt, so that names sort
# by part.
_PARTS, _ATTEMPTS, _SHARDS = 10**7, 10**12, 10**5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """The information that a process needs to make shards for a job. Only ``path`` may have credentials.

    A share can be pickled.

    Attributes:
        path: the path of the data set; absolute if it is local.
        writer: the id of the job, which is part of the names of its shards.
        compression, index: the options for the shards.
    """

    path: str = field(repr=False)
    writer: str
    compression: CompressionOptions
    index: bool


class JointJob:
    """A job whose shards are made by many processes, begun by `open_joint_job`.

    Attributes:
        share: the information to pass to `open_share`, which any process may call.
        committed: the shards that this job, or an earlier run with the same id, has committed; `None` if neither has.
        job: the underlying job; `None` if an earlier run has committed.
    """

    def __init__(self, share: JobShare, job: Job | None, committed: tuple[ShardEntry, ...] | None) -> None:
        self.share = share
        self.committed = committed
        self.job = job

    async def commit(self, entries: Collection[ShardEntry], *, records: int | None = None) -> None:
        """Commit these shards in one step, and end the job. Call this only once.

        Args:
            entries: the entries of all shards to commit, taken from `ShareWriter.entries` of every successful attempt.
            records: the total number of records that the shards must contain, if it is known.

        Raises:
            DatasetError: the shards do not contain exactly ``records`` records; nothing is committed.
            ConflictError: the job was abandoned, or another job replaced the data set; nothing is committed.
            StorageError: nothing is committed, unless a note on the error says that this is unknown; the next run then
                finds out.
        """
        if self.job is None:
            raise DatasetError(
                f"{redact(self.share.path)}: the job {self.share.writer} has ended and accepts no more shards"
            )
        found = sum(entry.records for entry in entries)
        if records is not None and found != records:
            raise DatasetError(
                f"{redact(self.share.path)}: {records:,} records were written, but the shards that were passed hold "
                f"{found:,}; nothing was committed. Some tasks failed and were skipped, or a shard was passed twice"
            )
        if len({entry.path for entry in entries}) < len(entries):
            raise DatasetError(f"{redact(self.share.path)}: a shard was passed twice; nothing was committed")
        in_order = sorted(entries, key=lambda entry: entry.path)  # the manifest lists shards in this order
        stamped = tuple(replace(entry, committed=self.job.manifest.clock.now()) for entry in in_order)
        await self.job.commit(stamped)
        self.committed = stamped


@asynccontextmanager
async def open_joint_job(
    path: str | os.PathLike[str],
    *,
    job_id: str | None = None,
    mode: Mode = "append",
    take_over: bool = False,
    detached: bool = False,
    schema: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    compression: Compression = "",
    index: bool = True,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[JointJob]:
    """Begin a job, unless an earlier run has committed. If the context exits without a commit, the job is abandoned.

    Args:
        path: a folder that every process can access, followed by the data set's name.
        job_id: an id for the work. If a run with this id has already committed, further runs with the same id add
            nothing.
        mode: ``"append"``, ``"new"`` or ``"replace"``, as for `asyncrec.open_sharded_writer`.
        take_over: whether to consider an earlier run on another machine dead if this machine cannot determine its
            state.
        detached: whether the job belongs to no single process, so that no lock can show whether it is alive or dead.
        schema, metadata: values to store in the manifest.
        compression, index: options for the shards.
        storage_options: options for the storage backend.

    Raises:
        ConflictError: a run with this id is alive, or may be alive on another machine.
        ObjectExistsError: ``mode`` is ``"new"``, and the data set already exists.
        ValueError: ``job_id`` is not a valid id.
    """
    options = parse_compression(compression)
    if job_id is not None and len(validate_writer_id(job_id)) > _MOST_ID:
        raise ArgumentValueError(f"job_id has {len(job_id)} characters; it may have at most {_MOST_ID}")
    async with dataset_at(path, storage_options=storage_options) as (folder, name):
        writer, closing = new_writer_id(), None
        if job_id is not None:
            writer, closing = await _run_of(folder, name, job_id, take_over=take_over)
        more = {"schema": schema, "metadata": dict(metadata or {}), "detached": detached}
        header = whole_job_header(folder, name, writer=writer, compression=options, index=index, **more)
        local = home_of(folder).folder is not None
        share = JobShare(path=header.url if local else str(path), writer=writer, compression=options, index=index)
        if closing is not None:
            with failures_logged(folder, header):
                await settle_dead(folder, name, writer, take_over=True)  # the run has ended, but its mark may remain
            yield JointJob(share, None, closing.add)
            return
        async with AsyncExitStack() as stack:
            try:
                job = await stack.enter_async_context(open_job(folder, header, path=redact(str(path)), mode=mode))
            except ObjectExistsError as error:
                # With mode="new", the existing object may be the data set. Otherwise it belongs to another run with
                # this id.
                if job_id is None or (mode == "new" and await find_job(folder, name, writer) is None):
                    raise
                raise ConflictError(
                    f"{redact(str(path))}: another run of the job {job_id} started at the same moment and now "
                    "writes the data set"
                ) from error
            joint = JointJob(share, job, None)
            job.shares = "end here"
            yield joint


class ShareWriter:
    """A writer of shards for a joint job, opened by `open_share` and used by one task.

    Attributes:
        entries: the entries of the shards, to pass to `JointJob.commit`; they are set when the context has exited
            without an error.
    """

    def __init__(self) -> None:
        self.entries: list[ShardEntry] = []
        self._batches = Handover[KeyedBatch](1, "the share")
        self._error: Exception | None = None
        self._ended = anyio.Event()

    async def write(self, records: list[bytes], keys: list[bytes] | None = None) -> None:
        """Write records and, if they have keys, the digests of the keys.

        If making the shards fails, all further calls raise the same error.
        """
        if self._error is not None:
            raise self._error
        await self._batches.put(KeyedBatch(records, keys))

    async def run(self, share: JobShare, part: int, limits: Limits, storage_options: dict[str, Any] | None) -> None:
        """Make shards from the written records until `finish` is called. This is the body of a task."""
        try:
            self.entries = await _make_shards(share, _Taken(self._batches), part, limits, storage_options)
        except Exception as error:
            self._error = error
            with suppress(StopAsyncIteration):  # release a waiting caller; its next call raises the error
                while True:
                    await self._batches.take()
        finally:
            self._ended.set()

    async def finish(self) -> None:
        """Wait until all records are written and all shards are published."""
        self._batches.end()
        await self._ended.wait()
        if self._error is not None:
            raise self._error


@asynccontextmanager
async def open_share(
    share: JobShare,
    *,
    part: int = 0,
    max_shard_bytes: Size | None = None,
    max_shard_records: int | None = None,
    storage_options: dict[str, Any] | None = None,
) -> AsyncIterator[ShareWriter]:
    """Open a writer that makes shards for a job. `JointJob.commit` adds these shards to the data set.

    Each attempt gives its shards unique names, so several attempts at the same part may run at the same time. An
    attempt that fails deletes its shards.

    Args:
        share: the job's share, such as `JointJob.share`.
        part: the number of this part of the work. The shards in the data set are ordered by it.
        max_shard_bytes, max_shard_records: the maximum size of a shard; 256 MiB if neither is passed.
        storage_options: options for the storage backend.
    """
    if not 0 <= part < _PARTS:
        raise ArgumentValueError(f"part={part}: must be at least 0 and below {_PARTS:,}")
    if max_shard_bytes is None and max_shard_records is None:
        max_shard_bytes = MAX_SHARD_BYTES
    size = None if max_shard_bytes is None else byte_count(max_shard_bytes, "max_shard_bytes")
    limits = Limits(max_bytes=size, max_records=max_shard_records)
    writer = ShareWriter()
    async with TaskScope() as scope:
        scope.start_soon(writer.run, share, part, limits, storage_options)
        try:
            yield writer
            await writer.finish()
        finally:
            scope.cancel()


class _Taken:
    def __init__(self, batches: Handover[KeyedBatch]) -> None:
        self._batches = batches

    def __aiter__(self) -> _Taken:
        return self

    async def __anext__(self) -> KeyedBatch:
        return await self._batches.take()


async def _make_shards(
    share: JobShare,
    batches: AsyncIterator[KeyedBatch],
    part: int,
    limits: Limits,
    storage_options: dict[str, Any] | None,
) -> list[ShardEntry]:
    first = ((_PARTS + part) * _ATTEMPTS + secrets.randbelow(_ATTEMPTS)) * _SHARDS
    entries: list[ShardEntry] = []
    async with dataset_at(share.path, storage_options=storage_options) as (folder, name):
        header = whole_job_header(
            folder, name, writer=share.writer, compression=share.compression, index=share.index, metadata={}
        )
        local = home_of(folder).folder
        publisher = ShardPublisher(
            folder,
            header,
            budget=ByteBudget(_MEMORY_LIMIT),
            clock=CommitClock(),
            deadline=Deadline(),
            staging=None if local is None else local.owned_by(share.writer, keep=False),
        )
        supply = Supply(batches)
        try:
            while await supply.any():
                key = rolling_shard_name(name, share.writer, first + len(entries))
                compressed = bool(share.compression.type)
                entries.append(await write_shard(publisher, key, supply, limits, compressed=compressed))
        except BaseException:
            await publisher.take_back("drop", "published")
            raise
    return entries


async def _run_of(folder: Storage, name: str, job_id: str, *, take_over: bool) -> tuple[str, Segment | None]:
    """Return the id of the next run, and `None`.

    If an earlier run has committed, return its id and its closing segment instead.
    """
    history = await load_history(folder, name)
    run = 1
    while True:
        writer = f"{job_id}_run{run}"
        closing = await in_thread(history.closing, writer)
        if closing is None:
            await settle_dead(folder, name, writer, take_over=take_over)
            closing = await load_closing(folder, name, writer)
        if closing is None or not closing.abandoned:
            return writer, closing
        run += 1


@contextmanager
def failures_logged(folder: Storage, header: JobHeader) -> Iterator[None]:
    """Log errors of a clean-up instead of raising them. `asyncrec.recover` removes unlisted objects that remain."""
    try:
        yield
    except Exception as error:
        path, writer = join(folder.root, header.name), header.writer
        _path_log.warning(path, "cleaning up after %s failed: %s", writer, error, writer=writer)
