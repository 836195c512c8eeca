"""`settled`: await a call of aiofiles to its end, whatever is cancelled meanwhile.

aiofiles runs each call in a thread, and a thread cannot be cancelled: the `await` returns at once, while the write goes
on. Whoever then closes or unlinks the file pulls it from under that write, and whoever reuses the buffers spoils what
is being written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import anyio

__all__ = ["settled"]

T = TypeVar("T")


async def settled(call: Awaitable[T]) -> T:
    """Give the result of ``call``, which is never cancelled. Its caller's cancellation comes at the next checkpoint.

    No other `settled` is one: a caller has a checkpoint before each, or it cannot be cancelled at all.
    """
    task = asyncio.ensure_future(call)
    interrupted = False
    with anyio.CancelScope(shield=True):
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:  # asyncio's own task.cancel(), which knows no shield
                interrupted = True
    caller = asyncio.current_task()
    if interrupted and caller is not None:
        # Taken back and asked for again, so that asyncio.timeout and TaskGroup still count one cancellation.
        caller.uncancel()
        caller.cancel()
    return task.result()
