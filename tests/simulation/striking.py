"""Inject a world's faults: kills and cancellations of processes, power cuts, disk failures, and store outages."""

from __future__ import annotations

import errno
from typing import Any

from . import contents
from .book import identity
from .disk import failure
from .process import Process

__all__ = ["MOST_ENTRY", "Striker"]

# The knob for the maximum size of a flush entry.
MOST_ENTRY = "asyncrec._shards.commit.flush_log:MOST_ENTRY"


class Striker:
    """Injects the faults of one world's plan, and notes their effects in the world's book."""

    def __init__(self, world: Any) -> None:
        self._world = world
        self._calls = 0
        power = [fault for fault in world.plan["faults"] if fault["kind"] == "power" and "process" not in fault]
        self._power_at = {fault["at"]: fault for fault in power}
        self._disk_fails = 0  # how many more calls will fail

    def kill(self, process: Process) -> None:
        if process.dead or process.ended:
            return
        self._world.log.note(f"kill {process.name}")
        self._world.kills += 1
        process.kill()
        self._world.bucket.killed(process)
        # Nothing is promised if a disk fails, or if another host may have ended the writer so that its next call fails.
        if not self._world.disks_fail and not self._world.shared(process.machine):
            for run in self._world.book.runs:
                if run.process is process and run.outcome == "running":
                    self._promise_what_is_old(run)
        self._note_what_reached_the_disk(process)

    def _promise_what_is_old(self, run: Any) -> None:
        world = self._world
        chunk = world.settings["chunk"]
        if run.flushes_to_store:
            chunk = min(world.settings["parts"], world.settings["knobs"].get(MOST_ENTRY, 1 << 20))
            if not world.store_answers or contents.is_ended(world, run.target, run.writer):
                return
            if any(run.writer in key for key in world.bucket.damaged):
                return  # the writer has failed, and its next call would have raised an error
            # Without enough memory for the parts of its open shards, the writer has failed, and its next call would
            # have raised an error.
            options = run.spec["options"]
            if 4 * world.settings["parts"] * options["open_shards"] > 3 * options.get("memory_limit", 1 << 30):
                return
        run.promise_what_is_old(world.loop.now, chunk)

    def cut_power(self, name: str) -> None:
        self._world.log.note(f"power {name}")
        self._world.faults += 1
        self._world.power_cuts += 1
        machine = self._world.machines[name]
        for process in self._world.processes:
            if process.machine is machine:
                self.kill(process)
        machine.cut_power(self._world.rng)
        for run in self._world.book.runs:
            if run.process is not None and run.process.machine is machine:
                for record in run.records:
                    record.reached = False

    def call(self, process: Process, name: str, path: str) -> None:
        """Handle an imminent system call by injecting faults that are due. Called only while faults are active."""
        self._calls += 1
        if self._calls in self._power_at:
            self.cut_power(self._power_at[self._calls]["machine"])
        elif self._disk_fails and process.machine.name == "m0" and name not in ("close", "stat", "fstat", "listdir"):
            self._disk_fails -= 1
            self._world.faults += 1
            raise failure(errno.EIO, path)

    def _note_what_reached_the_disk(self, process: Process) -> None:
        """Note the complete records in a killed process's uncompressed journals, which are recovered even if unflushed.

        This does not apply to a shared folder, because another host may have ended the writer and then adopts only
        flushed records.
        """
        if self._world.shared(process.machine):
            return
        for run in self._world.book.runs:
            options = run.spec.get("options", {})
            home = options.get("spool") or (run.target.rpartition("/")[0] if run.target.startswith("/") else None)
            if run.process is not process or run.kind != "rolling" or run.replaces or not run.writer or home is None:
                continue
            if options.get("compression"):
                continue
            for name, data in contents.tree(self._world, home).items():
                if name.endswith(f".tfrecord.{run.writer}.partial") and "/" not in name:
                    for record in contents.whole_frames(data):
                        if (number := identity(record)) is not None:
                            self._world.book.records[number].reached = True

    def step(self, process: Process | None) -> None:
        if process is None or self._world.calm:
            return
        process.steps += 1
        self._world.timing.step(process)

    def strike(self, process: Process, fault: dict[str, Any]) -> bool:
        """Inject a fault, and return whether this was possible now."""
        match fault["kind"]:
            case "kill":
                self.kill(process)
            case "cancel":
                body = self._world.lives.bodies.get(process)
                if body is None:
                    return False
                task, scope = body
                self._world.faults += 1
                process.cancelled = True
                self._world.log.note(f"cancel {process.name}")
                if fault["how"] == "anyio":
                    scope.cancel()
                else:
                    task.cancel()
            case "power":
                self._power_at[self._calls + fault["calls"]] = fault
            case "disk":
                self._world.log.note(f"disk {fault['for']}")
                self._disk_fails = fault["for"]
            case "stall":
                self._world.log.note(f"stall {process.name} {fault['for']}")
                self._world.faults += 1
                process.hold(self._world.loop.now, fault["for"])
            case "down":
                self._world.log.note(f"down {fault['for']}")
                self._down(fault["for"])
        if "then" in fault:
            self._world.timing.expect(process, fault["then"])
        return True

    def _down(self, seconds: float) -> None:
        if not self._world.calm:
            self._world.faults += 1
            self._world.bucket.down_until = self._world.loop.now + seconds
