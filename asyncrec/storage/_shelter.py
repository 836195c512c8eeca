"""`sheltered` lets a request whose effect could not be undone or determined finish despite cancellation."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import anyio

from asyncrec._concurrency.deadline import shielded
from asyncrec.storage._other_loop import on_asyncio

T = TypeVar("T")


async def sheltered(operation: Awaitable[T], *, limit: float) -> T:
    """Return the result of ``operation``, which may continue for ``limit`` seconds after the caller is cancelled.

    A finite ``limit`` is shortened if a writer's exit must end earlier (`shielded`).

    If the operation then succeeds, its result is returned, and the cancellation is raised at the caller's next await.
    If the operation fails or has to be cancelled, the cancellation is raised immediately. ``operation`` runs in a
    separate task, on both asyncio and trio.

    A cancellation ends with the scope that requested it. If this call is the last await inside an `anyio.move_on_after`
    or an `asyncio.timeout`, the block exits with the result even after its deadline, and nothing after it is cancelled.
    """
    if on_asyncio():
        return await _on_asyncio(operation, limit)
    return await _in_scopes(operation, limit)


async def _on_asyncio(operation: Awaitable[T], limit: float) -> T:
    """Shelter an operation on asyncio.

    asyncio's own cancellation has no scope and is raised only once, so it is caught here and, if necessary, requested
    again.
    """
    caller = asyncio.current_task()
    before = caller.cancelling() if caller is not None else 0
    task = asyncio.ensure_future(operation)
    try:
        await asyncio.wait([task])
    except asyncio.CancelledError as error:
        # A scope's cancellation is repeated once it is no longer shielded, but asyncio's own is not.
        taken = [] if anyio.current_effective_deadline() == -math.inf else [error.args]
        taken += await _outlast(task, asyncio.ensure_future(_end_within(task, limit)))
        if task.cancelled() or task.exception() is not None:
            raise
        if taken and caller is not None:
            _ask_again(caller, taken, min(before, caller.cancelling() - len(taken)))
    return task.result()


def _limited(seconds: float) -> AbstractContextManager[anyio.CancelScope]:
    return shielded(seconds) if seconds < math.inf else anyio.CancelScope(shield=True)


async def _end_within(task: asyncio.Future[Any], seconds: float) -> None:
    """Cancel ``task`` unless it ends within ``seconds``."""
    with _limited(seconds):
        await asyncio.wait([task])
    task.cancel()


async def _outlast(*tasks: asyncio.Future[Any]) -> list[tuple[object, ...]]:
    """Wait for ``tasks`` despite cancellations by asyncio. Return the arguments of each cancellation."""
    taken = []
    with anyio.CancelScope(shield=True):
        while not all(task.done() for task in tasks):
            try:
                await asyncio.wait(tasks)
            except asyncio.CancelledError as error:
                taken.append(error.args)
    return taken


def _ask_again(caller: asyncio.Task[Any], taken: list[tuple[object, ...]], settled: int) -> None:
    """Cancel the caller's next await, unless at most ``settled`` cancellation requests remain by then.

    If an `asyncio.timeout` or a TaskGroup exits before then, it withdraws its own request, and no scope would be left
    to catch the cancellation. Python before 3.13 does not withdraw an earlier request, so the cancellation is requested
    only when the caller waits.
    """

    def ask() -> None:
        if not caller.done() and caller.cancelling() > settled:
            caller.uncancel()  # so that the request is counted only once
            caller.cancel(*taken[-1])

    asyncio.get_running_loop().call_soon(ask)


async def _in_scopes(operation: Awaitable[T], limit: float) -> T:
    """Shelter an operation on trio, where a scope repeats its cancellation at every checkpoint."""
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
                with _limited(limit):
                    await ended.wait()
                shelter.cancel()
                with anyio.CancelScope(shield=True):
                    await ended.wait()
                if not results:
                    raise
            around.shield = True  # exiting the group is an await, which must not lose the result
    if errors:
        raise errors[0]
    return results[0]
