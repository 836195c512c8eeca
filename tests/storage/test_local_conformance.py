"""The local backend against the kit that every backend passes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from asyncrec.errors import ObjectNotFoundError, StorageError
from asyncrec.storage._base import Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.testing import StorageConformance, replaces_case


class TestLocalStorage(StorageConformance):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "root"

    @asynccontextmanager
    async def open_storage(self) -> AsyncIterator[Storage]:
        yield LocalStorage(self.folder, chunk_size=64 << 10)

    def by_url(self, storage: Storage) -> tuple[str, Mapping[str, Any]]:
        return f"file://{self.folder}", {"chunk_size": 64 << 10}

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        path = self.folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        path = self.folder / key
        return path.read_bytes() if path.is_file() else None

    async def raw_list(self, storage: Storage) -> Collection[str]:
        return [name for name in self._files() if not name.endswith(".partial")]

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        return [name for name in self._files() if name.endswith(".partial")]

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

    def _files(self) -> list[str]:
        return [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]
