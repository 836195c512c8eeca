"""`sheltered`: let a request end whose effect cannot be taken back or told otherwise, in spite of cancellation."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

__all__ = ["sheltered"]

T = TypeVar("T")


async def sheltered(operation: Coroutine[Any, Any, T], *, limit: float) -> T:
    """Give the result of ``operation``. Cancelled meanwhile, it may go on for ``limit`` seconds more.

    When it then succeeds its result is returned, and the cancellation comes at the caller's next await. When it fails,
    or has to be cancelled, the cancellation is raised now.
    """
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        by_scope = anyio.current_effective_deadline() == -math.inf
        try:
            with anyio.move_on_after(limit, shield=True):
                await asyncio.wait([task])
        finally:
            task.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([task])
        if task.cancelled() or task.exception() is not None:
            raise
        caller = asyncio.current_task()
        if not by_scope and caller is not None:
            # A scope cancels again by itself. asyncio's own cancellation is taken back and asked for again, so that
            # asyncio.timeout and TaskGroup still count one.
            caller.uncancel()
            caller.cancel()
    return task.result()
