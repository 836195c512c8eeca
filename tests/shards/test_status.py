"""A writer's status can be read back; a malformed status is ignored."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.status import JobStatus, StatusFile, read_status, status_path
from asyncrec._shards.writing.telling import waiting_for
from asyncrec.errors import StorageError
from asyncrec.stats import ShardedWriterStats
from asyncrec.storage._local.storage import LocalStorage

STATUS = JobStatus(
    writer="w1",
    time="2026-11-22T10:00:00+00:00",
    waiting_for="room",
    records_per_second=1.5,
    bytes_per_second=100.0,
    open_shards=2,
    taken_records=10,
    taken_bytes=1000,
    committed_records=5,
    committed_bytes=500,
    committed_shards=1,
    buffered_bytes=100,
    memory_limit=1 << 20,
    oldest_uncommitted_seconds=3.0,
    oldest_buffered_seconds=1.0,
    idle_seconds=2.0,
    spool_bytes=0,
    upload_retries=0,
)
HEADER = JobHeader(kind="rolling", name="pages", writer="w1", url="x", metadata={})


def line(**changes: Any) -> bytes:
    """Return a status line with changed values and a valid checksum."""
    values = json.loads(STATUS.encode().partition(b" ")[2]) | changes
    content = json.dumps(values).encode()
    return b"%08x %s\n" % (crc32c(content), content)


def test_status_round_trips_through_encoding() -> None:
    assert JobStatus.decode(STATUS.encode()) == STATUS
    assert JobStatus.decode(line()) == STATUS


@pytest.mark.parametrize(
    "changes",
    [
        {"writer": 3},
        {"time": "yesterday"},
        {"time": "2026-11-22T10:00:00"},
        {"records_per_second": float("nan")},
        {"bytes_per_second": float("inf")},
        {"taken_records": -1},
        {"taken_records": 1.5},
        {"taken_records": True},
        {"taken_records": 1 << 70},
        {"records_per_second": "1"},
        {"waiting_for": "\x1b[2J"},
        {"waiting_for": ["room"]},
        {"format": "asyncrec status 2"},
        {"more": 1},
    ],
)
def test_malformed_status_is_ignored(changes: dict[str, Any]) -> None:
    assert JobStatus.decode(line(**changes)) is None


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_ignored_as_status(content: bytes) -> None:
    assert JobStatus.decode(content) is None


@given(st.integers(0, len(STATUS.encode()) - 2))
def test_partially_overwritten_status_line_is_ignored(cut: int) -> None:
    later = replace(STATUS, taken_records=999_999, waiting_for="nothing").encode()
    mixed = later[:cut] + STATUS.encode()[cut:]
    assert JobStatus.decode(mixed) in (None, STATUS, JobStatus.decode(later))
    assert JobStatus.decode(STATUS.encode()[:cut]) is None


def test_short_status_line_over_longer_line_is_read(tmp_path: Path) -> None:
    folder = LocalStorage(tmp_path)
    file = StatusFile(folder, HEADER)
    file.write(replace(STATUS, taken_records=1 << 60))
    file.write(STATUS)
    assert read_status(folder, HEADER) == STATUS
    assert read_status(folder, replace(HEADER, writer="w2")) is None
    file.close()
    file.close()


def test_symlinked_status_file_is_neither_written_nor_read(tmp_path: Path) -> None:
    folder = LocalStorage(tmp_path)
    (tmp_path / "theirs").write_bytes(STATUS.encode())
    os.symlink(tmp_path / "theirs", status_path(folder, HEADER))
    assert read_status(folder, HEADER) is None
    with pytest.raises(StorageError):
        StatusFile(folder, HEADER).write(replace(STATUS, taken_records=11))
    assert (tmp_path / "theirs").read_bytes() == STATUS.encode()


def counts(**given: float) -> ShardedWriterStats:
    return ShardedWriterStats(**dict.fromkeys(ShardedWriterStats.__slots__, 0) | {"records": 1} | given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("now", "flags", "what"),
    [
        ({"records": 2}, {}, "nothing"),
        ({}, {}, "records"),
        ({"records": 2, "callers_waiting": 1}, {}, "room"),
        ({"records": 2, "seconds_waiting": 0.3}, {}, "room"),
        ({"records": 2, "seconds_waiting": 0.1}, {}, "nothing"),
        ({"records": 2, "upload_retries": 1, "callers_waiting": 3}, {}, "store"),
        ({"records": 2}, {"failing": True}, "store"),
        ({"callers_waiting": 3}, {"full": True}, "spool"),
        ({"callers_waiting": 3}, {"ending": True}, "end"),
    ],
)
def test_status_names_cause_of_waiting(now: dict[str, float], flags: dict[str, bool], what: str) -> None:
    assert waiting_for(counts(), counts(**now), 2.0, **{"full": False, "ending": False} | flags) == what
