"""`sheltered`: let a request end whose effect cannot be taken back or told otherwise, in spite of cancellation."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Coroutine
from typing import Any, TypeVar

import anyio

from asyncrec._concurrency.deadline import shielded
from asyncrec.storage._other_loop import on_asyncio

__all__ = ["sheltered"]

T = TypeVar("T")


async def sheltered(operation: Coroutine[Any, Any, T], *, limit: float) -> T:
    """Give the result of ``operation``. Cancelled meanwhile, it may go on for ``limit`` seconds more.

    Less at the exit of a writer that has to end (`shielded`).

    When it then succeeds its result is returned, and the cancellation comes at the caller's next await. When it fails,
    or has to be cancelled, the cancellation is raised now. The same on asyncio and on trio; ``operation`` is a task of
    its own on both.
    """
    if on_asyncio():
        return await _on_asyncio(operation, limit)
    return await _in_scopes(operation, limit)


async def _on_asyncio(operation: Coroutine[Any, Any, T], limit: float) -> T:
    """asyncio's own cancellation knows no scope and comes once, so that it is taken by hand."""
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError:
        by_scope = anyio.current_effective_deadline() == -math.inf
        try:
            with shielded(limit):
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


async def _in_scopes(operation: Coroutine[Any, Any, T], limit: float) -> T:
    """Where every cancellation is a scope's, and comes again at the next checkpoint by itself."""
    results: list[T] = []
    errors: list[BaseException] = []
    ended = anyio.Event()
    shelter = anyio.CancelScope(shield=True)

    async def run() -> None:
        with shelter:
            try:
                results.append(await operation)
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:
                errors.append(error)
        ended.set()

    with anyio.CancelScope() as around:
        async with anyio.create_task_group() as group:
            group.start_soon(run)
            try:
                await ended.wait()
            except anyio.get_cancelled_exc_class():
                with shielded(limit):
                    await ended.wait()
                shelter.cancel()
                with anyio.CancelScope(shield=True):
                    await ended.wait()
                if not results:
                    raise
            around.shield = True  # leaving the group is an await, too, and the result is to be returned
    if errors:
        raise errors[0]
    return results[0]
