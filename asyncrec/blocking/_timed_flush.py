"""What a blocking writer has collected is handed on and flushed in time, though its thread calls nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio

# Hands on and flushes what was collected. False where that was nothing; `None`: not now, a thread is writing.
Flush: TypeAlias = Callable[[], Awaitable[bool | None]]

# The lock of a writer is held for microseconds, or by a thread that hands on: then it is looked at less and less often.
_FIRST_DELAY = 0.001


async def flush_in_time(flush: Callable[[], Flush | None], seconds: float) -> None:
    """Flush every so many seconds, from the first record on, until nothing was collected meanwhile.

    So no record waits for longer, an idle writer is left alone, and what is collected needs no time of its own.
    ``flush`` is a `weakref.WeakMethod` of the writer, which can be dropped: nothing here keeps it.
    """
    delay = seconds
    while True:
        await anyio.sleep(delay)
        there = flush()
        found = await there() if there is not None else False
        del there
        if found is False:
            return
        delay = seconds if found else min(_FIRST_DELAY if delay == seconds else 2 * delay, seconds)
