"""`concurrently`, `for_each`, `side_by_side` and `ordered_map` call a function for many items, several at a time."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from asyncrec._concurrency.map import concurrently, for_each, ordered_map, side_by_side

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
@pytest.mark.parametrize("tasks", [1, 2, 4])
async def test_concurrently_processes_each_item_once_within_task_limit(count: int, tasks: int) -> None:
    done: list[int] = []
    running = most = 0

    async def work(item: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await checkpoint()
        done.append(item)
        running -= 1

    await concurrently(work, range(count), tasks=tasks)
    assert sorted(done) == list(range(count))
    assert most == min(count, tasks)


@pytest.mark.parametrize("count", [1, 20])
async def test_concurrently_raises_first_error_unwrapped(count: int) -> None:
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        await checkpoint()
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match=r"item \d"):
        await concurrently(work, range(count), tasks=4)
    assert len(begun) <= 4


async def test_for_each_returns_results_in_item_order() -> None:
    async def work(item: int) -> int:
        for _ in range(5 - item):
            await checkpoint()
        return item * item

    assert await for_each(work, iter(range(6)), tasks=3) == [0, 1, 4, 9, 16, 25]


@pytest.mark.parametrize("tasks", [1, 2, 3, 9])
async def test_side_by_side_raises_error_of_first_failing_item(tasks: int) -> None:
    last = anyio.Event()
    begun: list[int] = []
    ended: list[int] = []

    async def work(item: int) -> int:
        begun.append(item)
        if item == 1 and tasks > 1:
            await last.wait()
        if item == 2 or (item == 1 and tasks == 1):
            last.set()
        if item in (1, 2):
            raise ValueError(f"item {item}")
        if item > 2:
            await anyio.sleep_forever()
        ended.append(item)
        return item

    with pytest.raises(ValueError, match="item 1"):
        await side_by_side(work, range(6), tasks=tasks)
    assert ended == [0]
    assert {0, 1} <= set(begun) <= set(range(tasks + 1))


async def test_side_by_side_returns_results_in_item_order() -> None:
    async def work(item: int) -> int:
        for _ in range(5 - item):
            await checkpoint()
        return item * item

    assert await side_by_side(work, iter(range(6)), tasks=3) == [0, 1, 4, 9, 16, 25]
    assert await side_by_side(work, [], tasks=3) == []


async def test_ordered_map_uses_items_in_order_within_concurrency() -> None:
    may_go = [anyio.Event() for _ in range(6)]
    begun: list[int] = []
    used: list[tuple[int, str]] = []

    async def work(item: int) -> str:
        begun.append(item)
        for later in range(item + 1, min(item + 3, 6)):
            if item % 3 == 0:  # the first of three ends after the next two
                await may_go[later].wait()
        may_go[item].set()
        return str(item)

    async def use(item: int, result: str) -> None:
        assert max(begun) - item < 3
        used.append((item, result))

    await ordered_map(range(6), work, use, concurrency=3)
    assert used == [(item, str(item)) for item in range(6)]


async def test_ordered_map_raises_first_failing_item_after_others_end() -> None:
    ended: list[int] = []

    async def work(item: int) -> int:
        try:
            for _ in range(3 - item):
                await checkpoint()
            if item:
                raise ValueError(f"item {item}")
            return item
        finally:
            ended.append(item)

    async def use(item: int, result: int) -> None:
        assert item == 0

    with pytest.raises(ValueError, match="item 1"):
        await ordered_map(range(3), work, use, concurrency=3)
    assert sorted(ended) == [0, 1, 2]
