"""`telling`: a writer with a disk reports its progress every few seconds while it is open, for ``asyncrec watch``.

It costs nothing per record: a task of its own looks at the counts that are kept anyway, and writes them to a file
beside the job's header (`asyncrec._shards.journal.status`). A report that cannot be written is not a failure of the
writer: the next one is tried as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import anyio

from asyncrec._concurrency.tasks import TaskScope, in_thread, surely_in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.journal.status import JobStatus, StatusFile, WaitingFor
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.totals import ShardedWriterStats
from asyncrec.errors import ArgumentValueError

_path_log = PathLog("asyncrec.shards")

# A person who watches sees that it moves; one small write.
STATUS_SECONDS = 2.0
# Of the time, by all callers together: below it, waiting is the ordinary give and take.
_WAITS = 0.1


@asynccontextmanager
async def telling(shards: OpenShards, seconds: float | None) -> AsyncIterator[Teller]:
    """Report the progress of a writer with a disk every ``seconds`` until the context ends; `None` for never."""
    if seconds is not None and not seconds > 0:
        raise ArgumentValueError(f"status_seconds is {seconds}; it is greater than 0, or None for never")
    teller = Teller(shards)
    journal = shards.job.journal
    if seconds is None or journal is None:
        yield teller
        return
    file = StatusFile(journal.folder, shards.job.header)
    try:
        async with TaskScope() as scope:
            scope.start_soon(teller.tell, file, seconds)
            try:
                yield teller
            finally:
                teller.end()
    finally:
        await surely_in_thread(file.close)


class Teller:
    """The task that reports the progress of one writer.

    Attributes:
        ending: the writer's body has ended.
    """

    def __init__(self, shards: OpenShards) -> None:
        self.ending = False
        self._shards = shards
        self._ended = anyio.Event()

    def end(self) -> None:
        """Report nothing more."""
        self._ended.set()

    async def tell(self, file: StatusFile, seconds: float) -> None:
        """Report until `end`."""
        changes = _Changes(self._shards, seconds)
        while await self._pause(seconds):
            try:
                await in_thread(file.write, changes.status(ending=self.ending))
            except OSError as error:
                writer = self._shards.job.header.writer
                _path_log.debug(self._shards.path, "its status is not written: %s", error, writer=writer)

    async def _pause(self, seconds: float) -> bool:
        """Wait; returns whether there is something to report then."""
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
