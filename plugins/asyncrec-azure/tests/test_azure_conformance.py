"""The plugin passes the storage kit, on asyncio and, through the bridge, on trio."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any

import pytest
from asyncrec_azure.plugin import open_azure
from azure_api import FakeAzure
from azure_opening import CHUNK, KEY
from serving import Fault, nothing

from asyncrec.storage import Storage
from asyncrec.testing import StorageConformance, replaces_case
from asyncrec.testing._storage.hooks import by_bytes, keys_of
from asyncrec.testing._storage.keys import ODD_KEYS


class AzureCases(StorageConformance):
    """The kit's cases, with one replaced."""

    @replaces_case("Azure takes a backslash in a name for a slash, so that such a key is refused; all others are kept")
    async def test_odd_keys(self) -> None:
        keys = [key for key in ODD_KEYS if "\\" not in key]
        async with self.open_storage() as storage:
            with pytest.raises(ValueError, match="backslash"):
                await storage.put("a\\b", b"x")
            for key in keys:
                await storage.put(key, key.encode())
                assert await self.raw_get(storage, key) == key.encode()
            assert set(await self.raw_list(storage)) == set(keys)
            assert await keys_of(storage) == by_bytes(keys)
            for key in keys:
                assert await storage.get(key) == key.encode()
                assert (await storage.head(key)).key == key
                await storage.delete(key)
            assert not await self.raw_list(storage)

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        """Return nothing: uncommitted blocks can be neither listed nor removed, but they expire."""
        return []


class TestAzureStorage(AzureCases):
    prefix = ""

    @pytest.fixture(autouse=True)
    def store(self, azure: FakeAzure) -> None:
        self.azure = azure

    def open_storage(self) -> AbstractAsyncContextManager[Storage]:
        url, options = self.by_url(None)
        return open_azure(url, **options)

    def by_url(self, storage: Storage | None) -> tuple[str, Mapping[str, Any]]:
        options = {"endpoint": self.azure.endpoint, "account_key": KEY, "chunk_size": CHUNK}
        return f"az://crawl/{self.prefix}", options

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        self.azure.store(self.prefix + key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        found = self.azure.blobs.get(self.prefix + key)
        return None if found is None else found.data

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [name.removeprefix(self.prefix) for name in self.azure.blobs]

    def slowed(self, storage: Storage, seconds: float) -> AbstractContextManager[None]:
        return self.azure.slowed(seconds)

    def answered_by_another(self, storage: Storage, number: int, body: bytes) -> AbstractContextManager[None]:
        return self.azure.answered_by_another(number, body)

    def answered_by_static_page(self, storage: Storage, number: int, body: bytes) -> AbstractContextManager[None]:
        return self.azure.answered_by_static_page(number, body)

    @contextmanager
    def losing_an_answer(self, storage: Storage) -> Iterator[None]:
        lost = 0

        def plan(kind: str, n: int) -> Fault | None:
            nonlocal lost
            lost += kind in ("put", "commit")
            return Fault("status-after", 500) if lost == 1 and kind in ("put", "commit") else None

        self.azure.plan = plan
        yield
        self.azure.plan = nothing
        assert lost > 1, "the request was sent again"


@pytest.mark.slow
class TestAzureStorageWithPrefix(TestAzureStorage):
    """The cases with a prefix, on a store that cannot start a listing in the middle and has small pages."""

    prefix = "some/folder/"

    @pytest.fixture(autouse=True)
    def store(self, azure: FakeAzure) -> None:
        self.azure = azure
        azure.knows_start = False
        azure.page_size = 400
