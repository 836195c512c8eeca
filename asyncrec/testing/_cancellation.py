"""Cancel a function at its first await, its second, and so on, until it gets through.

What a cancelled call leaves behind is part of its contract, which may break at a single await out of many. This visits
every await, on asyncio and on trio, without sleeping and without chance::

    async def write():
        async with storage.open_sink("key") as sink:
            await sink.send([data])

    async def nothing_left(): ...

    await cancel_at_every_checkpoint(write, after=nothing_left)

A coroutine that waits yields to its event loop. Each yield is counted, and at the n-th the cancel scope around the call
is cancelled. Tasks that the function starts run as usual and are cancelled with it; only the function's own awaits are
counted.
"""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

import anyio

T = TypeVar("T")

# A function with more awaits than this is taken for one that never ends: it would be run as many times.
MOST_CHECKPOINTS = 10_000


async def cancel_at_checkpoint(func: Callable[[], Coroutine[Any, Any, object]], n: int) -> bool:
    """Run ``func``, cancelling it at its ``n``-th await (from 1); return whether it had that many.

    The cancellation comes as from a caller: by a scope around it, while it waits. The function may still finish if it
    waits for something shielded. Its result is dropped; its exceptions are raised, with a note of ``n``.
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
    """Run ``func`` again and again, cancelled at its 1st, 2nd, ... await, until it ends by itself.

    Return how many awaits it had: 0 if it never waits.

    ``after`` is awaited after each run, including the last, which is not cancelled. It checks what was left behind.

    Raises:
        AssertionError: ``func`` was still waiting after 10,000 runs.
        Exception: the error that ``func`` or ``after`` raised, with a note of the checkpoint.
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
    """Drive ``coroutine``, handing each of its yields to the event loop; cancel ``scope`` just before the ``n``-th."""
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
