"""`HeldLoop` sees how long no other task ran: what a store does on the event loop without awaiting it."""

from __future__ import annotations

import time

import anyio

_TICK = 0.005


class HeldLoop:
    """A watch of the event loop; `watch` is the task that is to run meanwhile.

    Attributes:
        longest: in seconds, and what was tried meanwhile.
    """

    def __init__(self) -> None:
        self.longest = 0.0, ""
        self._trying = ""
        self._ticked = 0.0  # when another task last ran, or what is tried began since

    def trying(self, what: str) -> None:
        """Name what is tried from now on."""
        self.tick()
        self._trying = what

    def tick(self) -> None:
        now = time.perf_counter()
        if self._trying:
            self.longest = max(self.longest, (max(0.0, now - self._ticked - _TICK), self._trying))
        self._ticked = now

    async def watch(self) -> None:
        while True:
            self.tick()
            await anyio.sleep(_TICK)
