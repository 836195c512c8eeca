"""Run a world's processes. Each must leave nothing open when it ends, and may raise only documented errors."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

import anyio

from asyncrec.errors import AsyncRecError

from .process import PROCESS, Killed, Process

__all__ = ["Lives"]


class Lives:
    """The processes of one world, from start to end.

    Attributes:
        bodies: the task and the cancel scope of each process whose main function is running.
    """

    def __init__(self, world: Any) -> None:
        self._world = world
        self.bodies: dict[Process, tuple[asyncio.Task[Any], anyio.CancelScope]] = {}

    def spawn(
        self, name: str, machine: str, main: Callable[[Process], Awaitable[None]], *, host: str | None = None
    ) -> Process:
        process = Process(name, 100 + len(self._world.processes), self._world.machines[machine], host)
        self._world.processes.append(process)
        if self._world.settings["skews"] and name.startswith("p"):
            process.skew = self._world.rng.uniform(-120.0, 120.0)
        context = copy_context()
        context.run(PROCESS.set, process)
        context.run(lambda: self._world.loop.create_task(self._live(process, main), context=context))
        return process

    async def _live(self, process: Process, main: Callable[[Process], Awaitable[None]]) -> None:
        with anyio.CancelScope() as scope:
            task = asyncio.current_task()
            assert task is not None
            self.bodies[process] = (task, scope)
            try:
                await main(process)
            except Killed:
                raise
            except BaseException as error:
                self._judge(process, error)
        self.bodies.pop(process, None)
        await anyio.sleep(0.0)
        if process.dead:
            return
        others = [task for task in self._world.loop.tasks if task.process is process and not task.done()]
        others = [task for task in others if task is not asyncio.current_task()]
        if others:
            await anyio.sleep(0.001)  # let cancelled tasks end
            names = [str(each.get_coro()) for each in others if not each.done()]
            if names:
                self._world.book.complain("no task is left", ", ".join(names))
        if self._open_files(process):
            await anyio.sleep(10.0)  # let an abandoned thread end and release its result
            gc.collect()  # an error's traceback may hold a lock until then
        files = self._open_files(process)
        if files and not process.dead:
            self._world.book.complain("no descriptor is left", f"{process.name}: {files}")
        process.ended = True
        process.machine.close_all(process)

    def _open_files(self, process: Process) -> list[str]:
        return [file.path for file in process.machine.files.values() if file.process is process]

    def _judge(self, process: Process, error: BaseException) -> None:
        """Report the error as a broken promise unless operations may raise it."""
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
                self._world.book.complain("only documented errors are raised", f"{process.name}: {each!r}")

    async def all_ended(self, processes: list[Process], patience: float) -> bool:
        """Wait for at most ``patience`` seconds, and return whether all processes have ended or are dead."""
        until = self._world.loop.now + patience
        pause = 0.01
        while any(not (process.dead or process.ended) for process in processes):
            if self._world.loop.now >= until:
                return False
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 100.0)
        return True
