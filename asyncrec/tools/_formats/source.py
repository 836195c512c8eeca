"""`StoredFile` is the `SourceFile` through which a format reads a file in any storage."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

from asyncrec._concurrency.tasks import acquire_in_thread, in_thread, surely_in_thread
from asyncrec.storage._base import ObjectInfo, Storage
from asyncrec.storage._local.storage import LocalStorage
from asyncrec.storage._resuming_source import ResumingSource

_BLOCK = 4 << 20


class StoredFile:
    """A file in a storage, opened by `open_file_of`. It implements `asyncrec.plugins.SourceFile`."""

    def __init__(self, storage: Storage, key: str, path: str, source: ResumingSource, max_record_bytes: int) -> None:
        self.path = path
        self.max_record_bytes = max_record_bytes
        self._storage = storage
        self._key = key
        self._source = source

    async def receive(self, max_bytes: int) -> bytes:
        return bytes(await self._source.receive(max_bytes))

    @asynccontextmanager
    async def local_copy(self) -> AsyncIterator[str]:
        if isinstance(self._storage, LocalStorage):
            yield os.fspath(self._storage.path_of(self._key))
            return
        file = await acquire_in_thread(_temporary, lambda made: made.close())
        try:
            while block := await self.receive(_BLOCK):
                await in_thread(file.write, block)
            await in_thread(file.flush)
            yield file.name
        finally:
            await surely_in_thread(file.close)


@asynccontextmanager
async def open_file_of(
    storage: Storage, key: str, *, path: str, info: ObjectInfo | None = None, max_record_bytes: int
) -> AsyncIterator[StoredFile]:
    """Open the version of the file at ``key`` that ``info`` describes, for a format. Error messages contain ``path``.

    Raises: as for `ResumingSource`, here and in ``receive``.
    """
    async with ResumingSource(storage, key, info=info) as source:
        yield StoredFile(storage, key, path, source, max_record_bytes)


def _temporary() -> IO[bytes]:
    return tempfile.NamedTemporaryFile(prefix="asyncrec-convert-")
