"""S3Storage passes the storage kit on both event loops."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from functools import partial
from typing import Any

import anyio.to_thread
import pytest
from asyncrec_s3.plugin import open_s3
from s3_store import KIND

from asyncrec.errors import StorageError
from asyncrec.storage._base import Storage
from asyncrec.testing import StorageConformance, replaces_case
from asyncrec.testing._storage import keys as key_cases
from asyncrec.testing._storage.hooks import keys_of


class _S3(StorageConformance):
    @pytest.fixture(autouse=True)
    def _setting(self, store: Any, proxy: Any, prefix: str) -> None:
        self.store, self.proxy, self.prefix = store, proxy, prefix
        self.opened = 0

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        self.opened += 1
        root = f"s3://{self.store.bucket}/{self.prefix}/{self.opened}"
        async with open_s3(root, **self.options()) as storage:
            yield storage

    def options(self) -> Mapping[str, Any]:
        return {"endpoint_url": self.proxy.endpoint, "chunk_size": 5 << 20}

    def by_url(self, storage: Storage) -> tuple[str, Mapping[str, Any]]:
        return f"s3://{self.store.bucket}/{self.prefix}/{self.opened}", self.options()

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

    @contextmanager
    def slowed(self, storage: Storage, seconds: float) -> Iterator[None]:
        self.proxy.late = seconds
        yield
        self.proxy.late = 0.0

    @contextmanager
    def losing_an_answer(self, storage: Storage) -> Iterator[None]:
        lost: list[str] = []

        def plan(request: Any) -> str | None:
            if lost or request.operation not in ("PutObject", "CompleteMultipartUpload"):
                return None
            lost.append(request.operation)
            return "reset-after"

        self.proxy.plan = plan
        yield
        self.proxy.plan = lambda request: None
        assert lost

    def answered_by_another(self, storage: Storage, number: int, body: bytes) -> AbstractContextManager[None]:
        return self._foreign(number, body, {})

    def answered_by_static_page(self, storage: Storage, number: int, body: bytes) -> AbstractContextManager[None]:
        return self._foreign(number, body, {"ETag": '"65f0-2a"', "Last-Modified": "Mon, 02 Mar 2026 10:00:00 GMT"})

    @contextmanager
    def _foreign(self, number: int, body: bytes, headers: dict[str, str]) -> Iterator[None]:
        requests = itertools.count(1)
        self.proxy.page = 200, headers, body
        self.proxy.plan = lambda request: "page" if next(requests) == number else None
        yield
        self.proxy.plan = lambda request: None


if KIND == "seaweedfs":
    FOLDERS = "SeaweedFS lists folder by folder, so that 'b/z/z' comes before 'b/z-1', which S3's order puts first"

    class TestS3(_S3):
        @replaces_case(FOLDERS)
        async def test_listing_order(self) -> None:
            """A listing in the wrong order raises an error; within a folder, the order is right."""
            keys = ["b/z/z", "b/z-1", "b/a", "c/2", "c/10"]
            async with self.open_storage() as storage:
                await self.raw_put_many(storage, keys)
                with pytest.raises(StorageError, match=r"'.*b/z-1' was listed after '.*b/z/z'"):
                    await keys_of(storage)
                assert await keys_of(storage, "c/") == ["c/10", "c/2"]

        @replaces_case(FOLDERS)
        async def test_listing_start_after(self) -> None:
            """Within a folder, ``start_after`` omits all keys up to and including itself."""
            keys = ["a/1", "a/2", "a/25", "a/3", "b/1"]
            async with self.open_storage() as storage:
                await self.raw_put_many(storage, keys)
                for after in ("", "a/0", *keys, "a/24", "z"):
                    expected = [key for key in keys if key.startswith("a/") and key > after]
                    assert await keys_of(storage, "a/", start_after=after) == expected

        @replaces_case("SeaweedFS takes a backslash for a slash")
        async def test_odd_keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
            """All other keys refer only to themselves."""
            others = tuple(key for key in key_cases.ODD_KEYS if "\\" not in key)
            monkeypatch.setattr(key_cases, "ODD_KEYS", others)
            await super().test_odd_keys()

        @replaces_case("SeaweedFS takes 'm/1' for the end of a listing of 'm/1', and leaves out what is in that folder")
        async def test_key_that_is_also_a_folder(self) -> None:
            """A key may also be the folder of another one: they are two objects, whichever is created first."""
            async with self.open_storage() as storage:
                for keys in (["n/1/x", "n/1", "n"], ["m", "m/1", "m/1/x"]):
                    for key in keys:
                        await storage.put(key, key.encode())
                    for key in keys:
                        assert await self.raw_get(storage, key) == await storage.get(key) == key.encode()
                assert await keys_of(storage) == ["m", "m/1", "m/1/x", "n", "n/1", "n/1/x"]
                await storage.delete("n/1")
                assert await keys_of(storage, "n") == ["n", "n/1/x"]

else:

    class TestS3(_S3):
        """All cases of the kit."""

    @pytest.mark.slow
    class TestS3LikeCeph(_S3):
        """The cases with a store that honours conditions of puts but not of completions, and keeps no CRC32C."""

        exclusive_parts = False  # if two uploads check before either completes, the last one wins

        @pytest.fixture(autouse=True)
        def _ceph(self, _setting: None) -> None:
            self.proxy.ignores = frozenset({"CompleteMultipartUpload"})
            self.proxy.echoes = False
