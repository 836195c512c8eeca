"""`open_joint_job` begins a job whose shards are made by many processes and committed by one.

    async with open_joint_job("s3://crawl/pages", job_id="2026-11-22") as job:        # in the driver
        if job.committed is None:                                                     # otherwise a run has committed
            ... send job.share to the workers; each returns the entries of open_share
            await job.commit(entries)

Each attempt has its own names, which contain the job's id. An object that no commit names does not count, such as a
shard of an attempt that died or ran twice, or of a failed run. The process that ends the job deletes such objects, and
`verify --delete` deletes those that appear later.

A ``job_id`` makes a run repeatable. Each run is a job of its own, ``<job_id>_run1``, ``_run2``..., and only one of them
ever commits. A new run first finds out how the earlier runs ended. It gives up a dead run behind a tombstone, and a
detached run (`detached_job`) even if it is alive. If the answer to a commit was lost, the next run finds the commit,
and adds nothing.
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

_MOST_ID = 50  # of the 64 characters of a writer's id, so that the number of a run fits
_MEMORY_LIMIT = 256 << 20
# A shard's number is made of the numbers of its part, of the attempt, and in the attempt, so names sort by part.
_PARTS, _ATTEMPTS, _SHARDS = 10**7, 10**12, 10**5


@dataclass(frozen=True, slots=True, kw_only=True)
class JobShare:
    """The information that a process needs to make shards for a job. Picklable; only ``path`` may have credentials.

    Attributes:
        path: the path of the data set; absolute if it is local.
        writer: the id in the names of the shards.
        compression, index: the options of the shards.
    """

    path: str = field(repr=False)
    writer: str
    compression: CompressionOptions
    index: bool


class JointJob:
    """A job whose shards are made by many processes, begun by `open_joint_job`.

    Attributes:
        share: the share to pass to `open_share`, in any process.
        committed: the shards that the job, or an earlier run with its id, has committed; `None` until then.
        job: the job; `None` if an earlier run has committed.
    """

    def __init__(self, share: JobShare, job: Job | None, committed: tuple[ShardEntry, ...] | None) -> None:
        self.share = share
        self.committed = committed
        self.job = job

    async def commit(self, entries: Collection[ShardEntry], *, records: int | None = None) -> None:
        """Commit these shards in one step, and end the job. Call this only once.

        Args:
            entries: the entries of all attempts that count, from `ShareWriter.entries`.
            records: the total number of records that the shards must have, if it is known.

        Raises:
            DatasetError: the shards do not have ``records`` records; nothing is committed.
            ConflictError: the job was given up, or another job replaced the data set; nothing is committed.
            StorageError: nothing is committed, unless a note says that this is unknown; the next run finds out.
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
        in_order = sorted(entries, key=lambda entry: entry.path)  # the order of the manifest
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
    """Begin a job, unless an earlier run has committed. If the context exits without a commit, the job is given up.

    Args:
        path: a folder that every process can reach, and the data set's name in it.
        job_id: an id for the work. A second run with this id adds nothing to the commit of an earlier run.
        mode: ``"append"``, ``"new"`` or ``"replace"``, as for `asyncrec.open_sharded_writer`.
        take_over: whether to declare an earlier run on another machine dead if its state is unknown here.
        detached: whether no process will hold the job, so that no lock proves it alive or dead.
        schema, metadata: stored in the manifest.
        compression, index: options of the shards.
        storage_options: options for the backend.

    Raises:
        ConflictError: a run with this id is alive, or may be alive on another machine.
        ObjectExistsError: with ``mode="new"``, the data set exists.
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
        entries: the entries of the shards, for `JointJob.commit`, once the context has exited cleanly.
    """

    def __init__(self) -> None:
        self.entries: list[ShardEntry] = []
        self._batches = Handover[KeyedBatch](1, "the share")
        self._error: Exception | None = None
        self._ended = anyio.Event()

    async def write(self, records: list[bytes], keys: list[bytes] | None = None) -> None:
        """Write records, with the digests of their keys if they have keys. After an error, every call raises it."""
        if self._error is not None:
            raise self._error
        await self._batches.put(KeyedBatch(records, keys))

    async def run(self, share: JobShare, part: int, limits: Limits, storage_options: dict[str, Any] | None) -> None:
        """Make the shards. This is the body of a task."""
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
        """Wait until all shards are published."""
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
    """Make shards for a job. They are part of the data set once `JointJob.commit` has committed their entries.

    Each attempt has its own names, even if several run at the same time. An attempt that fails deletes its shards.

    Args:
        share: the share of the job.
        part: a number by which the shards are ordered in the data set.
        max_shard_bytes, max_shard_records: the limits of a shard; 256 MiB if neither is passed.
        storage_options: options for the backend.
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
    """Return the id of the next run and `None`, or the id and the closing segment of the run that has committed."""
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
    """Log errors of a clean-up rather than raise them. `asyncrec.recover` removes the unlisted objects that remain."""
    try:
        yield
    except Exception as error:
        path, writer = join(folder.root, header.name), header.writer
        _path_log.warning(path, "cleaning up after %s failed: %s", writer, error, writer=writer)
