"""`Turns` yields to the event loop between many small steps of work, and runs large steps in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio.lowlevel import checkpoint

from asyncrec._concurrency.tasks import in_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# The total time that steps may take before `Turns` yields. A pass through the event loop takes about 0.05 ms. One more
# step may begin just before the limit, and take nearly this long again.
_MOST_SECONDS = 0.0005


class Turns:
    """Runs small steps for a caller that might otherwise never yield, and measures their time on the event loop.

    Use it for work whose duration is known only afterwards, such as encoding a record of unknown content.
    """

    __slots__ = ("_seconds",)

    def __init__(self) -> None:
        self._seconds = 0.0  # spent on the event loop since other tasks last ran

    async def call(self, large: bool, func: Callable[[*Ts], T], *args: *Ts) -> T:
        """Call ``func(*args)`` in a worker thread if ``large``, or else directly, first yielding to the loop if due.

        If the call is cancelled, either the function was not called or its result is lost.
        """
        if large:
            return await in_thread(func, *args)
        if self._seconds > _MOST_SECONDS:
            self._seconds = 0.0
            await checkpoint()
        began = time.perf_counter()
        try:
            return func(*args)
        finally:
            self._seconds += time.perf_counter() - began
