"""`HttpStorage` is a web server as a read-only `Storage`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn

from asyncrec.errors import ArgumentTypeError
from asyncrec.storage import ByteSource, ObjectInfo, ReadOnlyStorage, Storage, check_key

from .options import Options
from .server import SERVERS, Server
from .source import HttpSource, look


class HttpStorage(ReadOnlyStorage):
    """A web server as a `Storage`, whose keys are paths, escaped or not, optionally with a query.

    A storage belongs to its event loop and cannot be pickled. Another process must open its own storage.
    """

    read_ahead = 2 * HttpSource.window
    why = "a web server has neither all-or-nothing uploads nor listings, so asyncrec only reads from it"

    def __init__(self, server: Server) -> None:
        self.root = server.options.root
        self._server = server

    def __repr__(self) -> str:
        return f"HttpStorage({self.root!r})"

    def __reduce__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{self!r} cannot be sent to another process; open another storage there with the same options"
        )

    def open_source(
        self, key: str, *, start: int = 0, end: int | None = None, info: ObjectInfo | None = None
    ) -> AbstractAsyncContextManager[ByteSource]:
        return HttpSource(self._server, check_key(key), start=start, end=end, info=info)

    async def head(self, key: str) -> ObjectInfo:
        version, _ = await look(self._server, check_key(key))
        return version.info(key)


@asynccontextmanager
async def open_server(options: Options) -> AsyncIterator[Storage]:
    """Open the storage for ``options``.

    Raises:
        StorageError: the file of certificate authorities is not usable.
    """
    async with SERVERS.use(options) as server:
        yield HttpStorage(server)
