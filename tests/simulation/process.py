"""What dies together: a simulated process, on a machine.

Whose a task, a callback or a thread's work is, a context variable says; it is inherited as every context is.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["PROCESS", "Killed", "Process"]


class Killed(BaseException):
    """Raised by the system in what belongs to a dead process: only so that Python leaves it."""


class Process:
    """One of a world's.

    Attributes:
        machine: the disk it stands on.
        host: the machine whose locks and boot id it has: several may share a disk.
        skew: seconds that its wall clock is ahead.
        strike_at: the system call, counted from 1, before which it dies.
        calls: system calls it has made.
        steps: callbacks that ran for it.
        held_until: its loop does not turn before; its threads go on.
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
        """What runs on its loop from now on, for so many seconds, gives no other callback its turn."""
        self.held_until = max(self.held_until, now + seconds)
        self._holds.append((now, now + seconds))

    @property
    def was_held(self) -> bool:
        return bool(self._holds)

    def turned(self, since: float, now: float) -> float:
        """For how many seconds of these its loop turned."""
        held = sum(max(0.0, min(end, now) - max(begin, since)) for begin, end in self._holds)
        return now - since - held

    def kill(self) -> None:
        """kill -9: from now on nothing of it runs; the system closes its files, and its locks are gone."""
        if not self.dead:
            self.dead = True
            self.machine.close_all(self)


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
