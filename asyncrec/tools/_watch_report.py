"""`WatchReport` and `WatchedWriter`: what `asyncrec.tools.watch` saw at one moment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from asyncrec._shards.journal.status import JobStatus
from asyncrec.tools._report_json import json_of

State = Literal["at work", "ending", "silent", "dead"]

# What a status says that holds only while the writer tells.
_SPEED = "records_per_second bytes_per_second waiting_for"


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedWriter:
    """A job that has not ended.

    Attributes:
        state: ``"at work"``, or ``"ending"``: publishing what is left. ``"dead"``: a lock proves it, and
            `asyncrec.recover` sees to what it left. ``"silent"``: it has said nothing for three times as long as it
            promised; on this machine it lives, and is stopped or held up; on another one it may be dead.
        status: what it said of itself last, and ``told`` seconds ago; `None` where it has not.
        records: of it in the manifest.
        recover: for a dead writer, the command that sees to what it left, in quotation marks; ``SPOOL`` in it stands
            for a folder that is not known here.
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
    recover: str = ""

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
            "recover": self.recover or None,
        }
        if self.status is not None:
            unknown = {} if self.tells is not None else dict.fromkeys(_SPEED.split())
            content |= json_of(
                self.status,
                f"taken_records taken_bytes committed_bytes {_SPEED} open_shards buffered_bytes memory_limit "
                "spool_bytes upload_retries oldest_uncommitted_seconds oldest_buffered_seconds",
                **unknown,
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
        """Taken by writers that are not dead, and not in the manifest."""
        return sum(writer.uncommitted_records for writer in self.writers if writer.state != "dead")

    @property
    def records_per_second(self) -> float | None:
        """Of the writers that tell; `None`, which is unknown, where only silent ones are left."""
        return self._speed([status.records_per_second for status in self._told])

    @property
    def bytes_per_second(self) -> float | None:
        """As `records_per_second`."""
        return self._speed([status.bytes_per_second for status in self._told])

    @property
    def at_risk(self) -> float:
        """How many seconds ago the oldest record of all was taken that a kill would lose."""
        return max((writer.at_risk for writer in self.writers if writer.state != "dead"), default=0.0)

    def older_than(self, seconds: float) -> tuple[WatchedWriter, ...]:
        """The writers whose last word, or whose oldest record that a kill would lose, is older; dead ones, too.

        A writer that has told nothing yet counts from its beginning.
        """
        return tuple(writer for writer in self.writers if max(writer.at_risk, self._silence(writer)) > seconds)

    def _silence(self, writer: WatchedWriter) -> float:
        if writer.status is not None:
            return writer.told
        return (self.time - datetime.fromisoformat(writer.since)).total_seconds() if writer.since else math.inf

    def _speed(self, speeds: Sequence[float]) -> float | None:
        silent = any(writer.state == "silent" for writer in self.writers)
        return None if silent and not speeds else sum(speeds)

    def to_json(self) -> dict[str, Any]:
        return json_of(
            self,
            "path time there records bytes shards uncommitted_records records_per_second bytes_per_second "
            "oldest_buffered_seconds last_commit writers classes",
            oldest_buffered_seconds=round(self.at_risk, 3),
        )
