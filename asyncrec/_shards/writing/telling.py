"""`telling` reports the progress of a writer that has a local disk every few seconds, for ``asyncrec watch``.

Reporting adds no work per record: a separate task reads counts that are kept anyway, and writes them to a file next to
the job's header (`asyncrec._shards.journal.status`). If a report cannot be written, the writer continues, and tries
again at the time of the next report.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

import anyio

from asyncrec._concurrency.tasks import TaskScope, in_thread, surely_in_thread
from asyncrec._path_log import PathLog
from asyncrec._shards.journal.status import JobStatus, StatusFile, WaitingFor
from asyncrec._shards.writing.open_shards import OpenShards
from asyncrec._shards.writing.totals import ShardedWriterStats

_path_log = PathLog("asyncrec.shards")

# Often enough for a person to see progress. Each report is one small write.
STATUS_SECONDS = 2.0
# The attributes of a status that are copied from the writer's statistics.
_COUNTS = {each.name for each in fields(ShardedWriterStats)} & {each.name for each in fields(JobStatus)}
# It is normal if all callers together spend less than this fraction of the time waiting.
_WAITS = 0.1


@asynccontextmanager
async def telling(shards: OpenShards) -> AsyncIterator[Teller]:
    """Report the progress of a writer that has a local disk until the context exits."""
    teller = Teller(shards)
    files = shards.job.staging.files
    if files is None:
        yield teller
        return
    file = StatusFile(files.folder, shards.job.header)
    try:
        async with TaskScope() as scope:
            scope.start_soon(teller.tell, file)
            try:
                yield teller
            finally:
                scope.cancel()
    finally:
        await surely_in_thread(file.close)


class Teller:
    """The task that reports the progress of one writer.

    Attributes:
        ending: whether the body of the writer's ``async with`` block has finished.
    """

    def __init__(self, shards: OpenShards) -> None:
        self.ending = False
        self._shards = shards
        self._before = shards.stats(0)
        self._at = self._took_at = anyio.current_time()

    async def tell(self, file: StatusFile) -> None:
        """Report repeatedly until cancelled."""
        while True:
            await anyio.sleep(STATUS_SECONDS)
            try:
                await in_thread(file.write, self._status())
            except OSError as error:
                writer = self._shards.job.header.writer
                _path_log.debug(self._shards.path, "the writer's status could not be written: %s", error, writer=writer)

    def _status(self) -> JobStatus:
        """Return the writer's progress since the last report, and its state."""
        shards, before = self._shards, self._before
        now, at = shards.stats(0), anyio.current_time()
        seconds = max(at - self._at, 1e-6)
        self._before, self._at = now, at
        if now.records > before.records:
            self._took_at = at
        full, failing = shards.spool_is_full, shards.store_fails
        counts: dict[str, Any] = {name: getattr(now, name) for name in _COUNTS}
        return JobStatus(
            writer=shards.job.header.writer,
            time=datetime.now(UTC).isoformat(),
            waiting_for=waiting_for(before, now, seconds, full=full, failing=failing, ending=self.ending),
            records_per_second=(now.records - before.records) / seconds,
            bytes_per_second=(now.bytes - before.bytes) / seconds,
            idle_seconds=at - self._took_at,
            open_shards=len(shards.queues),
            taken_records=now.records,
            taken_bytes=now.bytes,
            **counts,
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
    """Return what kept a writer from being faster, given its counts before and after an interval of ``seconds``.

    Args:
        full: whether the writer's spool is full now.
        failing: whether an upload is waiting to be retried.
        ending: whether the body of the writer's ``async with`` block has finished.
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
