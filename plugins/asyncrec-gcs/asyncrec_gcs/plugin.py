"""The hook: which schemes, and how to open one. Importing it costs nothing; the client's library comes on opening."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import Any

import anyio.to_thread

from asyncrec.storage.base import Storage, StorageFactory
from asyncrec.storage.bridge import BridgedStorage, on_asyncio
from asyncrec.storage.hookspecs import hookimpl
from asyncrec.storage.prefixed import PrefixedStorage

from .options import Options

__all__ = ["asyncrec_storage_factories", "open_gcs"]


@asynccontextmanager
async def open_gcs(url: str, **options: Any) -> AsyncIterator[Storage]:
    """``gs://bucket`` or ``gs://bucket/prefix``, with the fields of `asyncrec_gcs.options.Options` as options.

    The client runs on asyncio; under trio it runs on a thread of its own, behind `BridgedStorage`.

    Raises:
        ValueError, TypeError: the URL or an option cannot be.
        StoragePermissionError: the file of credentials cannot be used.
    """
    parsed, prefix = Options.of(url, **options)
    # Its imports take some tenths of a second, once per process; in a thread the loop goes on, if haltingly.
    await anyio.to_thread.run_sync(import_module, f"{__package__}.storage")
    from .storage import open_bucket

    opener = partial(open_bucket, parsed)
    async with opener() if on_asyncio() else BridgedStorage(opener) as storage:
        yield PrefixedStorage(storage, prefix) if prefix else storage


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory(name="gcs", schemes=("gs", "gcs"), open=open_gcs)]
