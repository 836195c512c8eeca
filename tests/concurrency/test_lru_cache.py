"""`asyncrec._concurrency.lru_cache` makes each value once, and keeps a limited number of values."""

from __future__ import annotations

import anyio
import pytest
from anyio.lowlevel import checkpoint

from asyncrec._concurrency.lru_cache import AsyncLRUCache

pytestmark = pytest.mark.anyio


class Maker:
    def __init__(self, size: int = 1) -> None:
        self.made = 0
        self.size = size

    async def __call__(self) -> bytes:
        self.made += 1
        await checkpoint()
        return bytes(self.size)


async def test_cache_makes_value_once_for_concurrent_callers() -> None:
    kept: AsyncLRUCache[str, bytes] = AsyncLRUCache(10, len)
    make = Maker()
    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(kept.get, "a", make)
    assert make.made == 1


async def test_cache_evicts_least_recently_used() -> None:
    kept: AsyncLRUCache[str, bytes] = AsyncLRUCache(10, len)
    make = Maker(4)
    for key in ("a", "b", "a", "c"):
        await kept.get(key, make)
    assert (make.made, kept.weight) == (3, 8)
    await kept.get("a", make)
    assert make.made == 3
    await kept.get("b", make)
    assert make.made == 4


async def test_cache_returns_but_never_keeps_overweight_value() -> None:
    kept: AsyncLRUCache[str, bytes] = AsyncLRUCache(10, len)
    assert len(await kept.get("a", Maker(99))) == 99
    await kept.get("b", Maker(3))
    assert kept.weight == 3


async def test_cache_waiter_retries_after_failed_making() -> None:
    kept: AsyncLRUCache[str, bytes] = AsyncLRUCache(10, len)
    answers: list[bytes | str] = []

    async def fail() -> bytes:
        await checkpoint()
        raise ValueError("no")

    async def ask(make: object) -> None:
        try:
            answers.append(await kept.get("a", make))  # type: ignore[arg-type]  # one of the two makers
        except ValueError:
            answers.append("failed")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, fail)
        await checkpoint()
        tasks.start_soon(ask, Maker(2))
    assert sorted(map(str, answers)) == ["b'\\x00\\x00'", "failed"]


async def test_cache_remakes_forgotten_value() -> None:
    kept: AsyncLRUCache[str, bytes] = AsyncLRUCache(10, len)
    make = Maker()
    await kept.get("a", make)
    kept.forget("a")
    kept.forget("a")
    assert kept.weight == 0
    await kept.get("a", make)
    assert make.made == 2
