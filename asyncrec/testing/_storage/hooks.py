"""`StorageHooks`: the hooks that a plugin's tests implement for all cases."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from typing import Any

import anyio.lowlevel
import pytest

from asyncrec.storage._base import ByteSink, Storage
from asyncrec.testing._kit import Kit


class StorageHooks(Kit):
    """The base class of all groups of cases. Its hooks open a storage and inspect it."""

    pytestmark = pytest.mark.anyio

    def open_storage(self) -> AbstractAsyncContextManager[Storage]:
        """Return a context manager that opens a new, empty storage."""
        raise self.missing("open_storage")

    async def raw_put(self, storage: Storage, key: str, data: bytes) -> None:
        """Create an object without calling methods of ``storage``."""
        raise self.missing("raw_put")

    async def raw_get(self, storage: Storage, key: str) -> bytes | None:
        """Return the content of a visible object, or `None` if it does not exist."""
        raise self.missing("raw_get")

    async def raw_list(self, storage: Storage) -> Collection[str]:
        """Return the keys of all visible objects."""
        raise self.missing("raw_list")

    async def raw_unfinished(self, storage: Storage) -> Collection[str]:
        """Return the names of the unfinished objects in the store."""
        raise self.missing("raw_unfinished")

    def losing_an_answer(self, storage: Storage) -> AbstractContextManager[object] | None:
        """Return a context manager that drops the response to one request that publishes an object.

        The request itself must take effect. Return `None` if the tests of this store cannot simulate this.
        """
        return None

    def slowed(self, storage: Storage, seconds: float) -> AbstractContextManager[object] | None:
        """Return a context manager that delays the response to each request of this storage by ``seconds``.

        The store, or a fake that the plugin calls in its place, must do the waiting, so that a call that would block
        the event loop also blocks it in the test. Return `None` if the tests of this store cannot simulate this.
        """
        return None

    def answered_by_another(self, storage: Storage, number: int, body: bytes) -> AbstractContextManager[object] | None:
        """Return a context manager in which a different server answers the ``number``-th request, counted from 1.

        That server behaves like a proxy with a sign-in page: the request never reaches the store, and the response has
        the status 200 and the body ``body``. Return `None` if the tests of this store cannot simulate this.
        """
        return None

    def answered_by_static_page(
        self, storage: Storage, number: int, body: bytes
    ) -> AbstractContextManager[object] | None:
        """Return a context manager like that of `answered_by_another`, whose response describes ``body`` as an object.

        A web server or gateway that serves its own file responds like this: with the status 200 and the headers
        ``ETag``, ``Last-Modified`` and ``Content-Length``. The body of a response to HEAD is omitted. Return `None` if
        the tests of this store cannot simulate this.
        """
        return None

    def by_url(self, storage: Storage) -> tuple[str, Mapping[str, Any]] | None:
        """Return the URL of this open storage, and the options for opening it.

        Return `None` if the storage has no URL. Cases that need a URL are then skipped.
        """
        return None

    async def raw_put_many(self, storage: Storage, keys: Collection[str]) -> None:
        """Create an object of one byte for each key. Override this if creating them one by one is slow."""
        for key in keys:
            await self.raw_put(storage, key, b"x")

    @asynccontextmanager
    async def _sinks(self) -> AsyncIterator[tuple[Storage, Callable[[str], AbstractAsyncContextManager[ByteSink]]]]:
        async with self.open_storage() as storage:
            yield storage, storage.open_sink


def check_keys(got: Collection[str], expected: Iterable[str], what: str) -> None:
    """Compare a listing's keys and their order with the expected keys. Raise an `AssertionError` that shows both."""
    right = by_bytes(expected)
    if list(got) == right:
        return
    missed, added = [key for key in right if key not in got], [key for key in got if key not in right]
    if missed or added:
        wrong = f"missing: {_some(missed)}; unexpected: {_some(added)}"
    elif len(got) != len(right):
        wrong = "some keys were listed more than once"
    else:
        wrong = "the keys are not in the order of their UTF-8 bytes"
    raise AssertionError(f"{what}: {wrong}: got {_some(got)}, expected {_some(right)}")


def _some(keys: Collection[str]) -> str:
    """Return the keys as text, limited to the first thirty."""
    first = list(keys)[:30]
    return f"{first}" if len(first) == len(keys) else f"{first} and {len(keys) - len(first):,} more"


async def chunk_of(storage: Storage) -> int:
    """Return the chunk size of a storage's sinks."""
    async with storage.open_sink("chunk") as sink:
        chunk = sink.chunk_size
    await storage.delete("chunk")
    return chunk


async def keys_of(storage: Storage, prefix: str = "", *, start_after: str = "") -> list[str]:
    """Return the keys of a listing, in the listing's order."""
    keys: list[str] = []
    listing = storage.list_objects(prefix, start_after=start_after)
    try:
        async for info in listing:
            keys.append(info.key)
            if len(keys) % 100 == 0:
                await anyio.lowlevel.checkpoint()  # allows cancellation of a listing that never ends and never waits
    finally:
        if hasattr(listing, "aclose"):
            with anyio.CancelScope(shield=True):
                await listing.aclose()
    return keys


def by_bytes(keys: Iterable[str]) -> list[str]:
    """Return ``keys`` in the order in which a listing returns them."""
    return sorted(keys, key=str.encode)
