"""`ReadAhead` works one step ahead of the caller that takes its results."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from asyncrec._concurrency.read_ahead import ReadAhead
from asyncrec._concurrency.tasks import TaskScope

pytestmark = pytest.mark.anyio


async def test_read_ahead_fetches_exactly_one_result() -> None:
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


async def test_read_ahead_raises_fetch_error_on_each_call() -> None:
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


async def test_read_ahead_returns_item_after_cancelled_wait() -> None:
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


async def test_read_ahead_cancel_abandons_running_fetch() -> None:
    ended: list[int] = []

    async def fetch(number: int) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(number)

    async with TaskScope() as scope:
        ahead = ReadAhead(scope, iter(range(5)), fetch)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(ahead.next)
                await anyio.wait_all_tasks_blocked()
                ahead.cancel()
        assert ended == [0]
        assert await ahead.next() is None
