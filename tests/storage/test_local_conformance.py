"""The local backend passes the storage kit that every backend must pass."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing import replaces_case

from .folder_cases import FolderConformance


class TestLocalStorage(FolderConformance):
    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        yield LocalStorage(self.folder, chunk_size=64 << 10)

    def by_url(self, storage: Storage) -> tuple[str, Mapping[str, Any]]:
        return f"file://{self.folder}", {"chunk_size": 64 << 10}

    @replaces_case("a name in a file system is a file or a folder")
    async def test_key_that_is_also_a_folder(self) -> None:
        async with self.open_storage() as storage:
            await storage.put("m", b"file")
            with pytest.raises(
                StorageError, match="Not a directory; one of the folders in this path is a file: choose another key"
            ):
                await storage.put("m/1", b"x")
            await storage.put("n/1", b"x")
            with pytest.raises(StorageError, match=r"n: .*a folder with this name exists"):
                await storage.put("n", b"file")
            with pytest.raises(StorageError, match=r"n: .*a folder with this name exists"):
                await storage.put("n", b"file", exclusive=True)
            with pytest.raises(ObjectNotFoundError, match="folder"):
                await storage.get("n")
            assert set(await self.raw_list(storage)) == {"m", "n/1"}
            assert not await self.raw_unfinished(storage)
