"""Decide when a plan's faults strike: some steps or calls after a process starts or reaches a critical point.

The critical points are: a job's header gets its name (``"beginning"``), a writer gets its first key (``"first key"``)
or first flush (``"flushing"``), the end of a writer's body (``"leaving"``), a shard gets its name (``"publishing"``), a
segment is created (``"committing"``), a flush entry is created (``"flush entry"``), a lock is taken (``"locking"``), a
shard, an index or keys are removed (``"removing"``), and user code blocks the event loop (``"holding"``). A fault may
wait until a point is reached for the ``nth`` time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from .process import Process

__all__ = ["Timing"]

Fault = dict[str, Any]

# A header without its final name (`asyncrec._shards.journal.home`).
_HEADER = re.compile(r"/\.[0-9a-f]{16}\.partial$")


class Timing:
    """The faults of one world that have yet to strike."""

    def __init__(
        self, strike: Callable[[Process, Fault], bool], later: Callable[[float, Callable[[], None]], None]
    ) -> None:
        """``strike`` returns whether a fault was possible now; ``later`` calls a function after some seconds."""
        self._strike = strike
        self._later = later
        self._over = False
        # Faults that wait for a process to reach a point, and how many more times it must do so.
        self._waiting: dict[Process, list[tuple[Fault, int]]] = {}
        self._armed: dict[Process, list[tuple[int, Fault]]] = {}  # each fault with the step at which it strikes

    def expect(self, process: Process, fault: Fault) -> None:
        """Start waiting for the time at which this fault of a process strikes."""
        if fault.get("since"):
            self._waiting.setdefault(process, []).append((fault, fault.get("nth", 1)))
        else:
            self.arm(process, fault)

    def comes_to(self, process: Process, what: str) -> None:
        """Note that a process has reached a point. Each fault strikes once."""
        waiting = self._waiting.pop(process, None)
        if not waiting:
            return
        come = [(fault, left - (fault["since"] == what)) for fault, left in waiting]
        self._waiting[process] = [each for each in come if each[1]]
        for fault, left in come:
            if not left:
                self.arm(process, fault)

    def publishes(self, process: Process, path: str) -> None:
        """Note that an object or a local file is about to get its name."""
        if "/_manifest/" in path:
            self.comes_to(process, "committing")
        elif path.endswith(".frames"):
            self.comes_to(process, "flush entry")
        elif ".tfrecord" in path and "/_index/" not in path and "/_keys/" not in path:
            self.comes_to(process, "publishing")
        elif _HEADER.search(path):
            self.comes_to(process, "beginning")

    def removed(self, process: Process, path: str) -> None:
        """Note that an object or the last name of a file was removed."""
        if ".tfrecord" in path:
            self.comes_to(process, "removing")

    def arm(self, process: Process, fault: Fault) -> None:
        """Start counting the time, calls or steps until the fault strikes."""
        if fault.get("by") == "time":  # an idle process takes no steps
            self._later(fault["at"], lambda: None if self._over else self._strike_now(process, fault))
        elif fault.get("by") == "call":
            process.strike_at = process.calls + fault["at"]
        elif fault["kind"] in ("disk", "power", "stall") and not fault["at"]:
            self._strike(process, fault)  # at the current call
        else:
            self._armed.setdefault(process, []).append((process.steps + fault["at"], fault))

    def step(self, process: Process) -> None:
        """Note that one more callback of the process has run."""
        armed = self._armed.get(process)
        if not armed:
            return
        for each in [each for each in armed if each[0] <= process.steps]:
            if self._strike(process, each[1]):
                armed.remove(each)

    def _strike_now(self, process: Process, fault: Fault) -> None:
        self._strike(process, fault)

    def end(self) -> None:
        """Stop all faults."""
        self._over = True
        self._waiting.clear()
        self._armed.clear()
