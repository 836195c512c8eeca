"""`concurrently`, `for_each`, `side_by_side` and `ordered_map` call an async function for many items."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

import anyio

from asyncrec._concurrency.tasks import TaskScope

# How many small objects to process at a time: enough to hide a store's latency, but few enough for its connections.
_SMALL_OBJECTS = 32

P = TypeVar("P")
T = TypeVar("T")


async def concurrently(func: Callable[[P], Awaitable[object]], items: Iterable[P], *, tasks: int) -> None:
    """Await ``func(item)`` for each item, in up to ``tasks`` tasks. The first error cancels the others."""
    waiting = iter(items)
    first = next(waiting, None)
    if first is None:
        return
    errors: list[Exception] = []

    async def work(item: P) -> None:
        try:
            await func(item)
            for each in waiting:
                await func(each)
        except Exception as error:
            errors.append(error)
            scope.cancel()

    second = next(waiting, None) if tasks > 1 else None
    if second is None:  # no task is needed to process one item at a time
        await func(first)
        for item in waiting:
            await func(item)
        return
    async with TaskScope() as scope:
        scope.start_soon(work, first)
        scope.start_soon(work, second)
        for _, item in zip(range(tasks - 2), waiting, strict=False):
            scope.start_soon(work, item)
    if errors:
        raise errors[0]


async def for_each(func: Callable[[P], Awaitable[T]], items: Iterable[P], *, tasks: int = _SMALL_OBJECTS) -> list[T]:
    """Return ``[await func(item) for item in items]``, computed by up to ``tasks`` tasks. Stop at the first error."""
    results: dict[int, T] = {}

    async def work(numbered: tuple[int, P]) -> None:
        position, item = numbered
        results[position] = await func(item)

    await concurrently(work, enumerate(items), tasks=tasks)
    return [results[position] for position in range(len(results))]


async def side_by_side(func: Callable[[P], Awaitable[T]], items: Iterable[P], *, tasks: int) -> list[T]:
    """Return ``[await func(item) for item in items]``, computed by up to ``tasks`` tasks, or raise the first error.

    If several calls fail, this raises the error of the item that comes first in ``items``, even if another one failed
    sooner. Calls for items before it run to completion. Running calls for items after it are cancelled, and no other
    call is started.
    """
    results: dict[int, T] = {}
    in_work: dict[int, anyio.CancelScope] = {}
    failed: tuple[int, Exception] | None = None

    async def work(numbered: tuple[int, P]) -> None:
        nonlocal failed
        position, item = numbered
        if failed is not None and position > failed[0]:
            return
        try:
            with anyio.CancelScope() as scope:
                in_work[position] = scope
                results[position] = await func(item)
        except Exception as error:
            if failed is None or position < failed[0]:
                failed = position, error
            for other, begun in in_work.items():
                if other > position:
                    begun.cancel()
        finally:
            del in_work[position]

    await concurrently(work, enumerate(items), tasks=tasks)
    if failed is not None:
        raise failed[1]
    return [results[position] for position in range(len(results))]


@dataclass(slots=True)
class _Slot(Generic[P, T]):
    """An item in progress, and its result."""

    item: P
    done: anyio.Event
    result: T | None = None
    error: Exception | None = None


async def ordered_map(
    items: Iterable[P], work: Callable[[P], Awaitable[T]], use: Callable[[P, T], Awaitable[None]], *, concurrency: int
) -> None:
    """Await ``use(item, await work(item))`` for each item, in order, with up to ``concurrency`` of them in progress.

    Raises the error of the first item that fails, once the tasks of all other items have ended.
    """
    window: deque[_Slot[P, T]] = deque()

    async def run(slot: _Slot[P, T]) -> None:
        try:
            slot.result = await work(slot.item)
        except Exception as error:
            slot.error = error
        finally:
            slot.done.set()

    async def use_first() -> None:
        slot = window.popleft()
        await slot.done.wait()
        if slot.error is not None:
            raise slot.error
        await use(slot.item, slot.result)  # type: ignore[arg-type]  # done without an error, so it has a result

    async with TaskScope() as scope:
        for item in items:
            slot: _Slot[P, T] = _Slot(item, anyio.Event())
            window.append(slot)
            scope.start_soon(run, slot)
            if len(window) >= concurrency:
                await use_first()
        while window:
            await use_first()
