"""Compaction loses no shard, whether another compaction runs at the same time or the store lies."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest
from anyio.abc import TaskGroup

import asyncrec
from asyncrec import tools
from asyncrec.errors import AsyncRecError
from asyncrec.storage import MemoryStorage, Storage

from .met_storage import MetStorage

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # requests to a store are the same on both event loops


async def write(storage: Storage, record: bytes) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        await writer.write(record)


async def records(storage: Storage) -> list[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return sorted([record async for record in dataset])


class Held(MetStorage):
    """A store that blocks before its ``number``-th publication until it is released."""

    def __init__(self, storage: Storage, number: int) -> None:
        super().__init__(storage, before=self._hold)
        self._left = number
        self.stopped, self.go = anyio.Event(), anyio.Event()

    async def _hold(self, operation: str, key: str) -> None:
        self._left -= operation == "publish"
        if operation == "publish" and self._left == 0:
            self.stopped.set()
            await self.go.wait()


async def test_two_compactions_at_any_step_lose_nothing() -> None:
    """The second is about to make its own checkpoint while the first one deletes."""
    alone = MetStorage(MemoryStorage())
    await write(alone.beneath, b"1")
    await tools.compact("pages", storage=alone, manifest_only=True)
    published = [operation for operation, _ in alone.operations].count("publish")
    first_published = [number for number, (what, _) in enumerate(alone.operations, 1) if what == "publish"][-1]
    for step in range(first_published + 1, len(alone.operations) + 1):
        store = MemoryStorage()
        await write(store, b"1")
        held = Held(store, published)

        async def compact_held(group: TaskGroup, store: Storage = store, held: Held = held) -> None:
            await write(store, b"2")

            async def compact() -> None:
                await tools.compact("pages", storage=held, manifest_only=True)
                held.stopped.set()

            group.start_soon(compact)
            await held.stopped.wait()

        async with anyio.create_task_group() as group:
            met = MetStorage(store)

            async def meet(operation: str, key: str, met: MetStorage = met, step: int = step) -> None:
                if len(met.operations) + 1 == step:
                    await compact_held(group)  # it ends before the group does

            met.before = meet
            await tools.compact("pages", storage=met, manifest_only=True)
            held.go.set()
        assert held.stopped.is_set()
        assert await records(store) == [b"1", b"2"], step


@pytest.mark.parametrize("lies_about", [0, 1])
async def test_compaction_on_lying_store_loses_nothing(lies_about: int) -> None:
    """The store confirms the object that it was sent, but actually contains an object from an hour earlier."""
    store = MemoryStorage()
    kept: list[bytes] = []
    made = 0

    async def keep(operation: str, key: str) -> None:
        if operation == "publish":
            kept.append(await store.get(key))

    async def lie(operation: str, key: str) -> None:
        nonlocal made
        if operation == "publish":
            if made == lies_about:
                await store.put(key, kept[made])
            made += 1

    met = MetStorage(store)
    await write(store, b"1")
    met.after = keep
    await tools.compact("pages", storage=met, manifest_only=True)
    await write(store, b"2")
    await met.age(hours=2)
    met.after = lie
    with suppress(AsyncRecError):
        await tools.compact("pages", storage=met, manifest_only=True)
    assert made > lies_about
    assert await records(store) == [b"1", b"2"]
