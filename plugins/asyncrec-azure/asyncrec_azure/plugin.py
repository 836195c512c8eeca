"""The plugin's hook, which returns its storage factory. The SDK is imported when a storage is opened."""

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
async def open_azure(url: str, **options: Any) -> AsyncIterator[Storage]:
    """Open ``az://container/prefix``, with the options of `asyncrec_azure.options.Options.of`.

    The client runs on asyncio. Under trio, it runs in a separate thread, behind a `BridgedStorage`.

    Raises:
        ValueError, TypeError: the URL or an option is invalid.
        StorageError: the file of certificate authorities is not usable.
    """
    from asyncrec.storage import BridgedStorage, PrefixedStorage, in_thread, on_asyncio

    from .options import Options

    parsed, prefix = Options.of(url, **options)
    # The imports take a few tenths of a second, once per process. In a thread, they only slow down the loop.
    await in_thread(import_module, f"{__package__}.storage")
    from .storage import open_container

    opener = partial(open_container, parsed)
    async with opener() if on_asyncio() else BridgedStorage(opener) as storage:
        yield PrefixedStorage(storage, prefix) if prefix else storage


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory(name="azure", schemes=("az", "abfs", "abfss"), open=open_azure)]
