"""A storage backend for local files that uses aiofiles: ``file+aiofiles:///data/crawl``.

This is the smallest complete plugin. "Write a storage plugin" in asyncrec's documentation explains it. The entry point
names this module, whose hook returns the storage factory. Other modules are imported when a storage is opened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from asyncrec.plugins import hookimpl
from asyncrec.storage import StorageFactory

if TYPE_CHECKING:
    from asyncrec.storage import Storage

__all__ = ["asyncrec_storage_factories", "open_files"]


@asynccontextmanager
async def open_files(url: str, *, threads: int = 4, chunk_size: int = 1 << 20) -> AsyncIterator[Storage]:
    """Open the folder at ``url`` as a storage. Only asyncio is supported.

    Args:
        url: ``file+aiofiles:///absolute/folder``, percent-encoded like every file URL. The folder need not exist yet.
        threads: the number of threads in the storage's own pool. Four are enough for a disk; a network filesystem may
            benefit from more.
        chunk_size: the number of bytes per write. A write of 1 MiB takes much longer than the 60 us of a thread hop.
    """
    from concurrent.futures import ThreadPoolExecutor

    from .storage import FileStorage

    executor = ThreadPoolExecutor(threads, thread_name_prefix="asyncrec-aiofiles")
    try:
        yield FileStorage(url, executor=executor, chunk_size=chunk_size)
    finally:
        # Waiting would block the loop. It is unnecessary, because all calls have been awaited, so the threads are idle.
        executor.shutdown(wait=False)


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory("aiofiles", ("file+aiofiles",), open_files, backends=frozenset({"asyncio"}))]
