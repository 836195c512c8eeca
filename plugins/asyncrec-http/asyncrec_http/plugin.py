"""The plugin's hook, which returns its storage factory. The client library is imported when a storage is opened."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

from asyncrec.plugins import hookimpl
from asyncrec.storage import StorageFactory

if TYPE_CHECKING:
    from asyncrec.storage import Storage


@asynccontextmanager
async def open_http(url: str, **options: Any) -> AsyncIterator[Storage]:
    """Open ``https://host`` or ``https://host/folder``, with the options of `asyncrec_http.options.Options.of`.

    Raises:
        ValueError, TypeError: the URL or an option is invalid.
        StorageError: the file of certificate authorities is not usable.
    """
    from asyncrec.storage import PrefixedStorage, in_thread

    from .options import Options

    parsed, prefix = Options.of(url, **options)
    # The imports take a few tenths of a second, once per process. In a thread, they only slow down the loop.
    await in_thread(import_module, f"{__package__}.storage")
    from .storage import open_server

    async with open_server(parsed) as storage:
        yield PrefixedStorage(storage, prefix) if prefix else storage


@hookimpl
def asyncrec_storage_factories() -> Iterable[StorageFactory]:
    return [StorageFactory(name="http", schemes=("https", "http"), open=open_http)]
