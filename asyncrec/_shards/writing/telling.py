"""`telling`: while a writer is open it says now and then how it gets on, for ``asyncrec watch``.

It costs nothing per record: a task of its own looks at the counts that are kept anyway. What it writes is beside what
marks the job (`asyncrec._shards.journal.status`), on a disk every ``seconds``, in a store at most every half minute. A
status that cannot be told is no fault of the writer's: it is told later, or not at all.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio

from asyncrec._concurrency.deadline import Deadline
from asyncrec._concurrency.tasks import TaskScope, in_thread, surely_in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.journal.status import JobStatus, StatusFile, WaitingFor
from asyncrec._shards.manifest.names import status_key
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.totals import ShardedWriterStats
from asyncrec.errors import ArgumentValueError

_path_log = PathLog("asyncrec.shards")

# A person who watches sees that it moves; one small write.
STATUS_SECONDS = 2.0
# A request costs money: 2,880 a day are a cent or two.
_STORE_SECONDS = 30.0
# What is under way at the exit may take so long; then it is given up, and `recover` removes it if it comes after all.
_LAST_SECONDS = 2.0
# Of the time, by all callers together: below it, waiting is the ordinary give and take.
_WAITS = 0.1


@asynccontextmanager
async def telling(shards: OpenShards, seconds: float | None) -> AsyncIterator[Teller]:
    """Tell the status of a writer every so many seconds, `None` for never, until the context ends."""
    if seconds is not None and not seconds > 0:
        raise ArgumentValueError(f"status_seconds is {seconds}; it is greater than 0, or None for never")
    teller = Teller(shards)
    files, header = shards.job.staging.files, shards.job.header
    if seconds is None:
        yield teller
        return
    file = None if files is None else StatusFile(files.folder, header)
    try:
        async with TaskScope() as scope:
            if file is not None:
                scope.start_soon(teller.tell_file, file, seconds)
            if header.life:  # it has a mark in the store
                scope.start_soon(teller.tell_store, max(seconds, _STORE_SECONDS))
            try:
                yield teller
            finally:
                teller.end()
    finally:
        if file is not None:
            await surely_in_thread(file.close)


class Teller:
    """The tasks that tell the status of one writer.

    Attributes:
        ending: the writer's body has ended.
    """

    def __init__(self, shards: OpenShards) -> None:
        self.ending = False
        self._shards = shards
        self._ended = anyio.Event()
        self._deadline = Deadline()

    def end(self) -> None:
        """Tell nothing more; what is being told has a moment left."""
        self._ended.set()
        hurries = self._shards.job.deadline.at < math.inf
        self._deadline.bring(anyio.current_time() + (0 if hurries else _LAST_SECONDS))

    async def tell_file(self, file: StatusFile, seconds: float) -> None:
        """Tell it on the disk."""
        changes = _Changes(self._shards, seconds)
        while await self._pause(seconds):
            try:
                await in_thread(file.write, changes.status(ending=self.ending))
            except OSError as error:
                self._log_untold(error)

    def _log_untold(self, error: Exception) -> None:
        writer = self._shards.job.header.writer
        _path_log.debug(self._shards.path, "its status is not told: %s", error, writer=writer)

    async def tell_store(self, seconds: float) -> None:
        """Tell it in the store."""
        job = self._shards.job
        key = status_key(job.header.name, job.header.writer)
        changes = _Changes(self._shards, seconds)
        while await self._pause(seconds):
            status = changes.status(ending=self.ending)
            with self._deadline.within(math.inf, shield=False):
                try:
                    await job.store.put(key, status.encode())
                except Exception as error:  # whatever a backend makes of it
                    self._log_untold(error)

    async def _pause(self, seconds: float) -> bool:
        """Wait; returns whether there is something to tell then."""
        with anyio.move_on_after(seconds):
            await self._ended.wait()
        return not self._ended.is_set()


class _Changes:
    """What a writer has done since it was last looked at."""

    def __init__(self, shards: OpenShards, seconds: float) -> None:
        self._shards = shards
        self._seconds = seconds
        self._before = shards.stats(0)
        self._at = anyio.current_time()

    def status(self, *, ending: bool) -> JobStatus:
        shards, before = self._shards, self._before
        now, at = shards.stats(0), anyio.current_time()
        seconds = max(at - self._at, 1e-6)
        self._before, self._at = now, at
        return JobStatus(
            writer=shards.job.header.writer,
            time=datetime.now(UTC).isoformat(),
            every=self._seconds,
            waiting_for=waiting_for(
                before, now, seconds, full=shards.spool_is_full, failing=shards.store_fails, ending=ending
            ),
            records_per_second=(now.records - before.records) / seconds,
            bytes_per_second=(now.bytes - before.bytes) / seconds,
            open_shards=len(shards.queues),
            taken_records=now.records,
            taken_bytes=now.bytes,
            committed_records=now.committed_records,
            committed_bytes=now.committed_bytes,
            committed_shards=now.committed_shards,
            buffered_bytes=now.buffered_bytes,
            memory_limit=now.memory_limit,
            oldest_uncommitted_seconds=now.oldest_uncommitted_seconds,
            oldest_buffered_seconds=now.oldest_buffered_seconds,
            spool_bytes=now.spool_bytes,
            upload_retries=now.upload_retries,
        )


def waiting_for(
    before: ShardedWriterStats,
    now: ShardedWriterStats,
    seconds: float,
    *,
    full: bool,
    ending: bool,
    failing: bool = False,
) -> WaitingFor:
    """Tell what kept a writer from being faster, from its counts at the beginning and the end of so many seconds.

    Args:
        full: its spool is, now.
        failing: an upload waits to be tried again, now.
        ending: its body has ended.
    """
    if ending:
        return "end"
    if full:
        return "spool"
    if failing or now.upload_retries > before.upload_retries:
        return "store"
    if now.callers_waiting or now.seconds_waiting - before.seconds_waiting > _WAITS * seconds:
        return "room"
    return "records" if now.records == before.records else "nothing"
