"""`AzureStorage` is a container as a `Storage`. It needs asyncio; `asyncrec_azure.plugin` bridges it to trio."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

from asyncrec.errors import ArgumentTypeError, ArgumentValueError
from asyncrec.storage import DEFAULT, ByteSink, ByteSource, ObjectInfo, RetryPolicy, Storage, TaskScope, check_key

from .client import CLIENTS
from .container import Container
from .listing import pages
from .options import Options
from .sink import AzureSink
from .source import WINDOW, AzureSource


class AzureStorage(Storage):
    """A container as a `Storage`, whose keys are the blobs' names and whose etags are their ETags.

    A storage belongs to its event loop and cannot be pickled. Another process must open its own storage.
    """

    read_ahead = 2 * WINDOW  # one window is processed while the next one arrives

    def __init__(self, container: Container) -> None:
        self.root = container.root
        self._container = container

    def __repr__(self) -> str:
        return f"AzureStorage({self.root!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self!r} cannot be sent to another process; open another storage there with the same options"
        )

    def open_sink(self, key: str, *, exclusive: bool = False) -> AbstractAsyncContextManager[ByteSink]:
        return AzureSink(self._container, _checked(key), exclusive=exclusive)

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return AzureSource(self._container, _checked(key), start=start, end=end, info=info)

    async def list_objects(self, prefix: str = "", *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        async for page in pages(self._container, prefix, start_after):
            for info in page:
                yield info

    async def head(self, key: str) -> ObjectInfo:
        blob = self._container.blob(_checked(key))
        return (await self._container.look(key, blob, f"{self._container.shown(key)}: looking")).info

    async def delete(self, key: str) -> None:
        await self._container.remove(_checked(key))


def _checked(key: str) -> str:
    if "\\" in check_key(key):
        raise ArgumentValueError(f"the key {key!r} contains a backslash, which Azure treats as a slash")
    return key


@asynccontextmanager
async def open_container(options: Options, *, policy: RetryPolicy = DEFAULT) -> AsyncIterator[Storage]:
    """Open the storage for ``options`` on the running asyncio loop.

    Raises:
        StorageError: the file of certificate authorities is not usable.
        ValueError: the connection string is invalid.
    """
    async with CLIENTS.use(options.access) as client, TaskScope() as tasks:
        yield AzureStorage(Container(client, options, tasks, policy))
