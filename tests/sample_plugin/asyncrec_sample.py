"""What a stranger's plugin looks like: one hook, one factory, nothing of asyncrec but its public modules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from asyncrec.plugins import hookimpl
from asyncrec.storage import Storage, StorageFactory
from asyncrec.storage._memory import MemoryStorage


@asynccontextmanager
async def open_sample(url: str, *, chunk_size: int = 1_000) -> AsyncIterator[Storage]:
    yield MemoryStorage(url.partition("://")[2], chunk_size=chunk_size)


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory("sample", ("sample",), open_sample)]
