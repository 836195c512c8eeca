"""`verify` distinguishes a shard from another one of equal size, and compares it with its store's metadata."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.storage import ByteSource, MemoryStorage, Storage
from asyncrec.testing import FlakyStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]


async def test_verify_detects_another_shard_of_equal_size(storage: Storage) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=2) as writer:
        await writer.write_many([b"1", b"2", b"3", b"4"])
    first, second = (await asyncrec.read_manifest("pages", storage=storage)).shards
    await storage.put(first.path, await storage.get(second.path))
    report = await tools.verify("pages", storage=storage)
    assert [shard.ok for shard in report.shards] == [False, True]
    assert [problem.kind for problem in report.shards[0].problems] == ["changed"]


class Mistaken(MemoryStorage):
    """Reports wrong checksums for its objects."""

    @asynccontextmanager
    async def open_source(self, key: str, **options: Any) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, **options) as source:
            source.info = replace(source.info, crc32c=(source.info.crc32c or 0) ^ 1)
            yield source


async def test_verify_reports_conflicting_store_metadata() -> None:
    storage = Mistaken()
    await asyncrec.write_records("one.tfrecord", [b"1"], storage=storage)
    report = await tools.verify("one.tfrecord", storage=storage)
    assert not report.ok
    assert [problem.kind for problem in report.shards[0].problems] == ["changed"]


async def test_verify_of_listed_shards_requests_no_owners() -> None:
    """Looking up owners would take requests for each job, and read the manifest once more."""
    storage = FlakyStorage(MemoryStorage())
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=2) as writer:
        await writer.write_many([b"1", b"2", b"3", b"4"])
    storage.operations.clear()
    assert (await tools.verify("pages", storage=storage)).orphans == []
    lists = [key for operation, key in storage.operations if operation == "list"]
    listed = [key for key in lists if key.startswith("_manifest/pages/")]
    assert listed == ["_manifest/pages/", "_manifest/pages/~keys-"]
