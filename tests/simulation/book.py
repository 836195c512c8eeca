"""What the operations of a world were told: of each record, and of each writer's run.

A record says in its bytes who it is, so that it is known wherever it turns up.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Book", "Record", "Run", "identity"]

# A record may have to wait, in calls of a slow disk, for shards of those before it.
_BEHIND = 60.0
# And for the bytes of those before it: a call for each chunk, of two waits of 0.1 s at the most.
_OF_A_CALL = 0.25
# Or a request, of which both ways take 0.5 s at the most, and a look before the first and an answer behind the last.
_OF_A_REQUEST = 2.0

_MARK = re.compile(rb"<<(\d+)>>")


@dataclass(eq=False)
class Record:
    """One that was offered to a writer.

    Attributes:
        state: ``"offered"`` until the call ended; then ``"taken"``, ``"refused"`` or ``"dropped"`` (its key was known).
        taken: the time at which the call returned.
        spooled, committed: the time at which this was promised.
        reached: it stood whole in a journal on a disk when its process was killed, and no power cut came since.
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
    """One writer's, or one tool's, on one target.

    Attributes:
        kind: ``"rolling"``, ``"fixed"``, ``"file"``, or ``"whole"`` for what ends all or nothing.
        replaces: it makes itself the whole of its target.
        first_flush: what had been taken when its first flush began; `None` before. Whatever a caller was told, or was
            about to be told when the process died, held for all of that.
        given_up: somebody called `recover` to abandon it.
        outcome: ``"running"`` (for ever, when its process was killed), ``"clean"``, ``"failed"``, ``"cancelled"``.
        asked, opened, leaving, ended: times; `None` before.
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
    given_up: bool = False
    error: str = ""
    records: list[Record] = field(default_factory=list)
    tickets: set[int] = field(default_factory=set)
    spec: dict[str, Any] = field(default_factory=dict)

    @property
    def flushes_to_store(self) -> bool:
        """What its flushes acknowledged outlives its machine."""
        options = self.spec.get("options", {})
        here = self.target.startswith("/") or "spool" in options
        return self.kind == "rolling" and not here and not self.replaces and options.get("flush_seconds", 1) is not None

    @property
    def flush_seconds(self) -> float | None:
        """After so many seconds a kill takes nothing of what was written."""
        options = self.spec.get("options", {})
        here = self.target.startswith("/") or "spool" in options
        if self.kind != "rolling" or self.replaces or options.get("on_error") == "discard":
            return None
        seconds = options.get("flush_seconds", 5.0 if here else 30.0)
        return None if seconds is None else float(seconds)

    def promise_what_is_old(self, now: float, chunk: int) -> None:
        """The writer goes, and was never asked: but disk or store answered all the time, and has what is old enough.

        A record ages while the event loop turns: for as long as the program holds it, nothing is promised.

        ``chunk``: the bytes that a call writes.
        """
        if self.flush_seconds is not None and self.writer:
            of_a_call = _OF_A_REQUEST if self.flushes_to_store else _OF_A_CALL
            behind = _BEHIND + sum(len(record.data) for record in self.records) / chunk * of_a_call
            for record in self.records:
                aged = self.process.turned(record.taken, now) - behind
                if record.state == "taken" and aged >= self.flush_seconds:
                    record.spooled = record.spooled or now

    def flushes(self) -> int:
        """A flush begins; returns the last ticket that it is for."""
        if self.first_flush is None:
            self.first_flush = [record for record in self.records if record.state == "taken"]
        return self.last_ticket

    @property
    def last_ticket(self) -> int:
        return max((record.ticket for record in self.records), default=0)

    def promise(self, level: str, last: int, now: float) -> None:
        """Everything up to a ticket has reached a level."""
        for record in self.records:
            if record.state == "taken" and record.ticket <= last:
                if level == "spooled" and record.spooled is None:
                    record.spooled = now
                elif level == "committed" and record.committed is None:
                    record.committed = now


@dataclass(eq=False)
class Deletion:
    """The deletion of the records that have some keys.

    Attributes:
        asked: when it was called.
        ended: when it ended well; `None` if it did not.
    """

    target: str
    keys: frozenset[bytes]
    asked: float
    ended: float | None = None

    def may_have(self, record: Record) -> bool:
        """Whether it may have deleted a record."""
        over = self.ended is not None and record.taken > self.ended
        return record.run.target == self.target and record.key in self.keys and not over

    def must_have(self, record: Record) -> bool:
        """Whether it has deleted a record, which was committed before."""
        committed = record.committed is not None and record.committed < self.asked
        return self.ended is not None and committed and self.may_have(record)


class Book:
    """Of one world."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.runs: list[Run] = []
        self.deletions: list[Deletion] = []
        self.complaints: list[str] = []

    def complain(self, promise: str, detail: str) -> None:
        """A promise is broken: ``promise`` names it in the same words each time."""
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
        """Each run in a line, for people."""
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
    """Whose bytes these are."""
    match = _MARK.search(data)
    return int(match[1]) if match else None
