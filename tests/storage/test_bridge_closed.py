"""Across the bridge, a sink or source that was not entered or was already exited raises at once instead of hanging."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pytest

from asyncrec.storage import BridgedStorage
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(storage: Storage) -> AsyncIterator[Storage]:
    yield storage


def bridged(storage: Storage) -> BridgedStorage:
    return BridgedStorage(partial(opened, storage))


async def test_unentered_sink_and_source_are_closed_without_waiting() -> None:
    async with bridged(MemoryStorage()) as storage:
        await storage.put("key", b"bytes")
        source, sink = storage.open_source("key"), storage.open_sink("other")
        with pytest.raises(anyio.ClosedResourceError):
            await source.receive(1)  # type: ignore[attr-defined]  # it is its own context manager
        with pytest.raises(anyio.ClosedResourceError):
            await sink.send([b"x"])  # type: ignore[attr-defined]  # likewise
        with pytest.raises(RuntimeError, match="was not entered"):
            await source.__aexit__(None, None, None)
        async with source as entered:
            assert await entered.receive(5) == b"bytes"


async def test_bridged_context_can_be_entered_once() -> None:
    async with bridged(MemoryStorage()) as storage:
        await storage.put("key", b"bytes")
        async with storage.open_source("key") as source:
            with pytest.raises(RuntimeError, match="entered once"):
                await source.__aenter__()  # type: ignore[attr-defined]  # it is its own context manager
            assert await source.receive(5) == b"bytes"


async def test_bridged_objects_are_closed_after_storage_context() -> None:
    inner = MemoryStorage()
    async with bridged(inner) as storage:
        await storage.put("key", b"bytes")
        source, sink = storage.open_source("key"), storage.open_sink("other")
        await source.__aenter__()
        await sink.__aenter__()
    with pytest.raises(anyio.ClosedResourceError):
        await storage.head("key")
    with pytest.raises(anyio.ClosedResourceError):
        async with storage.open_source("key"):
            raise AssertionError("opened")
    with pytest.raises(anyio.ClosedResourceError):
        await source.receive(1)  # type: ignore[attr-defined]  # it is its own context manager
    await source.__aexit__(ValueError, ValueError("of the body"), None)  # this error must not be replaced
    with pytest.raises(anyio.ClosedResourceError):
        await sink.__aexit__(None, None, None)
    assert [info.key async for info in inner.list_objects()] == ["key"]


async def test_call_during_end_of_storage_raises_closed_error() -> None:
    """A call that has begun on the other loop is cancelled; a call that arrives while that loop ends is never begun."""
    reached, ending, go = threading.Event(), threading.Event(), threading.Event()

    class Slow(MemoryStorage):
        async def head(self, key: str) -> ObjectInfo:
            reached.set()
            try:
                await anyio.sleep_forever()
            finally:
                ending.set()
                go.wait()  # blocks that loop while it is ending
            raise AssertionError("nothing else ends it")

    async def begun(storage: Storage) -> None:
        with pytest.raises(anyio.ClosedResourceError):
            await storage.head("key")

    async def late(storage: Storage) -> None:
        await anyio.to_thread.run_sync(ending.wait)
        try:
            with pytest.raises(anyio.ClosedResourceError), anyio.CancelScope() as scope:
                scope.cancel()  # the bridge would wait for the call anyway
                await storage.delete("key")
        finally:
            go.set()

    async with anyio.create_task_group() as group:
        async with bridged(Slow()) as storage:
            group.start_soon(begun, storage)
            group.start_soon(late, storage)
            await anyio.to_thread.run_sync(reached.wait)
