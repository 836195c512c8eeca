"""Cancel a function at its first await, its second, and so on, until it finishes.

The state that a cancelled call leaves behind is part of its contract, and may be wrong after a cancellation at just one
of many awaits. This module cancels at each await, on asyncio and on trio, deterministically and without sleeping::

    async def write():
        async with storage.open_sink("key") as sink:
            await sink.send([data])

    async def nothing_left(): ...

    await cancel_at_every_checkpoint(write, after=nothing_left)

A coroutine that waits yields to its event loop. This module counts the yields and, at the n-th one, cancels a scope
around the call. Tasks that the function starts run as usual, and are cancelled with the function, but only the
function's own awaits are counted.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import anyio

T = TypeVar("T")

# A function with this many awaits would have to be run as many times, so it is assumed never to finish.
MOST_CHECKPOINTS = 10_000


async def cancel_at_checkpoint(func: Callable[[], Coroutine[Any, Any, object]], n: int) -> bool:
    """Run ``func`` and cancel it at its ``n``-th await, counted from 1. Return whether it reached that await.

    As with a caller's cancellation, a scope around the function is cancelled while the function waits. The function may
    still finish if its wait is shielded. Its result is discarded. Its exceptions propagate, with a note of ``n``.
    """
    with anyio.CancelScope() as scope:
        try:
            await _counted(func(), n, scope)
        except Exception as error:
            if scope.cancel_called:
                error.add_note(f"raised when cancelled at checkpoint {n}")
            raise
    return scope.cancel_called


async def cancel_at_every_checkpoint(
    func: Callable[[], Coroutine[Any, Any, object]], *, after: Callable[[], Awaitable[object]] | None = None
) -> int:
    """Run ``func`` repeatedly, each time cancelled one await later, until a run ends before it is cancelled.

    Return the number of awaits, or 0 if ``func`` never waits.

    ``after`` is awaited after each run, including the last, which is not cancelled. It should check the state that the
    run left behind.

    Raises:
        AssertionError: ``func`` has 9,999 awaits or more.
        Exception: the error that ``func`` or ``after`` raised, with a note that names the checkpoint.
    """
    for n in range(1, MOST_CHECKPOINTS):
        reached = await cancel_at_checkpoint(func, n)
        if after is not None:
            try:
                await after()
            except Exception as error:
                error.add_note(f"after {'cancellation at checkpoint' if reached else 'a whole run, short of'} {n}")
                raise
        if not reached:
            return n - 1
    raise AssertionError(f"still waiting at checkpoint {MOST_CHECKPOINTS:,}: the function does not return")


@types.coroutine
def _counted(coroutine: Coroutine[Any, Any, T], n: int, scope: anyio.CancelScope) -> Generator[Any, Any, T]:
    """Drive ``coroutine``, passing its yields on to the event loop. Cancel ``scope`` just before the ``n``-th yield."""
    checkpoints = 0
    send: Any = None
    error: BaseException | None = None
    while True:
        try:
            trap = coroutine.send(send) if error is None else coroutine.throw(error)
        except StopIteration as stop:
            result: T = stop.value
            return result
        checkpoints += 1
        if checkpoints == n:
            scope.cancel()
        send = error = None
        try:
            send = yield trap
        except BaseException as thrown:
            error = thrown
