"""`SharedClients`: one client for all storages on an event loop that agree in how to reach a store.

A data set is read through many storages at a time, one for each path that is opened. Sharing saves them the
connections, and the token, that each would otherwise get for itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager
from typing import Generic, TypeVar

import anyio
import anyio.lowlevel

K = TypeVar("K", bound=Hashable)
C = TypeVar("C")

# Seconds for closing a client's idle connections: nothing is on its way any more.
_CLOSE_SECONDS = 5.0


class SharedClients(Generic[K, C]):
    """The clients in use, one for each key and event loop: made by the first that uses it, closed by the last.

    Args:
        name: of the kind of client.
        make: makes the client of a key. Who waits for it meanwhile waits for the one that is being made.
        close: closes one. It is given five seconds.
    """

    def __init__(self, name: str, make: Callable[[K], Awaitable[C]], close: Callable[[C], Awaitable[object]]) -> None:
        self._clients: anyio.lowlevel.RunVar[dict[K, _Shared[C]]] = anyio.lowlevel.RunVar(name)
        self._make = make
        self._close = close

    @asynccontextmanager
    async def use(self, key: K) -> AsyncIterator[C]:
        """Give the client of ``key`` for as long as the context lasts.

        Raises:
            Exception: what ``make`` raises; the next that asks makes it anew.
        """
        try:
            clients = self._clients.get()
        except LookupError:
            clients = {}
            self._clients.set(clients)
        shared = clients.setdefault(key, _Shared())
        shared.users += 1
        try:
            async with shared.making:
                if shared.client is None:
                    shared.client = await self._make(key)
            yield shared.client
        finally:
            shared.users -= 1
            if not shared.users:
                del clients[key]
                if shared.client is not None:
                    with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
                        await self._close(shared.client)


class _Shared(Generic[C]):
    """A client, once it is made, and how many use it."""

    def __init__(self) -> None:
        self.users = 0
        self.making = anyio.Lock()
        self.client: C | None = None
