"""`verify --delete` never deletes a shard that a running writer commits in the meantime."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import anyio
import pytest
from tool_data import write_pages

import asyncrec
from asyncrec import tools
from asyncrec.storage._base import ByteSink, ObjectInfo
from asyncrec.storage._memory import MemoryStorage

pytestmark = pytest.mark.anyio


class Meeting(MemoryStorage):
    """A writer commits after `verify` has listed its published shards; `verify` continues once the writer closes."""

    def __init__(self) -> None:
        super().__init__()
        self.published, self.listed, self.ended = anyio.Event(), anyio.Event(), anyio.Event()
        self.meet = False

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        sink = super().open_sink(key, exclusive=exclusive)
        return self._when_listed(sink) if self.meet and key.startswith("_manifest/") else sink

    @asynccontextmanager
    async def _when_listed(self, sink: AbstractAsyncContextManager[ByteSink]) -> AsyncIterator[ByteSink]:
        self.published.set()
        await self.listed.wait()
        async with sink as opened:
            yield opened

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list_objects(prefix, start_after=start_after):
            yield info
        if prefix == "_keys/pages-" and self.published.is_set():
            self.listed.set()
            await self.ended.wait()


class Adopting(MemoryStorage):
    """Another `verify` adopts the orphans just before `verify --delete` retires their writer."""

    adopts = False

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        sink = super().open_sink(key, exclusive=exclusive)
        return self._when_adopted(sink) if self.adopts and key.startswith("_manifest/") else sink

    @asynccontextmanager
    async def _when_adopted(self, sink: AbstractAsyncContextManager[ByteSink]) -> AsyncIterator[ByteSink]:
        self.adopts = False
        await tools.verify("pages", adopt=True, min_age=-60, storage=self)
        async with sink as opened:
            yield opened


async def test_shard_adopted_by_another_verify_is_not_deleted() -> None:
    storage = Adopting()
    await write_pages(storage, records=10)
    await asyncrec.write_records("pages-w-000000.tfrecord", [b"found"], storage=storage)
    storage.adopts = True
    report = await tools.verify("pages", delete=True, min_age=-60, storage=storage)
    assert report.deleted == []
    found = await tools.verify("pages", storage=storage)
    assert found.ok
    assert (found.records, found.orphans) == (11, [])


@pytest.mark.parametrize(("options", "records"), [({}, 11), ({"num_shards": 2, "mode": "replace"}, 1)])
async def test_shard_committed_during_verify_is_not_deleted(options: dict[str, Any], records: int) -> None:
    storage = Meeting()
    await write_pages(storage, records=10)

    async def write() -> None:
        async with asyncrec.open_sharded_writer("pages", storage=storage, validate="none", **options) as writer:
            storage.meet = True
            await writer.write(b"meanwhile", key="its key")
        storage.ended.set()

    with anyio.fail_after(30):
        async with anyio.create_task_group() as group:
            group.start_soon(write)
            await storage.published.wait()
            report = await tools.verify("pages", delete=True, min_age=-60, storage=storage)
    assert report.deleted == []
    found = await tools.verify("pages", storage=storage)
    assert found.ok
    assert (found.records, found.orphans) == (records, [])
