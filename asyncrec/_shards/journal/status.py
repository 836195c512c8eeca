"""`JobStatus`: a report on a writer's progress. A writer with a disk writes one every few seconds for ``watch``.

The status is a file next to the job's header (`status_path`), and is overwritten in place. Nothing depends on it: the
file is never fsynced, and may be missing, old or cut off. The process that removes the header removes the status first.
A status is untrusted input, so a malformed one is ignored.

A writer without a disk does not write a status. In a large crawl, most requests to the store would be for statuses, and
the writer's commits already show its progress.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, Literal, get_args

from asyncrec._framing.crc import crc32c
from asyncrec._shards.journal.header import JobHeader
from asyncrec.errors import StorageError
from asyncrec.storage._local.disk import read_at
from asyncrec.storage._local.opening import create_file, open_own
from asyncrec.storage._local.storage import LocalStorage, mapped_errors

WaitingFor = Literal["nothing", "records", "room", "spool", "store", "end"]

# Ten times the size of an ordinary status.
_MOST_BYTES = 8 << 10

_VERSION = "asyncrec status 1"


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """The state of one writer at one moment, as reported by the writer.

    Attributes:
        writer: the id of the writer.
        time: the time of the status, by the clock of the writer's machine.
        waiting_for: why the writer is not faster. ``"records"``: no records arrived. ``"room"``: callers are waiting,
            because records arrive faster than the disk or store can accept them. ``"spool"``: the spool is full.
            ``"store"``: requests to the store are failing and being retried. ``"end"``: the body of the ``async with``
            has finished, and the remaining records are being published.
        records_per_second, bytes_per_second: the rates since the previous report, or since the writer began.
        idle_seconds: the time since the last record was accepted, or since the writer began. It may be too low by up
            to the interval between two reports.
        open_shards: the maximum number of shards that may be open at once.
        taken_records, taken_bytes: the totals accepted. Bytes are counted in frames, before compression.
    For the other attributes, see `asyncrec.stats.ShardedWriterStats`.
    """

    writer: str
    time: str
    waiting_for: WaitingFor
    records_per_second: float
    bytes_per_second: float
    open_shards: int
    taken_records: int
    taken_bytes: int
    committed_records: int
    committed_bytes: int
    committed_shards: int
    buffered_bytes: int
    memory_limit: int
    oldest_uncommitted_seconds: float
    oldest_buffered_seconds: float
    idle_seconds: float
    spool_bytes: int
    upload_retries: int

    def age(self, now: datetime) -> float:
        """Return the age of the status in seconds. ``now`` and the writer's time may come from different clocks."""
        return max(0.0, (now - datetime.fromisoformat(self.time)).total_seconds())

    def encode(self) -> bytes:
        """Encode the status as a line with a checksum, because it may be read while it is being overwritten."""
        content = json.dumps({"format": _VERSION, **asdict(self)}, separators=(",", ":")).encode()
        return b"%08x %s\n" % (crc32c(content), content)

    @classmethod
    def decode(cls, content: bytes) -> JobStatus | None:
        """Parse a line; return `None` if it is not a status or is only partly written."""
        try:
            checksum, _, line = content.partition(b"\n")[0].partition(b" ")
            if int(checksum, 16) != crc32c(line):
                return None
            data = json.loads(line)
            if data.pop("format") != _VERSION:
                return None
            status = cls(**data)
            return status if status._is_sound() else None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None

    def _is_sound(self) -> bool:
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        numbers = [values[each.name] for each in fields(self) if each.type == "float"]
        counts = [values[each.name] for each in fields(self) if each.type == "int"]
        return (
            isinstance(self.writer, str)
            and isinstance(self.time, str)
            and datetime.fromisoformat(self.time).tzinfo is not None
            and self.waiting_for in get_args(WaitingFor)
            and all(type(each) in (int, float) and math.isfinite(each) and 0 <= each < 1e18 for each in numbers)
            and all(type(each) is int and 0 <= each < 1 << 63 for each in counts)
        )


def status_path(folder: LocalStorage, header: JobHeader) -> str:
    """Return the path of a job's status file, next to its header. No job's header or shard can have this name."""
    return os.path.join(folder.folder, f".{header.name}.{header.writer}~status.partial")


class StatusFile:
    """The file that contains a job's status. The first `write` creates it. All methods block."""

    def __init__(self, folder: LocalStorage, header: JobHeader) -> None:
        self._system = folder.disk.system
        self._path = status_path(folder, header)
        self._fd = -1

    def write(self, status: JobStatus) -> None:
        """Overwrite the previous status in one call.

        Raises:
            StorageError: the disk failed.
        """
        with mapped_errors("writing", self._path):
            if self._fd < 0:
                # Create the file exclusively, so as not to write to a file planted by another user.
                self._fd = create_file(self._path, system=self._system)
            self._system.pwrite(self._fd, status.encode(), 0)

    def close(self) -> None:
        """Close the file. It is removed with the job's header."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            with suppress(OSError):
                self._system.close(fd)


def read_status(folder: LocalStorage, header: JobHeader) -> JobStatus | None:
    """Read the status of the job with this header. Return `None` if it has no status. Blocks."""
    path = status_path(folder, header)
    try:
        fd = open_own(path, os.O_RDONLY)
    except StorageError:
        return None
    try:
        with mapped_errors("reading", path):
            status = JobStatus.decode(read_at(fd, _MOST_BYTES, 0))
    finally:
        os.close(fd)
    return status if status is not None and status.writer == header.writer else None
