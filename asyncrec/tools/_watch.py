"""`watch` reports on a data set that is being written: its commits, the jobs at work, and their progress.

It reads the manifest, the marks of jobs and, on a disk, writers' status files (`asyncrec._shards.journal.status`). It
writes nothing. A writer without a disk has no status file, but its commits in the manifest show its progress. After the
first report, only new segments of the manifest are read.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import anyio
import numpy as np

from asyncrec._concurrency.tasks import in_thread
from asyncrec._records.reading.reader import open_reader_in
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.home import LocalHome, home_of
from asyncrec._shards.journal.remedies import command_for, recover_command
from asyncrec._shards.journal.status import JobStatus, read_status
from asyncrec._shards.manifest.manifest import Manifest
from asyncrec._shards.manifest.segment import ShardEntry
from asyncrec._shards.manifest.snapshot import ManifestFollower, dataset_at
from asyncrec._shards.ownership.census import FoundJob, JobState, jobs_in
from asyncrec._shards.ownership.marks import find_marks
from asyncrec._shards.spool.folder import is_spool
from asyncrec._shards.writing.telling import STATUS_SECONDS
from asyncrec.errors import DecodeError, FormatError, ObjectNotFoundError
from asyncrec.example._by_name import features_of, unknown_feature
from asyncrec.example._codec import decode_example
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._url import redact
from asyncrec.tools._watch_report import State, WatchedWriter, WatchReport

# If a writer has not updated its status for five intervals, its lock is checked. If the lock shows that the writer is
# alive, it was stopped or its event loop is blocked, so the last speed in its status is no longer valid.
_LATE_SECONDS = 5 * STATUS_SECONDS
# If a writer has no status yet, its lock is checked after this many seconds. Before its first status, a writer reads
# existing data, such as many keys.
_OPENING_SECONDS = 60.0


class Watch:
    """A data set or a spool that is watched, as opened by `open_watch`."""

    def __init__(
        self, path: str, folder: Storage | None, name: str, spool: LocalStorage | None, classes: ClassCounts | None
    ) -> None:
        self.path = path
        self.remote = spool is None and folder is not None and home_of(folder).folder is None
        self._folder = folder
        self._name = name
        self._spool = spool
        self._manifest = None if folder is None else ManifestFollower(folder, name, path=path)
        self._classes = classes
        self._seen: Manifest | None = None
        self._totals: tuple[int, int, str | None] = (0, 0, None)
        self._changed: dict[str, tuple[str, float]] = {}

    async def look(self) -> WatchReport:
        """Return a report on the current state.

        Raises:
            StorageError: the store cannot be read or listed.
            ManifestError: the manifest is damaged.
            ValueError: the data set has a schema without the feature ``by``.
        """
        # Read the jobs before the manifest, so that if a job ends in between, its records are found in the manifest.
        found = await self._jobs()
        manifest = await self._manifest.load() if self._manifest is not None else None
        if self._classes is not None and manifest is not None and self._folder is not None:
            await self._classes.count(self._folder, manifest)
        if manifest is not self._seen:
            self._seen, self._totals = manifest, await in_thread(_totals, manifest)
        records, size, last_commit = self._totals
        now = datetime.now(UTC)
        writers = [
            self._watched(header, state, status, now, manifest) for header, state, status in found if state != "ended"
        ]
        return WatchReport(
            path=self.path,
            time=now,
            there=manifest is not None or bool(writers),
            records=records,
            bytes=size,
            shards=len(manifest.shards) if manifest is not None else 0,
            last_commit=last_commit,
            writers=tuple(sorted(writers, key=lambda writer: writer.since)),
            classes=self._classes.most() if self._classes is not None else {},
        )

    def _watched(
        self, header: JobHeader, state: State, status: JobStatus | None, now: datetime, manifest: Manifest | None
    ) -> WatchedWriter:
        known = manifest.writers.get(header.writer) if manifest is not None else None
        last_commit = known.last_commit if known is not None else None
        return WatchedWriter(
            id=header.writer,
            kind=header.kind,
            state=state,
            host=header.host,
            pid=header.pid,
            since=header.since,
            spool=header.spool,
            status=status,
            quiet=_ago(last_commit or header.since, now) if status is None else self._told(status, now),
            records=known.records if known is not None else 0,
            last_commit=last_commit,
            recover=self._recover_command(header) if state == "dead" else "",
        )

    def _recover_command(self, header: JobHeader) -> str:
        if self._spool is not None:
            return command_for(header, self._spool.root)
        return recover_command("SPOOL", to=self.path) if header.spool else recover_command(self.path)

    async def _jobs(self) -> list[tuple[JobHeader, State | JobState, JobStatus | None]]:
        local = self._spool if self._spool is not None else home_of(self._folder).folder if self._folder else None
        found: list[tuple[JobHeader, State | JobState, JobStatus | None]] = []
        if local is not None:
            name = None if self._spool is not None else self._name
            for job in await in_thread(jobs_in, LocalHome(local), name):
                status = await in_thread(read_status, local, job.header)
                found.append((job.header, await self._state(job, status), status))
        if self._folder is not None:
            for mark in await find_marks(self._folder, self._name):
                found.append((mark, await in_thread(FoundJob(mark).state), None))
        return found

    async def _state(self, job: FoundJob, status: JobStatus | None) -> State | JobState:
        if status is not None and self._told(status, datetime.now(UTC)) <= _LATE_SECONDS:
            return "ending" if status.waiting_for == "end" else "at work"
        state = await in_thread(job.state)
        late = status is not None or _is_late(job.header, datetime.now(UTC))
        return "silent" if late and state in ("alive", "unknown") else state

    def _told(self, status: JobStatus, now: datetime) -> float:
        """Return a status's age by both machines' clocks or the time since it last changed, whichever is longer."""
        time, since = self._changed.get(status.writer, ("", 0.0))
        if time != status.time:
            since = anyio.current_time()
            self._changed[status.writer] = (status.time, since)
        return max(status.age(now), anyio.current_time() - since)


@asynccontextmanager
async def open_watch(
    path: str | os.PathLike[str],
    *,
    by: str | None = None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> AsyncIterator[Watch]:
    """Open a data set, which need not exist yet, or a spool, to watch it. The context manager returns a `Watch`.

    Args:
        by: a feature by whose values the first records of each new shard are counted.

    Raises:
        ValueError: the path has no name.
        StorageError: the store failed.
    """
    display_path = redact(os.fspath(path))
    async with AsyncExitStack() as stack:
        if storage is None and await in_thread(is_spool, path):
            yield Watch(display_path, None, "", LocalStorage(path), None)
            return
        options = None if storage_options is None else dict(storage_options)
        folder, name = await stack.enter_async_context(dataset_at(path, storage=storage, storage_options=options))
        yield Watch(display_path, folder, name, None, ClassCounts(by) if by is not None else None)


async def watch(
    path: str | os.PathLike[str],
    *,
    by: str | None = None,
    storage: Storage | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> WatchReport:
    """Examine a data set that is being written, or a spool, once. To do so repeatedly, use `open_watch`.

    Args:
        by: a feature by whose values the first records of the newest shards are counted.

    Raises:
        ObjectNotFoundError: neither a data set nor a job that makes a data set exists.
        ValueError: the data set has a schema without the feature ``by``.
    """
    async with open_watch(path, by=by, storage=storage, storage_options=storage_options) as watched:
        report = await watched.look()
    if not report.there:
        raise ObjectNotFoundError(
            f"{report.path}: there is no data set here, and no writer is creating one; pass the folder and name of "
            "a data set, without the shard numbers"
        )
    return report


def _is_late(header: JobHeader, now: datetime) -> bool:
    """Return whether a job should have a status by now. A job with a single commit, such as a copy, never has one."""
    return bool(header.since) and header.kind != "whole" and _ago(header.since, now) > _OPENING_SECONDS


def _ago(time: str, now: datetime) -> float:
    """Return the seconds from ``time`` (by any machine's clock) to ``now``, or infinity if ``time`` is empty."""
    return max(0.0, (now - datetime.fromisoformat(time)).total_seconds()) if time else math.inf


def _totals(manifest: Manifest | None) -> tuple[int, int, str | None]:
    """Return the number of records and bytes in a manifest, and the time of its last commit. Blocks."""
    if manifest is None:
        return 0, 0, None
    last = max((each.last_commit for each in manifest.writers.values()), default=None)
    return manifest.records, manifest.bytes, last


# The number of records to read from each shard. It is small, so that a report is fast and does not slow down writers.
_RECORDS = 1000
# The number of shards to read for one report, the newest first.
_SHARDS = 4
# The maximum number of values to count separately. If a feature, such as a URL, has more, the others share one count.
_VALUES = 1000
_SHOWN = 20
_LONGEST = 40
_OTHERS = "others"


class ClassCounts:
    """Counts the records that were read, grouped by their value of ``feature``."""

    def __init__(self, feature: str) -> None:
        self._feature = feature
        self._counts: Counter[str] = Counter()
        self._seen: set[str] = set()

    async def count(self, folder: Storage, manifest: Manifest) -> None:
        """Read and count records from the newest shards that were added since the last call.

        Raises:
            ValueError: the data set's schema does not have the feature.
        """
        known = features_of(manifest.schema)
        if known is not None and self._feature not in known:
            raise unknown_feature(self._feature, known, manifest.path)
        new = await in_thread(self._new, manifest)
        for entry in new[:_SHARDS]:
            try:
                async with open_reader_in(folder, entry.path, max_record_bytes=entry.max_record_bytes) as reader:
                    left = _RECORDS
                    while left > 0 and (batch := await reader.next_batch()):
                        await in_thread(self._add, batch.records[:left])
                        left -= len(batch.records)
            except (FormatError, ObjectNotFoundError):
                continue  # the shard is damaged, which `verify` reports, or it has just been replaced

    def most(self) -> dict[str, int]:
        """Return the most frequent values, and the number of records with each value."""
        return dict(self._counts.most_common(_SHOWN))

    def _new(self, manifest: Manifest) -> list[ShardEntry]:
        new = [entry for entry in manifest.shards if entry.path not in self._seen]
        self._seen = {entry.path for entry in manifest.shards}
        return sorted(new, key=lambda entry: entry.committed or "", reverse=True)

    def _add(self, records: list[bytes]) -> None:
        for record in records:
            value = self._value(record)
            if value not in self._counts and len(self._counts) >= _VALUES:
                value = _OTHERS
            self._counts[value] += 1

    def _value(self, record: bytes) -> str:
        try:
            values = decode_example(record).get(self._feature)
        except DecodeError:
            return "not an Example"
        if values is None:
            return "absent"
        first = values[0] if isinstance(values, list | np.ndarray) and len(values) else values
        text = first.decode(errors="backslashreplace") if isinstance(first, bytes) else str(first)
        return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
