"""The plugin passes the storage kit, on asyncio and, through the bridge, on trio."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from typing import Any

import pytest
from asyncrec_gcs.plugin import open_gcs
from fake_gcs import UNIT, FakeGcs, Fault, nothing, nth

from asyncrec.storage._base import Storage
from asyncrec.testing import StorageConformance


class TestGcsStorage(StorageConformance):
    @pytest.fixture(autouse=True)
    def store(self, gcs: FakeGcs) -> None:
        self.gcs = gcs

    def open_storage(self) -> AbstractAsyncContextManager[Storage]:
        url, options = self.by_url(None)
        return open_gcs(url, **options)

    def by_url(self, storage: Storage | None) -> tuple[str, Mapping[str, Any]]:
        return "gs://bucket", {"chunk_size": UNIT}

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        self.gcs.put(key, data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        found = self.gcs.objects.get(("bucket", key))
        return None if found is None else found.data

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [name for _, name in self.gcs.objects]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return self.gcs.unfinished

    def slowed(self, storage: Storage, seconds: float) -> AbstractContextManager[None]:
        return self.gcs.slowed(seconds)

    def answered_by_another(self, storage: Storage, number: int, body: bytes) -> AbstractContextManager[None]:
        return self.gcs.answered_by_another(number, body)

    def answered_by_static_page(self, storage: Storage, number: int, body: bytes) -> AbstractContextManager[None]:
        return self.gcs.answered_by_static_page(number, body)

    @contextmanager
    def losing_an_answer(self, storage: Storage) -> Iterator[None]:
        self.gcs.plan = nth(1, Fault("status-after"), "last")
        before = self.gcs.counts["query"]
        yield
        self.gcs.plan = nothing
        assert self.gcs.counts["query"] > before, "the session was asked what became of it"


class TestSparseGcsStorage(TestGcsStorage):
    """A store that omits the size of an empty object, and reports a completed session as aborted."""

    @pytest.fixture(autouse=True)
    def store(self, gcs: FakeGcs) -> None:
        self.gcs = gcs
        gcs.sparse, gcs.aborts = True, 499


@pytest.mark.slow
class TestGcsStorageWithPrefix(TestGcsStorage):
    def by_url(self, storage: Storage | None) -> tuple[str, Mapping[str, Any]]:
        return "gs://bucket/some/folder/", {"chunk_size": UNIT}

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        self.gcs.put(f"some/folder/{key}", data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        return await super().raw_get(storage, f"some/folder/{key}")

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [name.removeprefix("some/folder/") for _, name in self.gcs.objects]
