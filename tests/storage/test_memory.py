"""The memory backend, and a prefix of it, against the kit that every backend passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from crc32c import crc32c

from asyncrec.errors import StorageError
from asyncrec.storage.base import Storage, UnfinishedUploads
from asyncrec.storage.local import LocalStorage
from asyncrec.storage.memory import MemoryStorage, open_memory
from asyncrec.storage.prefixed import PrefixedStorage
from asyncrec.testing import StorageConformance

pytestmark = pytest.mark.anyio


class TestMemoryStorage(StorageConformance):
    inside = ""

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.memory = MemoryStorage()
        yield self.memory

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        self.memory._publish(self.inside + key, data, crc32c(data), exclusive=False)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        found = self.memory._store.objects.get(self.inside + key)
        return None if found is None else found.data

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [key[len(self.inside) :] for key in self.memory._store.objects if key.startswith(self.inside)]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return []


class TestPrefixedStorage(TestMemoryStorage):
    inside = "some/where/"

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.memory = MemoryStorage("")
        self.memory._store.objects.clear()
        await self.memory.put("some/wherever", b"beside")
        await self.memory.put("some/where", b"the folder's own name")
        await self.memory.put("zzz", b"after")
        yield PrefixedStorage(self.memory, "some/where")


async def test_storages_of_one_name_share_their_objects() -> None:
    await MemoryStorage("shared").put("x", b"1")
    assert await MemoryStorage("shared").get("x") == b"1"
    async with open_memory("memory://shared") as storage:
        assert await storage.get("x") == b"1"
    async with open_memory("memory://shared/deep/er") as storage:
        assert storage.root == "memory://shared/deep/er"
        await storage.put("y", b"2")
    assert await MemoryStorage("shared").get("deep/er/y") == b"2"
    assert [info.key async for info in MemoryStorage().list_objects()] == []


async def test_an_error_of_the_prefixed_names_the_whole_path() -> None:
    with pytest.raises(StorageError, match="memory://named/a/b: there is no such object"):
        await PrefixedStorage(MemoryStorage("named"), "a/").get("b")


async def test_a_prefix_offers_unfinished_uploads_where_its_storage_does(tmp_path: Path) -> None:
    for folder in ("a", "ab"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / ".x.1234.partial").write_bytes(b"")
    below = PrefixedStorage(LocalStorage(tmp_path), "a")
    assert not isinstance(PrefixedStorage(MemoryStorage(), "a"), UnfinishedUploads)
    assert isinstance(below, UnfinishedUploads)
    (unfinished,) = [info async for info in below.list_unfinished()]
    assert unfinished.key == ".x.1234.partial"
    await below.remove_unfinished(unfinished)
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.partial")] == ["ab/.x.1234.partial"]


@pytest.mark.parametrize("prefix", ["", "/", "../x", "/abs"])
async def test_a_prefix_is_held_to_the_rules_of_keys(prefix: str) -> None:
    with pytest.raises(ValueError, match="key"):
        PrefixedStorage(MemoryStorage(), prefix)


async def test_a_chunk_size_is_a_positive_number() -> None:
    with pytest.raises(ValueError, match="chunk_size"):
        MemoryStorage(chunk_size=0)
