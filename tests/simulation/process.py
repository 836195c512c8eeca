"""A simulated process on a machine, whose tasks, callbacks and threads all die together.

A context variable, inherited with the context, identifies the process of each task, callback and thread.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

__all__ = ["PROCESS", "Killed", "Process"]


class Killed(BaseException):
    """Raised by system calls of a dead process in order to unwind its stack."""


class Process:
    """A process of a world.

    Attributes:
        machine: the machine whose disk it uses.
        host: the host whose locks and boot id it has; several hosts may share a disk.
        skew: the number of seconds by which its wall clock is fast.
        strike_at: the number of the system call, counted from 1, before which it dies.
        calls: the number of system calls that it has made.
        steps: the number of its callbacks that have run.
        held_until: the time until which its event loop is blocked. Its threads continue to run.
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
        """Block the process's event loop for some seconds, so that no other callback runs."""
        self.held_until = max(self.held_until, now + seconds)
        self._holds.append((now, now + seconds))

    @property
    def was_held(self) -> bool:
        return bool(self._holds)

    def turned(self, since: float, now: float) -> float:
        """Return the number of seconds in a period during which the process's loop was not blocked."""
        held = sum(max(0.0, min(end, now) - max(begin, since)) for begin, end in self._holds)
        return now - since - held

    def kill(self) -> None:
        """Kill the process as ``kill -9`` would: it stops running, its files are closed, and its locks are released."""
        if not self.dead:
            self.dead = True
            self.machine.close_all(self)


PROCESS: ContextVar[Process | None] = ContextVar("process", default=None)
