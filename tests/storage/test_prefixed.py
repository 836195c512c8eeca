"""A storage limited to a prefix passes the kit that every backend must pass, and hides objects outside the prefix."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from asyncrec.errors import StorageError
from asyncrec.storage import BridgedStorage
from asyncrec.storage._base import ByteSource, ObjectInfo, Storage, UnfinishedUploads
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.storage._prefixed import PrefixedStorage
from asyncrec.testing import StorageConformance

pytestmark = pytest.mark.anyio

INSIDE = "some/where/"


class TestPrefixedStorage(StorageConformance):
    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.memory = MemoryStorage()
        for key in ("some/wherever", "some/where", "a", "zzz"):
            await self.memory.put(key, b"beside")
        yield PrefixedStorage(self.memory, "some/where")
        for key in ("some/wherever", "some/where", "a", "zzz"):
            assert await self.memory.get(key) == b"beside"

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        await self.memory.put(INSIDE + key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        found = self.memory._objects.get(INSIDE + key)
        return None if found is None else found.data

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [key.removeprefix(INSIDE) for key in self.memory._objects if key.startswith(INSIDE)]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return []


async def test_prefixed_storage_error_names_whole_path() -> None:
    with pytest.raises(StorageError, match="memory://named/a/b: the object does not exist"):
        await PrefixedStorage(MemoryStorage("named"), "a/").get("b")


class _Holding(MemoryStorage):
    """A storage whose sources keep two bytes buffered after each response."""

    @asynccontextmanager
    async def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AsyncIterator[ByteSource]:
        async with super().open_source(key, start=start, end=end, info=info) as source:
            yield _Ahead(source)


class _Ahead(ByteSource):
    def __init__(self, inner: ByteSource) -> None:
        self._inner, self.info = inner, inner.info

    async def receive(self, max_bytes: int) -> bytes:
        self.buffered = 2
        return await self._inner.receive(max_bytes)


@pytest.mark.parametrize("behind", ["a prefix", "a bridge"])
async def test_buffered_size_is_visible_through_prefix_and_bridge(behind: str) -> None:
    """The buffered bytes count against the limit of a caller that reads ahead."""
    inner = _Holding()
    await inner.put("a/b", b"bytes")
    async with AsyncExitStack() as stack:
        storage: Storage = PrefixedStorage(inner, "a")
        if behind == "a bridge":
            storage = await stack.enter_async_context(BridgedStorage(lambda: nullcontext(PrefixedStorage(inner, "a"))))
        async with storage.open_source("b") as source:
            assert source.buffered == 0
            await source.receive(1)
            assert source.buffered == 2


async def test_storage_properties_are_visible_through_prefix() -> None:
    inner = MemoryStorage()
    inner.read_ahead, inner.flush_level, inner.lists_by_pages = 123, "spooled", False
    below = PrefixedStorage(inner, "a")
    assert (below.read_ahead, below.flush_level, below.lists_by_pages) == (123, "spooled", False)


async def test_prefixed_storage_supports_unfinished_uploads_like_underlying_storage(tmp_path: Path) -> None:
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
async def test_prefix_must_be_valid_key(prefix: str) -> None:
    with pytest.raises(ValueError, match="key"):
        PrefixedStorage(MemoryStorage(), prefix)
