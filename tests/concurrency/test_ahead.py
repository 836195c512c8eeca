"""`asyncrec._concurrency.ahead`: some at a time, and one step ahead."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest
from anyio.lowlevel import checkpoint

from asyncrec._concurrency.ahead import ReadAhead, concurrently
from asyncrec._concurrency.tasks import TaskScope

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("count", [0, 1, 2, 3, 50])
async def test_each_thing_is_done_once_by_so_many_tasks_at_most(count: int) -> None:
    done: list[int] = []
    running = most = 0

    async def work(item: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await checkpoint()
        done.append(item)
        running -= 1

    await concurrently(work, range(count), tasks=4)
    assert sorted(done) == list(range(count))
    assert most == min(count, 4)


@pytest.mark.parametrize("count", [1, 20])
async def test_the_first_error_ends_it_and_is_raised_as_itself(count: int) -> None:
    begun: list[int] = []

    async def work(item: int) -> None:
        begun.append(item)
        await checkpoint()
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match=r"item \d"):
        await concurrently(work, range(count), tasks=4)
    assert len(begun) <= 4


async def test_one_result_is_made_ahead_and_no_more() -> None:
    taken: list[int] = []

    def plans() -> Iterator[int]:
        for number in range(5):
            taken.append(number)
            yield number

    async def fetch(number: int) -> str:
        return f"result {number}"

    async with TaskScope() as scope:
        ahead = ReadAhead(scope, plans(), fetch)
        assert taken == []
        for number in range(5):
            assert await ahead.next() == f"result {number}"
            await anyio.wait_all_tasks_blocked()
            assert taken == list(range(min(5, number + 2)))
        assert await ahead.next() is None
        assert await ahead.next() is None


async def test_an_error_of_making_is_raised_each_time_it_is_asked() -> None:
    async def fetch(number: int) -> int:
        if number:
            raise ValueError("damaged")
        return number

    async with TaskScope() as scope:
        ahead = ReadAhead(scope, iter(range(5)), fetch)
        assert await ahead.next() == 0
        for _ in range(3):
            with pytest.raises(ValueError, match="damaged"):
                await ahead.next()


async def test_what_is_cancelled_while_waiting_is_had_by_asking_again() -> None:
    may_go = anyio.Event()

    async def fetch(number: int) -> int:
        await may_go.wait()
        return number

    async with TaskScope() as scope:
        ahead = ReadAhead(scope, iter(range(5)), fetch)
        with anyio.CancelScope() as waiting:
            waiting.cancel()
            await ahead.next()
        may_go.set()
        assert await ahead.next() == 0
        ahead.cancel()
