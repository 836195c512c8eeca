"""``asyncrec watch`` fits the terminal, prints each look as a line of JSON, and stops cleanly on Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import select
import struct
import termios
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from fcntl import ioctl
from pathlib import Path

import pytest
from cli_data import Run
from warm_python import Child, WarmPython

from asyncrec import blocking
from asyncrec._shards.journal.header import JobHeader
from asyncrec._shards.journal.staging import LocalStaging
from asyncrec._shards.journal.status import JobStatus, StatusFile
from asyncrec.cli._watch_screen import screen
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.tools import WatchedWriter, WatchReport

LIMIT = 100.0

STATUS = JobStatus(
    writer="6b02cafcf32832",
    time="2026-11-22T10:00:00+00:00",
    waiting_for="store",
    records_per_second=1234.5,
    bytes_per_second=3e6,
    open_shards=2,
    taken_records=1_234_567,
    taken_bytes=1 << 40,
    committed_records=5,
    committed_bytes=500,
    committed_shards=1,
    buffered_bytes=100 << 20,
    memory_limit=256 << 20,
    oldest_uncommitted_seconds=300.0,
    oldest_buffered_seconds=4.0,
    idle_seconds=0.0,
    spool_bytes=3 << 30,
    upload_retries=7,
)
WRITER = WatchedWriter(
    id=STATUS.writer,
    kind="rolling",
    state="at work",
    host="a-host-with-a-name",
    pid=12345,
    since="2026-11-22T09:00:00+00:00",
    spool=True,
    status=STATUS,
    quiet=1.0,
    records=5,
)
REPORT = WatchReport(
    path="s3://a-bucket-with-a-long-name/crawls/2026/november/pages",
    time=datetime(2026, 11, 22, 10, tzinfo=UTC),
    there=True,
    records=5,
    bytes=500,
    shards=1,
    last_commit="2026-11-22T09:59:00.000000Z",
    writers=(
        WRITER,
        replace(WRITER, id="dead1", state="dead", recover="'asyncrec recover SPOOL --to s3://a/b/pages'"),
        replace(WRITER, id="far", state="unknown", status=None, quiet=700.0, last_commit="2026-11-22T09:48:20.000000Z"),
    ),
    classes={"200": 70, "404 \x1b[31mred": 30},
)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_watch_screen_fits_terminal_and_contains_no_escapes(width: int) -> None:
    lines = screen(REPORT, width, 100)
    assert max(map(len, lines)) <= width
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert "november/pages" in lines[0]
    assert "1,234,567, committed 5" in text
    for word in ("at work", "1,234", "oldest is 5 s old", "70%", "unknown", "1 s ago"):
        assert word in text
    assert "'asyncrec recover SPOOL --to s3://a/b/pages'" in " ".join(text.split())
    assert ("failing store" in text) == (width > 40)
    assert ("process 12345" in text) == (width == 200)


def test_watch_shows_unknown_speed_for_silent_writer() -> None:
    silent = replace(REPORT, writers=(replace(WRITER, state="silent", quiet=80.0),))
    text = "\n".join(screen(silent, 80, 24))
    assert "speed     unknown" in text
    assert "1,234" not in text.replace("1,234,567", "")
    assert "oldest is 84 s old" in text
    assert "80 s ago" in text
    shown = silent.to_json()
    assert (shown["records_per_second"], shown["writers"][0]["records_per_second"]) == (None, None)


def test_watch_shows_remote_writer_by_last_commit_age() -> None:
    far = replace(WRITER, id="far", state="unknown", status=None, quiet=7200.0, last_commit="2026-11-22T08:00:00.000Z")
    far = replace(far, since="2026-11-22T07:59:55+00:00", records=50)
    new = replace(far, id="new", state="alive", quiet=9.0, last_commit=None, records=0)
    report = replace(REPORT, writers=(far, new), classes={})
    text = "\n".join(screen(report, 80, 24))
    assert "records   committed 5\n" in text
    assert "speed     10 records/s; 1 unknown" in text
    assert "not safe" not in text
    assert [line.split()[:6] for line in text.splitlines()[-2:]] == [
        ["far", "unknown", "10", "2.0", "h", "ago"],
        ["new", "alive", "?", "none", "yet", "a-host-with-a-name,"],
    ]
    assert [writer.id for writer in report.older_than(3600)] == ["far"]
    assert report.to_json()["writers"][1]["last_commit"] is None


def header_of(writer: str, data: Path) -> JobHeader:
    return JobHeader(
        kind="rolling", name="pages", writer=writer, url=str(data), metadata={}, since="2026-01-01T00:00:00+00:00"
    )


def test_watch_exits_with_1_for_overdue_writer(run: Run, data: Path) -> None:
    options = ("watch", "data/pages", "--once", "--max-age")
    assert run(*options, "60").code == 0
    LocalStaging.begin(LocalStorage("data"), header_of("gone", data)).end(keep=True)
    result = run(*options, "60")
    assert result.code == 1
    assert "the writer gone" in result.err
    assert "'asyncrec recover data/pages'" in result.out
    assert run(*options, "1e10").code == 0
    assert run("watch", "data/pages", "--max-age", "60").code == 2


def test_watch_exits_with_1_for_idle_writer(run: Run, data: Path) -> None:
    options = ("watch", "data/pages", "--once", "--idle")
    header = header_of("w", data)
    staging = LocalStaging.begin(LocalStorage("data"), header)
    file = StatusFile(LocalStorage("data"), header)
    now = datetime.now(UTC).isoformat()
    file.write(replace(STATUS, writer="w", time=now, oldest_buffered_seconds=0.0, idle_seconds=300.0))
    file.close()
    assert run("watch", "data/pages", "--once", "--max-age", "60").code == 0
    result = run(*options, "120")
    assert result.code == 1
    assert "the writer w (process" in result.err
    assert "; it has accepted no record for 30" in result.err
    assert run(*options, "1e10").code == 0
    assert run("watch", "data/pages", "--idle", "60").code == 2
    staging.end(keep=False)


def test_watch_exits_with_1_for_remote_writer_without_commits(run: Run) -> None:
    store = "memory://watched-by-its-commits"
    header = JobHeader(
        kind="rolling", name="pages", writer="far", url=store, metadata={}, since="2026-01-01T00:00:00+00:00", life="x"
    )
    with blocking.open_sharded_writer(f"{store}/other") as writer:
        writer.write(b"a record")
    with blocking.open_storage(store) as storage:
        storage.put("_manifest/pages/far-000000.jsonl", header.encode())
    result = run("watch", f"{store}/pages", "--once", "--max-age", "3600")
    assert result.code == 1
    assert "the writer far (process 0 on ) is unknown: has committed nothing" in result.err
    assert run("watch", f"{store}/pages", "--once", "--max-age", "1e10").code == 0


def test_watch_counts_lines_below_screen() -> None:
    lines = screen(REPORT, 80, 8)
    assert len(lines) == 8
    assert lines[-1].startswith("... ")


def test_watch_screen_reports_missing_data_set_or_writers() -> None:
    nothing = replace(REPORT, there=False, writers=(), classes={})
    assert screen(nothing, 40, 24)[1] == "nothing here yet"
    assert screen(replace(REPORT, writers=()), 40, 24)[-5] == "no writers"


def test_watch_once_prints_json_or_exits_with_3(run: Run, data: Path) -> None:
    seen = json.loads(run("watch", "data/pages", "--once", "--json").ok())
    assert (seen["records"], seen["shards"], seen["writers"]) == (30, 3, [])
    result = run("watch", "data/none", "--once")
    assert result.code == 3
    assert "no writer is creating one" in result.err


@pytest.fixture
def shown(warm: WarmPython, data: Path) -> Iterator[tuple[int, Child]]:
    """Run the command in a terminal of 40 columns."""
    outside, inside = pty.openpty()
    ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 40, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = warm.start(
        "asyncrec.cli",
        *("watch", "data/pages", "--every", "0.1"),
        folder=Path.cwd(),
        stdin=inside,
        stdout=inside,
        stderr=inside,
        environment=environment | {"TERM": "xterm"},
    )
    os.close(inside)
    yield outside, process
    os.close(outside)
    process.kill()
    process.wait(LIMIT)


def test_watch_redraws_until_ctrl_c_and_leaves_last_screen(shown: tuple[int, Child]) -> None:
    outside, process = shown
    raw, asked = b"", False
    while True:
        ready, _, _ = select.select([outside], [], [], LIMIT)
        assert ready, raw
        try:
            block = os.read(outside, 1 << 16)
        except OSError:
            break
        raw += block
        if raw.count(b"\x1b[H") >= 3 and not asked:
            asked = True
            os.write(outside, b"\x03")
        if not block:
            break
    assert process.wait(LIMIT) == 0
    before, _, left = raw.rpartition(b"\x1b[?1049l")
    assert before.startswith(b"\x1b[?1049h")
    assert b"records   30, committed 30" in left
    assert b"Traceback" not in raw
