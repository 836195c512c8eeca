"""The plugin's hook, which returns its storage factory. The client library is imported when a storage is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrec.plugins import hookimpl
from asyncrec.storage import StorageFactory

if TYPE_CHECKING:
    from asyncrec.storage import Storage


@asynccontextmanager
async def open_gcs(url: str, **options: Any) -> AsyncIterator[Storage]:
    """Open ``gs://bucket`` or ``gs://bucket/prefix``, with the fields of `asyncrec_gcs.options.Options` as options.

    The client runs on asyncio. Under trio, it runs in a separate thread, behind a `BridgedStorage`.

    Raises:
        ValueError, TypeError: the URL or an option is invalid.
        StoragePermissionError: the credentials file is not usable.
    """
    from asyncrec.storage import BridgedStorage, PrefixedStorage, in_thread, on_asyncio

    from .options import Options

    parsed, prefix = Options.of(url, **options)
    # The imports take a few tenths of a second, once per process. In a thread, they only slow down the loop.
    await in_thread(import_module, f"{__package__}.storage")
    from .storage import open_bucket

    opener = partial(open_bucket, parsed)
    async with opener() if on_asyncio() else BridgedStorage(opener) as storage:
        yield PrefixedStorage(storage, prefix) if prefix else storage


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory(name="gcs", schemes=("gs", "gcs"), open=open_gcs)]
