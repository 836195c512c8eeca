"""A world: run its plan, stop all faults, let everything recover, and let the oracle judge the result."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context
from typing import Any

from anyio._core._eventloop import set_current_async_library

from . import seams, sources
from .book import Book, Run
from .disk import Machine
from .lives import Lives
from .operations import OPERATIONS
from .process import Killed, Process
from .scheduler import EventLog, Hung, Loop
from .store import Bucket
from .striking import Striker
from .system import System
from .threads import Threads
from .timing import Timing

__all__ = ["World"]

_EPOCH = 1_700_000_000.0
# Of some 40,000 worlds, four took more than 400,000 steps; the longest took 720,000.
_MAX_STEPS = 1_000_000
# All living processes must end within this time after the last fault. This allows for exit_timeout, retries and stalls.
_GETS_WELL = 7200.0


class World:
    """A world. Operations and seams use its attributes.

    Attributes:
        disks_fail: whether a disk may fail, perhaps as a consequence of another fault.
        store_answers: whether each request to the store takes effect and gets a response.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.settings = settings = plan["settings"]
        rng = random.Random(f"world {plan['seed']}")
        self.log = EventLog()
        self.loop = Loop(random.Random(rng.random()), self.log, shuffles=settings["shuffles"], max_steps=_MAX_STEPS)
        self.loop.nobody = Context()  # type: ignore[attr-defined]
        self.threads = Threads(self.loop, random.Random(rng.random()), stopping=settings["stopping"])
        self.system = System(self)
        self.secrets = random.Random(rng.random())
        self.rng = random.Random(rng.random())
        self.book = Book()
        self.machines = {
            name: Machine(name, number, lambda: self.loop.now) for number, name in enumerate(("m0", "m1"), 9)
        }
        self.bucket = Bucket(self.loop, random.Random(rng.random()), epoch=_EPOCH)
        self.processes: list[Process] = []
        self.scopes: list[Any] = []
        self.calm = False
        self.power_cuts = self.kills = self.faults = self.operations = 0
        kinds = {each["kind"] for fault in plan["faults"] for each in (fault, fault.get("then", fault))}
        self.disks_fail = not kinds.isdisjoint(("full", "disk"))
        self.store_answers = not settings["failing"] and "down" not in kinds
        self._tmpfs = settings.get("memory", False) and "power" not in kinds and not settings.get("shared")
        self.lives = Lives(self)
        self.striker = Striker(self)
        self.timing = Timing(self.striker.strike, self._later)
        self.loop.on_step = self.striker.step
        self.bucket.on_publish = self.timing.publishes
        self.bucket.on_removal = self.timing.removed
        for machine in self.machines.values():
            machine.links_work = settings["links"]

    # -- methods for seams and operations -----------------------------------------------------------------------------

    def wall(self, process: Process | None) -> float:
        return _EPOCH + self.loop.now + (process.skew if process is not None else 0.0)

    def machine_of(self, fd: int) -> Machine:
        return next(machine for machine in self.machines.values() if fd // 1_000_000 == machine.device)

    def misuse(self, what: str) -> None:
        self.book.complain("no descriptor is used after it was closed", what)

    def shortened(self, size: int) -> int:
        if size < 2 or self.calm or self.rng.random() >= self.settings["short"]:
            return size
        return self.rng.randrange(1, size)

    def in_memory(self, machine: Machine) -> bool:
        return bool(self._tmpfs)

    def shared(self, machine: Machine) -> bool:
        """Return whether hosts that do not see each other's locks share this disk."""
        return bool(self.settings.get("shared")) and machine.name == "m0"

    def boot(self, process: Process) -> str:
        """Return the boot id of a host, which changes with each power cut."""
        return f"{process.host}-{self.power_cuts}\n"

    def removed(self, process: Process, path: str) -> None:
        self.timing.removed(process, path)

    def call(self, process: Process, name: str, path: str) -> None:
        """Handle an imminent system call, at which the process may pause or die."""
        self.threads.point()
        if process.dead:
            raise Killed
        process.calls += 1
        self.log.note(process.name, name, path)
        if name in ("link", "replace"):
            self.timing.publishes(process, path)
        if process.strike_at is not None and process.calls >= process.strike_at:
            self.striker.kill(process)
            raise Killed
        if not self.calm:
            self.striker.call(process, name, path)

    @asynccontextmanager
    async def running(self, run: Run) -> AsyncIterator[None]:
        """Record the outcome of a run, including its error, which does not count as a broken promise."""
        self.operations += 1
        try:
            yield
        except BaseException as error:
            if not run.process.dead:
                cancelled = isinstance(error, (asyncio.CancelledError, GeneratorExit))
                run.error = _described(error)
                run.outcome, run.ended = "cancelled" if cancelled else "failed", self.loop.now
            raise
        run.outcome, run.ended = "clean", self.loop.now
        last = run.last_ticket
        run.promise("committed", last, self.loop.now)

    # -- running the plan ---------------------------------------------------------------------------------------------

    def _cast(self) -> None:
        for number, part in enumerate(self.plan["processes"]):
            self.loop.call_later(part["start"], self._enter, number, part)
        for fault in self.plan["faults"]:
            if fault["kind"] == "full":
                self.machines[fault["machine"]].spare = fault["spare"]

    def _later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.loop.call_later(seconds, callback, context=self.loop.nobody)  # type: ignore[attr-defined]

    def _enter(self, number: int, part: dict[str, Any]) -> None:
        async def main(process: Process) -> None:
            for spec in part["operations"]:
                await OPERATIONS[spec["kind"]](self, process, spec)

        process = self.lives.spawn(f"p{number}", part["machine"], main, host=part.get("host"))
        for fault in self.plan["faults"]:
            if fault.get("process") == number:
                self.timing.expect(process, fault)

    async def do(
        self, what: str, machine: str, work: Callable[[], Awaitable[Any]], *, patience: float = _GETS_WELL
    ) -> None:
        """Run the world's own work in a separate process without faults. It must succeed."""

        async def main(process: Process) -> None:
            try:
                await work()
            except Exception as error:
                self.book.complain("a world gets well", f"{what}: {error!r}")

        process = self.lives.spawn(f"{what}", machine, main)
        if not await self.lives.all_ended([process], patience):
            self.book.complain("nothing hangs", what)
            self.striker.kill(process)

    async def _play(self) -> None:
        from . import oracle

        set_current_async_library("asyncio")  # as `anyio.run` does, to avoid detecting the library thousands of times
        sources.lay_out(self)
        self._weather(self.settings)
        self._cast()
        last = max([part["start"] for part in self.plan["processes"]] or [0.0])
        await asyncio.sleep(last + 1.0)
        everybody = list(self.processes)
        await self.lives.all_ended(everybody, 3000.0)
        self._clear_up()
        if not await self.lives.all_ended(everybody, _GETS_WELL):
            hung = [process for process in everybody if not (process.dead or process.ended)]
            self.book.complain("nothing hangs", f"{hung} still run after {_GETS_WELL} s of calm")
            for process in hung:
                self.striker.kill(process)
        await oracle.examine(self)

    def _weather(self, settings: dict[str, Any]) -> None:
        bucket = self.bucket
        bucket.failing, bucket.late, bucket.lax = settings["failing"], settings["late"], settings["lax"]
        bucket.lost, bucket.short = settings["lost"], 2 * settings["short"]
        bucket.lists_fail = settings["lists"]
        bucket.parts, bucket.checksums = settings["parts"], settings["checksums"]
        bucket.damaging, bucket.whole_seconds = settings["damaging"], settings["whole seconds"]

    def _clear_up(self) -> None:
        self.calm = True
        self.timing.end()
        self.bucket.failing, self.bucket.down_until, self.bucket.short = 0.0, 0.0, 0.0
        self.bucket.lists_fail = self.bucket.damaging = 0.0
        for machine in self.machines.values():
            machine.spare = 1 << 40
        for process in self.processes:
            process.strike_at = None

    def play(self) -> None:
        try:
            with seams.inside(self):
                self.loop.run_until_complete(self._play())
        except Hung as error:
            self.book.complain("nothing hangs", str(error))
        finally:
            self._end()
        for message in self.loop.unraised:
            self.book.complain("no error is lost in the loop", message)

    def _end(self) -> None:
        for process in self.processes:
            process.dead = True
        self.threads.close()
        # End the waits of dead processes. Otherwise, closing their coroutines would still wait, without a loop.
        for scope in self.scopes:
            scope._running.clear()
        asyncio.set_event_loop(None)
        self.loop._ready.clear()  # type: ignore[attr-defined]
        self.loop.close()


def _described(error: BaseException) -> str:
    within = [_described(each) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return f"{type(error).__name__}: {error} {' '.join([*within, *getattr(error, '__notes__', [])])}".strip()
