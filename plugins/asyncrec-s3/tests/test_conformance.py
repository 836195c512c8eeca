"""S3Storage passes the kit that every storage passes, on both event loops."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio.to_thread
import pytest
from asyncrec_s3.plugin import open_s3

from asyncrec.storage.base import Storage
from asyncrec.testing.conformance import StorageConformance


class TestS3(StorageConformance):
    @pytest.fixture(autouse=True)
    def _setting(self, store: Any, proxy: Any, prefix: str) -> None:
        self.store, self.proxy, self.prefix = store, proxy, prefix
        self.opened = 0

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.opened += 1
        root = f"s3://{self.store.bucket}/{self.prefix}/{self.opened}"
        async with open_s3(root, endpoint_url=self.proxy.endpoint, chunk_size=5 << 20) as storage:
            yield storage

    def _key(self, storage: Storage, key: str) -> str:
        return f"{storage.root.removeprefix(f's3://{self.store.bucket}/')}/{key}"

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        await anyio.to_thread.run_sync(self.store.put, self._key(storage, key), data)

    async def raw_put_many(self, storage: Storage, keys: Collection[str]) -> None:
        await anyio.to_thread.run_sync(self.store.put_many, [self._key(storage, key) for key in keys])

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        return await anyio.to_thread.run_sync(self.store.get, self._key(storage, key))

    async def raw_list(self, storage: Storage) -> Collection[str]:
        root = self._key(storage, "")
        return [key[len(root) :] for key in await anyio.to_thread.run_sync(self.store.keys, root)]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return await anyio.to_thread.run_sync(partial(self.store.unfinished, self._key(storage, "")))
