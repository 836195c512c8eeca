"""Local files are a storage of asyncrec here, through aiofiles: ``file+aiofiles:///data/crawl``.

The smallest complete plugin; "Write a storage plugin" in asyncrec's documentation walks through it. This module is
what the entry point names: it says which schemes the plugin answers to, and imports nothing else until one is opened.
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
    """Open the folder that ``url`` names, as a storage; asyncio only.

    Args:
        url: ``file+aiofiles:///absolute/folder``, percent-encoded as every file URL. It need not exist yet.
        threads: of the pool that is this storage's own. 4 keep a disk busy; more help network file systems.
        chunk_size: bytes per write. 1 MiB makes the hop to a thread, 60 us, small against the write.
    """
    from concurrent.futures import ThreadPoolExecutor

    from .storage import FileStorage

    executor = ThreadPoolExecutor(threads, thread_name_prefix="asyncrec-aiofiles")
    try:
        yield FileStorage(url, executor=executor, chunk_size=chunk_size)
    finally:
        # Without waiting, which would hold the loop: every call was awaited to its end, so the threads are idle.
        executor.shutdown(wait=False)


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory("aiofiles", ("file+aiofiles",), open_files, backends=frozenset({"asyncio"}))]
