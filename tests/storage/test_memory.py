"""The memory backend passes the kit that every backend must pass; storages with the same name share their objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

import pytest
from crc32c import crc32c

from asyncrec.storage._base import Storage
from asyncrec.storage._memory import MemoryStorage, open_memory
from asyncrec.testing import StorageConformance

pytestmark = pytest.mark.anyio


class TestMemoryStorage(StorageConformance):
    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.memory = MemoryStorage()
        yield self.memory

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        self.memory._objects.add(key, data, crc32c(data))

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        found = self.memory._objects.get(key)
        return None if found is None else found.data

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return list(self.memory._objects)

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return []


async def test_memory_storages_of_same_name_share_objects() -> None:
    await MemoryStorage("shared").put("x", b"1")
    assert await MemoryStorage("shared").get("x") == b"1"
    async with open_memory("memory://shared") as storage:
        assert await storage.get("x") == b"1"
    async with open_memory("memory://shared/deep/er") as storage:
        assert storage.root == "memory://shared/deep/er"
        await storage.put("y", b"2")
    assert await MemoryStorage("shared").get("deep/er/y") == b"2"
    assert [info.key async for info in MemoryStorage().list_objects()] == []


async def test_chunk_size_must_be_positive() -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        MemoryStorage(chunk_size=0)
