"""The book of a simulated world: which promises were made about each record, and how each writer ran.

A record's bytes identify it, so that it can be recognized wherever it is stored.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Book", "Record", "Run", "identity"]

# How long a record may have to wait, in seconds, while a slow disk handles the shards of earlier records.
_BEHIND = 60.0
# It may also have to wait for the bytes of earlier records: one call per chunk, with at most two waits of 0.1 s.
_OF_A_CALL = 0.25
# It may also have to wait for a request, which takes at most 0.5 s each way, with a check before it and a response
# after it.
_OF_A_REQUEST = 2.0
# The size of a page apart from the bytes that identify its record: feature names, URL, date, and body.
_OF_A_PAGE = 700

_MARK = re.compile(rb"<<(\d+)>>")


@dataclass(eq=False)
class Record:
    """A record that was offered to a writer.

    Attributes:
        state: ``"offered"`` until the call ends, and then ``"taken"`` (accepted), ``"refused"``, or ``"dropped"``
            (its key was already known).
        taken: when the call that wrote it returned.
        spooled, committed: when each of these levels was promised for the record.
        reached: whether a journal on disk contained the entire record when its process was killed, without a power cut.
    """

    number: int
    run: Run
    task: int
    key: bytes | None
    data: bytes
    state: str = "offered"
    ticket: int = 0
    taken: float = 0.0
    spooled: float | None = None
    committed: float | None = None
    reached: bool = False

    @property
    def promised(self) -> bool:
        return self.spooled is not None or self.committed is not None


@dataclass(eq=False)
class Run:
    """A run of a writer or a tool on one target.

    Attributes:
        kind: ``"rolling"``, ``"fixed"``, ``"file"``, or ``"whole"`` for a run that commits everything or nothing.
        replaces: whether it replaces its entire target.
        first_flush: the records accepted before its first flush began; `None` until then. Any promise that a caller
            received, or was about to receive when the process died, applies to all of them.
        given_up: the number of calls of `recover` that may have abandoned it.
        outcome: ``"running"`` (permanently, if its process was killed), ``"clean"``, ``"failed"``, ``"cancelled"``.
        asked, opened, leaving, ended: when the run was requested, opened, began to exit, and ended; `None` until then.
    """

    number: int
    target: str
    kind: str
    process: Any
    replaces: bool = False
    skips: bool = False
    one_shard: bool = False
    outcome: str = "running"
    asked: float = 0.0
    opened: float | None = None
    leaving: float | None = None
    ended: float | None = None
    writer: str = ""
    first_flush: list[Record] | None = None
    given_up: int = 0
    error: str = ""
    records: list[Record] = field(default_factory=list)
    tickets: set[int] = field(default_factory=set)
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def flushes_to_store(self) -> bool:
        """Whether records acknowledged by a flush survive the loss of the machine."""
        options = self.spec.get("options", {})
        here = self.target.startswith("/") or "spool" in options
        return self.kind == "rolling" and not here and not self.replaces and options.get("flush_seconds", 1) is not None

    @property
    def flush_seconds(self) -> float | None:
        """The age, in seconds, from which every written record survives a kill; `None` if this is never certain."""
        options = self.spec.get("options", {})
        here = self.target.startswith("/") or "spool" in options
        if self.kind != "rolling" or self.replaces or options.get("on_error") == "discard":
            return None
        seconds = options.get("flush_seconds", 5.0 if here else 30.0)
        return None if seconds is None else float(seconds)

    def promise_what_is_old(self, now: float, chunk: int) -> None:
        """Count old records as promised when a writer ends without a flush, if the disk or store always responded.

        A record ages only while the event loop runs; the time during which user code blocks the loop does not count.

        ``chunk`` is the number of bytes that one call writes.
        """
        if self.flush_seconds is not None and self.writer:
            of_a_call = _OF_A_REQUEST if self.flushes_to_store else _OF_A_CALL
            beside = _OF_A_PAGE if "bodies" in self.spec else 0
            behind = _BEHIND + sum(len(record.data) + beside for record in self.records) / chunk * of_a_call
            for record in self.records:
                aged = self.process.turned(record.taken, now) - behind
                if record.state == "taken" and aged >= self.flush_seconds:
                    record.spooled = record.spooled or now

    def flushes(self) -> int:
        """Record that a flush begins, and return the last ticket that it covers."""
        if self.first_flush is None:
            self.first_flush = [record for record in self.records if record.state == "taken"]
        return self.last_ticket

    @property
    def last_ticket(self) -> int:
        return max((record.ticket for record in self.records), default=0)

    def promise(self, level: str, last: int, now: float) -> None:
        """Record that all records up to a ticket have reached a level."""
        for record in self.records:
            if record.state == "taken" and record.ticket <= last:
                if level == "spooled" and record.spooled is None:
                    record.spooled = now
                elif level == "committed" and record.committed is None:
                    record.committed = now


@dataclass(eq=False)
class Deletion:
    """A deletion of the records with some keys.

    Attributes:
        asked: the time of the call.
        ended: the time at which the call returned; `None` if it failed.
    """

    target: str
    keys: frozenset[bytes]
    asked: float
    ended: float | None = None

    def may_have(self, record: Record) -> bool:
        """Return whether the deletion may have deleted a record."""
        over = self.ended is not None and record.taken > self.ended
        return record.run.target == self.target and record.key in self.keys and not over

    def must_have(self, record: Record) -> bool:
        """Return whether the deletion must have deleted a record, because the record was committed before the call."""
        committed = record.committed is not None and record.committed < self.asked
        return self.ended is not None and committed and self.may_have(record)


class Book:
    """The book of one world."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.runs: list[Run] = []
        self.deletions: list[Deletion] = []
        self.complaints: list[str] = []

    def complain(self, promise: str, detail: str) -> None:
        """Record a broken promise. ``promise`` names it in the same words each time."""
        self.complaints.append(f"{promise}: {detail}")

    def begin(self, target: str, kind: str, process: Any, spec: dict[str, Any], now: float, **more: Any) -> Run:
        run = Run(len(self.runs), target, kind, process, asked=now, spec=spec, **more)
        self.runs.append(run)
        return run

    def offer(self, run: Run, task: int, size: int, key: bytes | None) -> Record:
        number = len(self.records)
        mark = b"<<%d>>" % number
        data = mark + bytes([65 + number % 26]) * max(0, size - len(mark))
        record = Record(number, run, task, key, data)
        self.records.append(record)
        run.records.append(record)
        return record

    def told(self) -> list[str]:
        """Describe each run in one line, for human readers."""
        lines = []
        for run in self.runs:
            states = Counter(
                "committed"
                if record.committed is not None
                else "spooled"
                if record.spooled is not None
                else record.state
                for record in run.records
            )
            lines.append(
                f"run {run.number} ({run.process}) on {run.target}: {run.kind}{', replaces' if run.replaces else ''}, "
                f"asked {run.asked:.3f}, opened {run.opened}, ended {run.ended}, {run.outcome}; "
                f"{', '.join(f'{n} {state}' for state, n in states.items()) or 'no records'} {run.error}"
            )
        return lines

    def may_be_deleted(self, record: Record) -> bool:
        return any(deletion.may_have(record) for deletion in self.deletions)

    def must_be_deleted(self, record: Record) -> bool:
        return any(deletion.must_have(record) for deletion in self.deletions)

    def of(self, target: str) -> list[Run]:
        return [run for run in self.runs if run.target == target]


def identity(data: bytes) -> int | None:
    """Return the number of the record with these bytes, or `None` if no record has them."""
    match = _MARK.search(data)
    return int(match[1]) if match else None
