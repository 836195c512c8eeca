"""`WatchReport` and `WatchedWriter` describe a data set and its writers at one moment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from asyncrec._shards.journal.status import JobStatus
from asyncrec.tools._report_json import json_of

State = Literal["at work", "ending", "silent", "alive", "unknown", "dead"]

# The attributes of a status that are valid only as long as the writer keeps updating its status.
_NOW = "bytes_per_second waiting_for"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWriter:
    """A job that has not ended.

    Attributes:
        state: ``"at work"``, or ``"ending"`` while the writer publishes its remaining records, both according to its
            status on the disk. ``"silent"`` if the status is older than ten seconds, or does not exist after the first
            minute. A silent writer on this machine is alive but stopped or blocked; on another machine it may be dead.
            A writer without a status is ``"alive"`` if a lock proves it, or ``"unknown"`` if this machine cannot
            determine its state. ``"dead"`` if a lock proves it; `asyncrec.recover` then recovers or ends the job.
        status: the writer's last status on its disk; `None` before the first status.
        quiet: the seconds since that status; without a status, since the writer's last commit or its start.
        records: the number of the writer's records in the manifest.
        last_commit: the time of the writer's last commit, by its machine's clock; `None` before its first commit.
        recover: for a dead writer, the command that recovers its records, in quotation marks. ``SPOOL`` in the command
            is a placeholder for a folder that is not known on this machine.
    """

    id: str
    kind: str
    state: State
    host: str
    pid: int
    since: str
    spool: bool
    status: JobStatus | None
    quiet: float
    records: int
    last_commit: str | None = None
    recover: str = ""

    @property
    def uncommitted_records(self) -> int:
        """The number of records that the writer has accepted but not yet committed."""
        status = self.status
        return 0 if status is None else max(0, status.taken_records - max(status.committed_records, self.records))

    @property
    def at_risk(self) -> float:
        """The age in seconds of the oldest record that would be lost by a kill; 0 if no record would be lost."""
        if self.status is None or not self.status.oldest_buffered_seconds:
            return 0.0
        return self.status.oldest_buffered_seconds + self.quiet

    @property
    def idle(self) -> float:
        """The seconds since the writer last accepted a record; without a status, since its last commit or its start."""
        return self.quiet if self.status is None else self.status.idle_seconds + self.quiet

    @property
    def tells(self) -> JobStatus | None:
        """The writer's status, or `None` if the status is no longer valid."""
        return self.status if self.state in ("at work", "ending") else None

    @property
    def records_per_second(self) -> float | None:
        """The writer's speed according to its status; without a status, the average from its start to its last commit.

        `None` if the speed is unknown or the writer is dead.
        """
        if self.tells is not None:
            return self.tells.records_per_second
        if self.status is not None or self.state in ("silent", "dead") or not self.since or self.last_commit is None:
            return None
        took = (datetime.fromisoformat(self.last_commit) - datetime.fromisoformat(self.since)).total_seconds()
        return self.records / took if took > 0 else None

    def to_json(self) -> dict[str, Any]:
        content = {
            **json_of(self, "id kind state host pid since spool", since=self.since or None),
            "committed_records": self.records,
            "idle_seconds": None if math.isinf(self.idle) else round(self.idle, 3),
            "last_commit": self.last_commit,
            "quiet_seconds": None if math.isinf(self.quiet) else round(self.quiet, 3),
            "recover": self.recover or None,
            **json_of(self, "records_per_second"),
        }
        if self.status is not None:
            unknown = {} if self.tells is not None else dict.fromkeys(_NOW.split())
            content |= json_of(
                self.status,
                f"taken_records taken_bytes committed_bytes {_NOW} open_shards buffered_bytes memory_limit "
                "spool_bytes upload_retries oldest_uncommitted_seconds oldest_buffered_seconds",
                **unknown,
            )
        return content


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """The result of `watch`.

    Attributes:
        time: the time of the report, with a time zone.
        there: whether a data set, or a job that makes a data set, exists.
        writers: the jobs that have not ended.
        last_commit: the time of the last commit.
        classes: the number of records read with each value of the feature, the most frequent value first.
    """

    path: str
    time: datetime
    there: bool
    records: int
    bytes: int
    shards: int
    last_commit: str | None
    writers: tuple[WatchedWriter, ...]
    classes: Mapping[str, int]

    @property
    def uncommitted_records(self) -> int:
        """The number of records that live writers have accepted but not yet committed."""
        return sum(writer.uncommitted_records for writer in self.writers if writer.state != "dead")

    @property
    def records_per_second(self) -> float | None:
        """The sum of the known speeds of all writers that are not dead; `None` if no speed is known."""
        return self._speed([writer.records_per_second for writer in self.writers if writer.state != "dead"])

    @property
    def bytes_per_second(self) -> float | None:
        """Like `records_per_second`, but in bytes, for the writers with a valid status."""
        told = [writer.tells for writer in self.writers if writer.state != "dead"]
        return self._speed([None if status is None else status.bytes_per_second for status in told])

    @property
    def at_risk(self) -> float:
        """The age in seconds of the oldest record that would be lost if all writers were killed."""
        return max((writer.at_risk for writer in self.writers if writer.state != "dead"), default=0.0)

    def older_than(self, seconds: float) -> tuple[WatchedWriter, ...]:
        """Return the writers for which `WatchedWriter.at_risk` or ``quiet`` is more than ``seconds``.

        Dead writers are included. A writer without a disk is quiet from one commit to the next.
        """
        return tuple(writer for writer in self.writers if max(writer.at_risk, writer.quiet) > seconds)

    def idle_for(self, seconds: float) -> tuple[WatchedWriter, ...]:
        """Return the writers, alive or not, that have accepted no record for more than ``seconds``.

        Writers that are ending are not included.
        """
        return tuple(writer for writer in self.writers if writer.state != "ending" and writer.idle > seconds)

    @staticmethod
    def _speed(speeds: Sequence[float | None]) -> float | None:
        known = [speed for speed in speeds if speed is not None]
        return None if speeds and not known else sum(known)

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "path time there records bytes shards uncommitted_records records_per_second bytes_per_second "
            "oldest_buffered_seconds last_commit writers classes",
            oldest_buffered_seconds=round(self.at_risk, 3),
        )
