"""`screen` formats a report of ``asyncrec watch`` as lines that are no wider than the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from asyncrec.cli._dead import of_the_dead_shortly
from asyncrec.cli._output import clean, human_bytes

if TYPE_CHECKING:
    from asyncrec._shards.journal.status import JobStatus
    from asyncrec.tools import WatchedWriter, WatchReport

_WAITING = {
    "nothing": "nothing",
    "records": "records",
    "room": "buffer space",
    "spool": "full spool",
    "store": "failing store",
    "end": "final commit",
}

# For each column, the title, the content, and whether the content is a number. The most important columns come first,
# for narrow terminals. Columns with the current state are empty or "?" for a writer whose status is no longer valid.
_COLUMNS: tuple[tuple[str, Callable[[WatchedWriter], str], bool], ...] = (
    ("writer", lambda writer: writer.id, False),
    ("state", lambda writer: writer.state, False),
    ("rec/s", lambda writer: _speed_of(writer), True),
    ("report", lambda writer: f"{_seconds(writer.quiet)} ago" if writer.status else "", True),
    ("commit", lambda writer: "" if writer.status else _commit(writer), True),
    ("waits for", lambda writer: _now(writer, lambda status: _WAITING[status.waiting_for]), False),
    ("not safe", lambda writer: _seconds(writer.at_risk) if writer.status and writer.state != "dead" else "", True),
    ("accepted", lambda writer: f"{writer.status.taken_records:,}" if writer.status else "", True),
    ("bytes/s", lambda writer: _now(writer, lambda status: human_bytes(round(status.bytes_per_second))), True),
    ("memory", lambda writer: _now(writer, lambda status: human_bytes(status.buffered_bytes)), True),
    (
        "spool",
        lambda writer: _now(writer, lambda status: human_bytes(status.spool_bytes)) if writer.spool else "",
        True,
    ),
    ("where", lambda writer: f"{writer.host}, process {writer.pid}", False),
    ("kind", lambda writer: writer.kind, False),
    ("started", lambda writer: writer.since[:19].replace("T", " "), False),
)


def screen(report: WatchReport, width: int, height: int) -> list[str]:
    """Return the lines of the screen. If some do not fit in ``height``, the last line shows how many are missing."""
    lines = [*_totals(report, width), *_of_dead(report, width), *_writers(report, width), *_classes(report)]
    if len(lines) > height:
        lines[height - 1 :] = [f"... {len(lines) - height + 1} more lines"]
    return [_cut(line, width) for line in lines]


def _totals(report: WatchReport, width: int) -> list[str]:
    time = f"{report.time.astimezone():%H:%M:%S}"
    path = clean(report.path, line=True)
    room = width - len(time) - 2
    # A long path is truncated at its beginning, because its end is more informative.
    lines = [f"{path if len(path) <= room else '...' + path[-max(0, room - 3) :]}  {time}"]
    if not report.there:
        return [*lines, "nothing here yet"]
    living = [writer for writer in report.writers if writer.state != "dead"]
    reporting = [writer for writer in living if writer.status]
    taken = "" if living and not reporting else f"{report.records + report.uncommitted_records:,}, "
    lines.append(f"records   {taken}committed {report.records:,}")
    lines.append(f"shards    {report.shards:,}, {human_bytes(report.bytes)}")
    if living:
        lines.append(f"speed     {_speed(report)}")
    if reporting:
        lines.append(f"not safe  {f'oldest is {_seconds(report.at_risk)} old' if report.at_risk else 'nothing'}")
    if report.last_commit is not None:
        lines.append(f"commit    {report.last_commit[:19].replace('T', ' ')} UTC")
    return lines if report.writers else [*lines, "no writers"]


def _speed(report: WatchReport) -> str:
    records, size = report.records_per_second, report.bytes_per_second
    if records is None:
        return "unknown"
    unknown = sum(writer.records_per_second is None and writer.state != "dead" for writer in report.writers)
    told = f"{_rate(records)} records/s" + ("" if size is None else f", {human_bytes(round(size))}/s")
    return told + (f"; {unknown} unknown" if unknown else "")


def _of_dead(report: WatchReport, width: int) -> list[str]:
    """Return the commands that recover dead writers' records, wrapped rather than cut so that users can copy them."""
    dead = [(writer.recover, writer.spool) for writer in report.writers if writer.state == "dead"]
    if not dead:
        return []
    text = clean(f"dead      {len(dead)}: {of_the_dead_shortly(report.path, dead)}", line=True)
    return wrap(text, width, subsequent_indent=" " * 10, break_on_hyphens=False)


def _writers(report: WatchReport, width: int) -> list[str]:
    """Return a table of the writers with as many columns as fit in ``width``."""
    if not report.writers:
        return []
    table: list[tuple[list[str], bool]] = []
    room = width + 2
    for title, show, number in _COLUMNS:
        cells = [title, *(clean(show(writer), line=True) for writer in report.writers)]
        size = max(map(len, cells))
        if size == len(title) and not any(cells[1:]):
            continue
        if table and size + 2 > room:
            continue  # a later column may be narrow enough to fit
        table.append((cells, number))
        room -= size + 2
    rows = range(len(report.writers) + 1)
    return ["", *(_row([(cells[at], cells, number) for cells, number in table]) for at in rows)]


def _row(row: Sequence[tuple[str, list[str], bool]]) -> str:
    padded = []
    for cell, column, number in row:
        size = max(map(len, column))
        padded.append(cell.rjust(size) if number else cell.ljust(size))
    return "  ".join(padded).rstrip()


def _classes(report: WatchReport) -> list[str]:
    if not report.classes:
        return []
    total = sum(report.classes.values())
    size = max(len(clean(name, line=True)) for name in report.classes)
    shown = [
        f"{clean(name, line=True).ljust(size)}  {count / total:4.0%}  {count:,}"
        for name, count in report.classes.items()
    ]
    return ["", f"of {total:,} sampled records", *shown]


def _cut(line: str, width: int) -> str:
    line = clean(line, line=True)
    return line if len(line) <= width else line[: max(0, width - 3)] + "..."


def _now(writer: WatchedWriter, show: Callable[[JobStatus], str]) -> str:
    status = writer.tells
    return ("?" if writer.state == "silent" else "") if status is None else show(status)


def _speed_of(writer: WatchedWriter) -> str:
    if writer.state == "dead":
        return ""
    return "?" if writer.records_per_second is None else _rate(writer.records_per_second)


def _commit(writer: WatchedWriter) -> str:
    return "none yet" if writer.last_commit is None else f"{_seconds(writer.quiet)} ago"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"


def _seconds(value: float) -> str:
    """Return a duration with a unit, such as ``4 s``, ``12 min`` or ``3.5 h``."""
    if value < 100:
        return f"{value:.0f} s"
    return f"{value / 60:.0f} min" if value < 6000 else f"{value / 3600:.1f} h"
