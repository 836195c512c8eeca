"""A generator and a serializer run in the right thread, a limited number of items ahead, and stop cleanly."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint

from asyncrec._datasets.from_generator.source import Example, run

pytestmark = pytest.mark.anyio


class Kept:
    """A sink that keeps the added items."""

    def __init__(self) -> None:
        self.size = 0
        self.taken: list[tuple[Any, bytes]] = []
        self.threads: set[int] = set()
        self.most_waiting = 0
        self.given = 0

    def prepare(self, item: Example) -> Example:
        self.most_waiting = max(self.most_waiting, self.given - len(self.taken))
        return item

    def take(self, example: Example, record: bytes) -> None:
        self.threads.add(threading.get_ident())
        self.size += len(record)
        self.taken.append((example[0], record))


def padded(features: Mapping[str, Any]) -> bytes:
    return bytes(features["size"])


async def test_async_generator_examples_are_batched_by_bytes() -> None:
    """A batch has at most 1 MiB: all 256 small examples, but only a few large ones."""
    for size, most in ((100, 256), (1 << 20, 3), (100 << 10, 12)):
        kept = Kept()

        async def examples(kept: Kept, size: int) -> AsyncIterator[Example]:
            for i in range(600 if size < 1000 else 30):
                kept.given += 1
                yield i, {"size": size}

        await run(examples, {"kept": kept, "size": size}, padded, kept)
        assert [key for key, _ in kept.taken] == list(range(kept.given))
        assert kept.most_waiting <= most
        assert threading.get_ident() not in kept.threads


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_error_of_serializer_closes_generator(asynchronous: bool) -> None:
    closed = []

    def sync() -> Iterator[Example]:
        try:
            for i in range(1000):
                yield i, {"size": i}
        finally:
            closed.append("sync")

    async def later() -> AsyncIterator[Example]:
        try:
            for i in range(1000):
                yield i, {"size": i}
        finally:
            closed.append("async")

    def fails(features: Mapping[str, Any]) -> bytes:
        raise LookupError("no such word")

    with pytest.raises(LookupError, match="no such word"):
        await run(later if asynchronous else sync, {}, fails, Kept())
    assert closed == ["async" if asynchronous else "sync"]


async def test_cancelled_asynchronous_generator_is_closed() -> None:
    closed = []
    waiting = anyio.Event()

    async def examples() -> AsyncIterator[Example]:
        try:
            yield 0, {"size": 1}
            waiting.set()
            await anyio.sleep_forever()
        finally:
            closed.append(True)

    kept = Kept()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, examples, {}, padded, kept)
        await waiting.wait()
        tasks.cancel_scope.cancel()
    assert closed == [True]
    assert len(kept.taken) == 1


async def test_event_loop_runs_while_generator_blocks() -> None:
    turns = 0
    enough = threading.Event()

    def blocking() -> Iterator[Example]:
        yield 0, {"size": 1}
        assert enough.wait(60)
        yield 1, {"size": 1}

    async def turn() -> None:
        nonlocal turns
        while turns < 1000:
            turns += 1
            await checkpoint()
        enough.set()

    kept = Kept()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        tasks.start_soon(run, blocking, {}, padded, kept)
    assert len(kept.taken) == 2
