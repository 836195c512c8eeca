"""The storage kit for storages whose objects are files in one folder, which the tests inspect directly."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from asyncrec.storage import Storage
from asyncrec.testing import StorageConformance


class FolderConformance(StorageConformance):
    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path / "root"

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

    def _files(self) -> list[str]:
        return [str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file()]
