"""What a blocking writer has collected is handed on and flushed in time, though its thread calls nothing."""

from __future__ import annotations

import weakref
from typing import Protocol

import anyio

__all__ = ["Collecting", "flush_in_time"]

# The lock of a writer is held for microseconds, or by a thread that hands on: then it is looked at less and less often.
_FIRST_DELAY = 0.001


class Collecting(Protocol):
    """A writer that collects records on the side of its callers."""

    async def flush_collected(self) -> bool | None:
        """Hand on and flush what was collected. False where that was nothing; `None`: not now, a thread writes."""


async def flush_in_time(writer: weakref.ref[Collecting], seconds: float) -> None:
    """Flush every so many seconds, from the first record on, until nothing was collected meanwhile.

    So no record waits for longer, an idle writer is left alone, and what is collected needs no time of its own. The
    writer can be dropped: nothing here keeps it.
    """
    delay = seconds
    while True:
        await anyio.sleep(delay)
        there = writer()
        found = await there.flush_collected() if there is not None else False
        del there
        if found is False:
            return
        delay = seconds if found else min(_FIRST_DELAY if delay == seconds else 2 * delay, seconds)
