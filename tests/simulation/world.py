"""One world: its plan is run, faults stop, it gets well, and the oracle looks at it."""

from __future__ import annotations

import asyncio
import errno
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import Context, copy_context
from typing import Any

import anyio

from asyncrec.errors import AsyncRecError

from . import contents, seams, sources
from .book import Book, Run, identity
from .disk import Machine, failure
from .operations import OPERATIONS
from .process import PROCESS, Killed, Process
from .scheduler import EventLog, Hung, Loop
from .store import Bucket
from .system import System
from .threads import Threads
from .timing import Timing

__all__ = ["World"]

_EPOCH = 1_700_000_000.0
_MAX_STEPS = 400_000
# Within so long of the last fault whoever lives has ended: a writer's exit_timeout, the stores' retries, some hangs.
_GETS_WELL = 7200.0


class World:
    """See the module. The attributes are what operations and seams use."""

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
        self._calls = 0
        self._power_at = {fault["at"]: fault for fault in plan["faults"] if fault["kind"] == "power"}
        self._disk_fails = 0  # so many calls more
        self._tmpfs = settings.get("memory", False) and not self._power_at
        self.timing = Timing(self._strike)
        self._bodies: dict[Process, tuple[asyncio.Task[Any], anyio.CancelScope]] = {}
        self.loop.on_step = self._step
        self.bucket.on_publish = self.timing.publishes
        for machine in self.machines.values():
            machine.links_work = settings["links"]

    # -- what seams and operations ask ------------------------------------------------------------------------------

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

    def call(self, process: Process, name: str, path: str) -> None:
        """A call of the system is about to be made."""
        self.threads.point()
        if process.dead:
            raise Killed
        process.calls += 1
        self.log.note(f"{process.name} {name} {path}")
        if name in ("link", "replace"):
            self.timing.publishes(process, path)
        if process.strike_at is not None and process.calls >= process.strike_at:
            self.kill(process)
            raise Killed
        if self.calm:
            return
        self._calls += 1
        if self._calls in self._power_at:
            self.cut_power(self._power_at[self._calls]["machine"])
        elif self._disk_fails and process.machine.name == "m0" and name not in ("close", "stat", "fstat", "listdir"):
            self._disk_fails -= 1
            self.faults += 1
            raise failure(errno.EIO, path)

    @asynccontextmanager
    async def running(self, run: Run) -> AsyncIterator[None]:
        """What becomes of a run; errors that may come are told, and are no fault of the world."""
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

    # -- faults -----------------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        if process.dead or process.ended:
            return
        self.log.note(f"kill {process.name}")
        self.kills += 1
        process.kill()
        self.bucket.killed(process)
        self._note_what_reached_the_disk(process)

    def cut_power(self, name: str) -> None:
        self.log.note(f"power {name}")
        self.faults += 1
        self.power_cuts += 1
        machine = self.machines[name]
        for process in self.processes:
            if process.machine is machine:
                self.kill(process)
        machine.cut_power(self.rng)
        for run in self.book.runs:
            if run.process is not None and run.process.machine is machine:
                for record in run.records:
                    record.reached = False

    def _note_what_reached_the_disk(self, process: Process) -> None:
        """Of what a kill left in plain journals, each whole record comes back, though nobody was promised that."""
        for run in self.book.runs:
            options = run.spec.get("options", {})
            home = options.get("spool") or (run.target.rpartition("/")[0] if run.target.startswith("/") else None)
            if run.process is not process or run.kind != "rolling" or run.replaces or not run.writer or home is None:
                continue
            if options.get("compression"):
                continue
            for name, data in contents.tree(self, home).items():
                if name.endswith(f".tfrecord.{run.writer}.partial") and "/" not in name:
                    for record in contents.whole_frames(data):
                        if (number := identity(record)) is not None:
                            self.book.records[number].reached = True

    def _step(self, process: Process | None) -> None:
        if process is None or self.calm:
            return
        process.steps += 1
        self.timing.step(process)

    def _strike(self, process: Process, fault: dict[str, Any]) -> bool:
        """Whether it could be done now."""
        match fault["kind"]:
            case "kill":
                self.kill(process)
            case "cancel":
                if process not in self._bodies:
                    return False
                task, scope = self._bodies[process]
                self.faults += 1
                process.cancelled = True
                self.log.note(f"cancel {process.name}")
                if fault["how"] == "anyio":
                    scope.cancel()
                else:
                    task.cancel()
            case "disk":
                self.log.note(f"disk {fault['for']}")
                self._disk_fails = fault["for"]
            case "down":
                self.log.note(f"down {fault['for']}")
                self._down(fault["for"])
        if "then" in fault:
            self.timing.arm(process, fault["then"])
        return True

    # -- the life of processes ----------------------------------------------------------------------------------------

    def spawn(self, name: str, machine: str, main: Callable[[Process], Awaitable[None]]) -> Process:
        process = Process(name, 100 + len(self.processes), self.machines[machine])
        self.processes.append(process)
        if self.settings["skews"] and name.startswith("p"):
            process.skew = self.rng.uniform(-120.0, 120.0)
        context = copy_context()
        context.run(PROCESS.set, process)
        context.run(lambda: self.loop.create_task(self._live(process, main), context=context))
        return process

    async def _live(self, process: Process, main: Callable[[Process], Awaitable[None]]) -> None:
        with anyio.CancelScope() as scope:
            task = asyncio.current_task()
            assert task is not None
            self._bodies[process] = (task, scope)
            try:
                await main(process)
            except Killed:
                raise
            except BaseException as error:
                self._judge(process, error)
        self._bodies.pop(process, None)
        await anyio.sleep(0.0)
        if process.dead:
            return
        others = [task for task in self.loop.tasks if task.process is process and not task.done()]
        others = [task for task in others if task is not asyncio.current_task()]
        if others:
            await anyio.sleep(0.001)  # what was just cancelled ends
            names = [str(each.get_coro()) for each in others if not each.done()]
            if names:
                self.book.complain("no task is left", ", ".join(names))
        if self._open_files(process):
            await anyio.sleep(10.0)  # a thread that nobody waits for has ended by then, and let go what it returned
            gc.collect()  # an error's traceback may hold a lock until then
        files = self._open_files(process)
        if files and not process.dead:
            self.book.complain("no descriptor is left", f"{process.name}: {files}")
        process.ended = True
        process.machine.close_all(process)

    def _open_files(self, process: Process) -> list[str]:
        return [file.path for file in process.machine.files.values() if file.process is process]

    def _judge(self, process: Process, error: BaseException) -> None:
        """Whether this may leave an operation."""
        from .writing import BodyError

        if process.dead:
            return
        errors = [error]
        while errors:
            each = errors.pop()
            if isinstance(each, BaseExceptionGroup):
                errors += each.exceptions
            elif isinstance(each, ValueError) and "memory_limit" in str(each):
                continue
            elif not isinstance(
                each, (AsyncRecError, OSError, asyncio.CancelledError, BodyError, anyio.ClosedResourceError)
            ):
                self.book.complain("only documented errors are raised", f"{process.name}: {each!r}")

    def _cast(self) -> None:
        for number, part in enumerate(self.plan["processes"]):
            self.loop.call_later(part["start"], self._enter, number, part)
        for fault in self.plan["faults"]:
            if fault["kind"] == "full":
                self.machines[fault["machine"]].spare = fault["spare"]

    def _down(self, seconds: float) -> None:
        if not self.calm:
            self.faults += 1
            self.bucket.down_until = self.loop.now + seconds

    def _enter(self, number: int, part: dict[str, Any]) -> None:
        async def main(process: Process) -> None:
            for spec in part["operations"]:
                await OPERATIONS[spec["kind"]](self, process, spec)

        process = self.spawn(f"p{number}", part["machine"], main)
        for fault in self.plan["faults"]:
            if fault.get("process") == number:
                self.timing.expect(process, fault)

    async def do(
        self, what: str, machine: str, work: Callable[[], Awaitable[Any]], *, patience: float = _GETS_WELL
    ) -> None:
        """Work of the world's own, in a process of its own, in calm weather: it succeeds."""

        async def main(process: Process) -> None:
            try:
                await work()
            except Exception as error:
                self.book.complain("a world gets well", f"{what}: {error!r}")

        process = self.spawn(f"{what}", machine, main)
        if not await self._all_ended([process], patience):
            self.book.complain("nothing hangs", what)
            self.kill(process)

    async def _all_ended(self, processes: list[Process], patience: float) -> bool:
        until = self.loop.now + patience
        pause = 0.01
        while any(not (process.dead or process.ended) for process in processes):
            if self.loop.now >= until:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 100.0)
        return True

    async def _play(self) -> None:
        from . import oracle

        sources.lay_out(self)
        self._weather(self.settings)
        self._cast()
        last = max([part["start"] for part in self.plan["processes"]] or [0.0])
        await asyncio.sleep(last + 1.0)
        everybody = list(self.processes)
        await self._all_ended(everybody, 3000.0)
        self._clear_up()
        if not await self._all_ended(everybody, _GETS_WELL):
            hung = [process for process in everybody if not (process.dead or process.ended)]
            self.book.complain("nothing hangs", f"{hung} still run after {_GETS_WELL} s of calm")
            for process in hung:
                self.kill(process)
        await oracle.examine(self)

    def _weather(self, settings: dict[str, Any]) -> None:
        bucket = self.bucket
        bucket.failing, bucket.late, bucket.lax = settings["failing"], settings["late"], settings["lax"]
        bucket.lost, bucket.short = settings["lost"], 2 * settings["short"]
        bucket.parts, bucket.checksums = settings["parts"], settings["checksums"]

    def _clear_up(self) -> None:
        self.calm = True
        self.timing.end()
        self.bucket.failing, self.bucket.down_until, self.bucket.short = 0.0, 0.0, 0.0
        for machine in self.machines.values():
            machine.spare = 1 << 40
        for process in self.processes:
            process.strike_at = None

    def play(self) -> None:
        seams.current.append(self)
        try:
            self.loop.run_until_complete(self._play())
        except Hung as error:
            self.book.complain("nothing hangs", str(error))
        finally:
            seams.current.pop()
            self._end()
        for message in self.loop.unraised:
            self.book.complain("no error is lost in the loop", message)

    def _end(self) -> None:
        for process in self.processes:
            process.dead = True
        self.threads.close()
        # What the dead waited for is over, or closing their coroutines would go on waiting without a loop.
        for scope in self.scopes:
            scope._running.clear()
        asyncio.set_event_loop(None)
        self.loop._ready.clear()  # type: ignore[attr-defined]
        self.loop.close()


def _described(error: BaseException) -> str:
    within = [_described(each) for each in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return f"{type(error).__name__}: {error} {' '.join([*within, *getattr(error, '__notes__', [])])}".strip()
