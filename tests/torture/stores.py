"""`FolderStore`: a stand-in for a remote store without a network. Its objects are in a folder that outlives writers.

To the library, it is a remote store: its flush promises nothing, its chunks are small, and it stores checksums. It
wraps a `LocalStorage` in its own folder. A killed writer therefore leaves the same things as a killed client of a
store: complete objects, and uploads that are not visible.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

from asyncrec.storage._base import ByteSink, ByteSource, ObjectInfo, Storage
from asyncrec.storage._factory import StorageFactory
from asyncrec.storage._local.storage import LocalStorage

PREFIX = "folder"


class FolderStore(Storage):
    def __init__(self, root: str) -> None:
        self.root = root
        self._files = LocalStorage(root.removeprefix(f"{PREFIX}://") or "/", chunk_size=10_000)

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return self._files.open_sink(key, exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return self._files.open_source(key, start=start, end=end, info=info)

    def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        return self._files.list_objects(prefix, start_after=start_after)

    async def head(self, key: str) -> ObjectInfo:
        return await self._files.head(key)

    async def delete(self, key: str) -> None:
        await self._files.delete(key)


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[Storage]:
    yield FolderStore(url)


# Paths have a root and a key, like a bucket's: "folder://" and the absolute path.
FACTORY = StorageFactory(PREFIX, (PREFIX,), _open)


def url_of(folder: Path) -> str:
    return f"{PREFIX}://{folder}"
