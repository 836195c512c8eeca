"""A simulated process on a machine: all its tasks, callbacks and threads die together.

A context variable holds the process of a task, a callback or a thread's work. It is inherited like every context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["PROCESS", "Killed", "Process"]


class Killed(BaseException):
    """Raised by system calls of a dead process, only so that Python leaves its code."""


class Process:
    """A process of a world.

    Attributes:
        machine: the machine whose disk it uses.
        host: the machine whose locks and boot id it has; several hosts may share a disk.
        skew: the seconds that its wall clock is ahead.
        strike_at: the system call, counted from 1, before which it dies.
        calls: the number of system calls that it has made.
        steps: the number of callbacks that ran for it.
        held_until: the time before which its loop does not turn; its threads go on.
    """

    def __init__(self, name: str, pid: int, machine: Any, host: str | None = None) -> None:
        self.name = name
        self.pid = pid
        self.machine = machine
        self.host = host or machine.name
        self.dead = False
        self.ended = False
        self.cancelled = False
        self.skew = 0.0
        self.calls = 0
        self.steps = 0
        self.strike_at: int | None = None
        self.held_until = 0.0
        self._holds: list[tuple[float, float]] = []

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def hold(self, now: float, seconds: float) -> None:
        """Hold the event loop of the process for these seconds: no other callback has its turn."""
        self.held_until = max(self.held_until, now + seconds)
        self._holds.append((now, now + seconds))

    @property
    def was_held(self) -> bool:
        return bool(self._holds)

    def turned(self, since: float, now: float) -> float:
        """Return for how many seconds of this period its loop turned."""
        held = sum(max(0.0, min(end, now) - max(begin, since)) for begin, end in self._holds)
        return now - since - held

    def kill(self) -> None:
        """Kill the process as by kill -9: it runs no more; the system closes its files and releases its locks."""
        if not self.dead:
            self.dead = True
            self.machine.close_all(self)


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
