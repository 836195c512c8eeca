"""`WatchReport` and `WatchedWriter`: what `asyncrec.tools.watch` saw at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from asyncrec._shards.journal.status import JobStatus
from asyncrec.tools._report_json import json_of

State = Literal["at work", "ending", "silent", "dead"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWriter:
    """A job that has not ended.

    Attributes:
        state: ``"at work"``, or ``"ending"``: publishing what is left. ``"dead"``: a lock proves it, and
            `asyncrec.recover` sees to what it left. ``"silent"``: it is on another machine, and has said nothing for
            too long, or never.
        status: what it said of itself last, and ``told`` seconds ago; `None` where it has not.
        records: of it in the manifest.
    """

    id: str
    kind: str
    state: State
    host: str
    pid: int
    since: str
    spool: bool
    status: JobStatus | None
    told: float
    records: int

    @property
    def uncommitted_records(self) -> int:
        """Taken, and not in the manifest."""
        status = self.status
        return 0 if status is None else max(0, status.taken_records - max(status.committed_records, self.records))

    @property
    def at_risk(self) -> float:
        """How many seconds ago the oldest record was taken that a kill would lose; 0 where there is none."""
        if self.status is None or not self.status.oldest_buffered_seconds:
            return 0.0
        return self.status.oldest_buffered_seconds + self.told

    @property
    def tells(self) -> JobStatus | None:
        """Its status, where it still holds."""
        return self.status if self.state in ("at work", "ending") else None

    def to_json(self) -> dict[str, Any]:
        content = {
            **json_of(self, "id kind state host pid since spool", since=self.since or None),
            "committed_records": self.records,
            "told_seconds_ago": None if self.status is None else round(self.told, 3),
        }
        if self.status is not None:
            content |= json_of(
                self.status,
                "taken_records taken_bytes committed_bytes records_per_second bytes_per_second waiting_for open_shards "
                "buffered_bytes memory_limit spool_bytes upload_retries oldest_uncommitted_seconds "
                "oldest_buffered_seconds",
            )
        return content


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchReport:
    """What `watch` saw at one moment.

    Attributes:
        time: of the look, with a time zone.
        there: whether there is a data set, or a job that makes one.
        writers: the jobs that have not ended.
        last_commit: the time of the newest segment.
        classes: of the records that were looked at, how many have which value of the feature asked for; most first.
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
    def _told(self) -> list[JobStatus]:
        return [writer.tells for writer in self.writers if writer.tells is not None]

    @property
    def uncommitted_records(self) -> int:
        """Taken by writers that live, and not in the manifest."""
        return sum(writer.uncommitted_records for writer in self.writers if writer.tells is not None)

    @property
    def records_per_second(self) -> float:
        return sum(status.records_per_second for status in self._told)

    @property
    def bytes_per_second(self) -> float:
        return sum(status.bytes_per_second for status in self._told)

    @property
    def at_risk(self) -> float:
        """How many seconds ago the oldest record of all was taken that a kill would lose."""
        return max((writer.at_risk for writer in self.writers if writer.tells is not None), default=0.0)

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "path time there records bytes shards uncommitted_records records_per_second bytes_per_second "
            "oldest_buffered_seconds last_commit writers classes",
            oldest_buffered_seconds=round(self.at_risk, 3),
        )
