"""Measures how long the event loop is blocked: a task tries to run every millisecond, and records how late it runs.

There are two causes of lateness: our own work between two awaits, and the machine (another process on the core, or a
worker thread that holds the GIL). `idle_figures` measures only the second, for comparison.
"""

from __future__ import annotations

import time
from types import TracebackType

import anyio
import anyio.abc

PERIOD = 0.001  # in seconds; a shorter period would make the heartbeat itself a load


class Heartbeat:
    """``async with Heartbeat() as heartbeat: work``, then `figures`. Opened and closed in one task."""

    def __init__(self) -> None:
        self.late: list[float] = []
        self._group: anyio.abc.TaskGroup

    async def __aenter__(self) -> Heartbeat:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._beat)
        await anyio.sleep(2 * PERIOD)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        await anyio.lowlevel.checkpoint()
        self._group.cancel_scope.cancel()
        return await self._group.__aexit__(kind, error, trace)

    async def _beat(self) -> None:
        try:
            while True:
                due = time.perf_counter() + PERIOD
                await anyio.sleep(PERIOD)
                self.late.append(time.perf_counter() - due)
        finally:
            # The beat that was pending when the work ended may be the latest of all.
            self.late.append(time.perf_counter() - due)

    def figures(self) -> dict[str, float]:
        """Return the lateness in seconds: the 99th percentile of all beats, and the maximum."""
        late = sorted(self.late)
        return {"held_p99": max(late[int(len(late) * 0.99)], 0.0), "held_max": max(late[-1], 0.0)}


def idle_figures(seconds: float = 2.0) -> dict[str, float]:
    """Measure the same on an idle event loop: the delay that this machine adds to every figure."""

    async def main() -> dict[str, float]:
        async with Heartbeat() as heartbeat:
            await anyio.sleep(seconds)
        return heartbeat.figures()

    return anyio.run(main)
