"""A writer whose log another process has ended continues in a new log, with the records that it had not flushed.

A writer without a disk is considered dead if it changes nothing in the store for too long. Suppose the machine of
writer A sleeps for an hour. Process B ends A's log, and commits the records that A had flushed. Then A wakes up, with
records in memory that B does not have. If A failed, its program would have to write these records again, but the
program no longer has them. If A wrote every record that was not acknowledged to a new log, some could be stored twice:
if only the response to a flush was lost, B has already committed its records.

Instead, A reads the segment that ended its log. It shows how many records of each of A's shards are in the data set:
all of them if the segment names the shard, and otherwise those that B recovered from A's flush entries. The recovered
records are the first ones of their shard, because entries are created in order, and none can follow the fence. A writes
the remaining records to shards of a new log. If the segment was not made by a recovery, a person has given A up, so A
fails.

B may also have ended A's log to continue one of A's sources. A takes its sources again for its new log. If a source has
another owner by that time, A drops its records of that source, because the new owner reads them again
(`asyncrec._shards.writing.source_turns`).

If B dies after creating the fence but before ending the log, A waits as long as B did, ends the log itself, and
continues.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import anyio

from asyncrec._concurrency.tasks import TaskScope, in_thread
from asyncrec._path_log import PathLog
from asyncrec._records.writing.levels import Levels
from asyncrec._records.writing.write_batch import WriteBatch
from asyncrec._shards.commit.closing import load_closing
from asyncrec._shards.manifest.loading import load_history
from asyncrec._shards.manifest.names import maker_of, sequence_of
from asyncrec._shards.manifest.segment import Segment, ShardEntry
from asyncrec._shards.ownership.end_job import end_fenced
from asyncrec._shards.writing.checkpoints import tending
from asyncrec._shards.writing.job import Job
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec.errors import ConflictError, ObjectExistsError, TransientStorageError

_path_log = PathLog("asyncrec.shards")

# How many seconds to keep trying while the store is down, and how many to pause between attempts.
_PATIENCE, _PAUSE = 600.0, 1.0


@dataclass
class _End:
    """The state in which a log was ended.

    Attributes:
        listed: the shards of the job that are in the data set, or were before they were removed.
        adopted: for each other shard, by its number, how many of its flushed records are in the data set.
        entries: all shards that were committed by the log.
        is_given_up: whether a person ended the log without recovering its flushed records.
    """

    listed: frozenset[str]
    adopted: dict[int, int]
    entries: list[ShardEntry]
    is_given_up: bool

    @classmethod
    async def of(cls, job: Job, closing: Segment) -> _End:
        name, writer = job.header.name, job.header.writer
        adopted = {}
        for entry in closing.add:
            maker, _ = maker_of(name, entry.path) or ("", True)
            if maker is not None and maker.startswith(f"{writer}."):
                adopted[sequence_of(entry.path)] = entry.records
        by_path = {entry.path: entry for entry in (*job.manifest.entries, *closing.add)}
        history = await load_history(job.store, name)
        mine = [*job.fates, *(job.flush_log.shards if job.flush_log is not None else ())]
        listed = await in_thread(lambda: frozenset(filter(history.lists, mine)))
        return cls(listed, adopted, list(by_path.values()), "recovered_by" not in closing.extra)

    def stored(self, shard: str, records: int) -> int:
        """Return how many of the ``records`` records that the writer had accepted for a shard are in the data set."""
        return records if shard in self.listed else self.adopted.get(sequence_of(shard), 0)


@dataclass
class _Ended:
    """A job whose log was ended by another process.

    Attributes:
        error: the error that ended it.
        settled: an event that is set when it is known whether the writer can continue.
        end: the state in which the log was ended; `None` if the writer cannot continue.
    """

    error: Exception
    settled: anyio.Event
    end: _End | None = None


@asynccontextmanager
async def going_on(shards: OpenShards, begin: Callable[[], AbstractAsyncContextManager[Job]]) -> AsyncIterator[None]:
    """Let a writer that flushes to its store continue in a new log if its log is ended before the context exits.

    ``begin`` begins the job that has the new log.
    """
    if shards.job.flush_log is None:
        yield
        return
    succession = Succession(shards, begin)
    shards.coordinator.go_on = succession.go_on
    async with TaskScope() as scope:
        scope.start_soon(succession.run)
        try:
            yield
        finally:
            succession.close()


class Succession:
    """The successive logs of one writer. `run` is the task that begins and ends their jobs."""

    def __init__(self, shards: OpenShards, begin: Callable[[], AbstractAsyncContextManager[Job]]) -> None:
        self._shards = shards
        self._begin = begin
        self._changed = anyio.Event()
        self._turn = anyio.Lock()
        self._is_closed = self._has_told = False
        self._ended: dict[Job, _Ended] = {}

    async def go_on(self, job: Job, shard: str | None, levels: Levels, error: Exception) -> list[WriteBatch] | None:
        """Return the records of a failed shard to write again; `None` if the writer cannot continue.

        This is called after an object of the job has failed with ``error``.
        """
        if not (isinstance(error, ConflictError) and error.ended):
            return None
        if job not in self._ended:
            self._ended[job] = _Ended(error, anyio.Event())
            self._changed.set()
        ended = self._ended[job]
        await ended.settled.wait()
        acknowledgements, end = self._shards.acknowledgements, ended.end
        if end is None or end.is_given_up or job.flush_log is None:
            lost = end is not None  # the flushed records are lost, too
            self._tell_first(error, acknowledgements.first_uncommitted if lost else acknowledgements.last_spooled + 1)
            return None
        batches: list[WriteBatch] = []
        if shard is not None:
            flushed, batches, last = job.flush_log.shards.pop(shard).unstored()
            more = end.stored(shard, flushed + sum(batch.count for batch in batches)) - flushed
            assert more >= 0, "the recovery stored every flushed record"
            while batches and more >= batches[0].count:
                more -= batches.pop(0).count
            if batches and more:
                batches[0] = batches[0].without_first(more)
            safe = batches[0].first - 1 if batches else last
            levels.spooled(safe)
            levels.committed(safe)
            batches = self._shards.sources.continued(batches, levels)
            acknowledgements.changed()
            async with self._turn:
                for key in job.fates.those("published"):
                    if key in end.listed:
                        job.fates.move(key, "commit")
                # Now that the log has ended, no commit can name the shards that were published but not committed.
                await job.publisher.take_back("drop", "published")
        return batches

    def _tell_first(self, error: Exception, ticket: int) -> None:
        if ticket <= sys.maxsize and not self._has_told:
            self._has_told = True
            error.add_note(f"{self._shards.path}: the first record not stored has the ticket {ticket}")

    async def run(self) -> None:
        """Wait until a log is ended, and begin the next one. Repeat this until `close` is called."""
        async with AsyncExitStack() as stack:
            while not self._is_closed:
                await self._changed.wait()
                self._changed = anyio.Event()
                job = self._shards.job
                ended = self._ended.get(job)
                if self._is_closed or ended is None or ended.settled.is_set():
                    continue
                try:
                    end = await _end_of(job)
                    if not end.is_given_up:
                        await self._succeed(stack, job, end, ended.error)
                    ended.end = end
                except Exception as failure:
                    ended.error.add_note(f"{self._shards.path}: the writer could not continue in a new log: {failure}")
                finally:
                    ended.settled.set()

    async def _succeed(self, stack: AsyncExitStack, job: Job, end: _End, error: Exception) -> None:
        shards = self._shards
        if error.__cause__ is not None:
            error.__cause__.__traceback__ = None  # otherwise, its frames would keep a flush entry in memory
        new = await self._begun(stack)
        await shards.sources.take_again(new)
        if job.flush_log is not None:
            job.flush_log.stop(error)
            job.flush_log.room.close()
        shards.begin(new, earlier=end.entries)
        await stack.enter_async_context(tending(shards, recovers=False))
        message = "the writer was considered dead, and its log was ended; it continues as %s: %s"
        _path_log.warning(shards.path, message, new.header.writer, error, writer=job.header.writer)

    async def _begun(self, stack: AsyncExitStack) -> Job:
        """Begin the next job. Retry if the store is down or the id is taken."""
        until = anyio.current_time() + _PATIENCE
        while True:
            try:
                return await stack.enter_async_context(self._begin())
            except (TransientStorageError, ObjectExistsError):
                if anyio.current_time() > until:
                    raise
                await anyio.sleep(_PAUSE)

    def close(self) -> None:
        """Make `run` end the jobs that it has begun, and return."""
        self._is_closed = True
        self._changed.set()


async def _end_of(job: Job) -> _End:
    """Return the state in which a job's log was ended.

    If the log is not ended for too long, the process that created the fence must have died, so end the log.

    Raises:
        ConflictError, StorageError, ManifestError: the log could not be ended.
    """
    store, name, writer = job.store, job.header.name, job.header.writer
    begun = anyio.current_time()
    while True:
        waited = anyio.current_time() - begun
        try:
            if (closing := await load_closing(store, name, writer)) is not None:
                return await _End.of(job, closing)
            if waited > job.header.silent_after:
                await end_fenced(store, job.staging)
        except (TransientStorageError, ConflictError):
            if waited > max(_PATIENCE, 2 * job.header.silent_after):
                raise
        await anyio.sleep(_PAUSE)
