from __future__ import annotations

import anyio
import pytest
from crawling.frontier import Frontier

pytestmark = pytest.mark.anyio


def frontier(limit: int = 100) -> Frontier:
    return Frontier(limit=limit, wanted=lambda url: "no" not in url)


async def test_frontier_yields_wanted_urls_once_in_order() -> None:
    urls = frontier()
    urls.add(["a", "b", "a", "no", "c", "b"])
    assert [await urls.take() for _ in range(3)] == ["a", "b", "c"]


async def test_frontier_ends_without_waiting_or_active_urls() -> None:
    urls = frontier()
    urls.add(["a"])
    assert await urls.take() == "a"
    urls.done(had=True)
    assert await urls.take() is None


async def test_task_waits_for_links_of_running_tasks() -> None:
    urls = frontier()
    urls.add(["a"])
    assert await urls.take() == "a"
    taken: list[str | None] = []

    async def take() -> None:
        taken.append(await urls.take())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(take)
        await anyio.wait_all_tasks_blocked()
        assert taken == []
        urls.done(links=["b"], had=True)
    assert taken == ["b"]


async def test_limit_counts_fetched_pages_only() -> None:
    urls = frontier(limit=2)
    urls.add("abcdef")
    taken = []
    while (url := await urls.take()) is not None:
        taken.append(url)
        urls.done(had=url not in "ac")
    assert taken == ["a", "b", "c", "d"]


async def test_running_tasks_never_exceed_remaining_pages() -> None:
    urls = frontier(limit=2)
    urls.add("abcdef")
    assert [await urls.take(), await urls.take()] == ["a", "b"]
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(urls.take)
            await anyio.wait_all_tasks_blocked()
            scope.cancel()
    assert scope.cancelled_caught, "a third URL was handed out while two of two were at work"
    urls.done(had=False)
    assert await urls.take() == "c"
