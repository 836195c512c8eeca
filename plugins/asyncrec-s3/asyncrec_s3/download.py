"""`Download` is the body of a response, returned in blocks as they arrive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import anyio

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage.http import StraightBody

from .errors import Limited

# The maximum number of bytes copied from a body in one iteration of the event loop.
_BLOCK = 256 << 10
# The time limit in seconds for closing an unfinished body.
_CLOSE_SECONDS = 2.0


class Download:
    """A body in transit. It occupies a connection until it is complete or closed.

    The blocks are not joined, because copying them would dominate the cost of reading.

    Args:
        body: the body of the SDK's response.
        size: the expected number of bytes.
        what: the object, for error messages.
        patience: the seconds without a byte after which the request fails.
    """

    def __init__(self, body: Any, size: int, what: str, patience: float) -> None:
        self._body = body
        self._size = self._missing = size
        self._what = what
        self._patience = patience
        # Iterate over httpx's body here, because the SDK would leave an abandoned body to the garbage collector.
        raw: Any = getattr(body, "raw_stream", None)
        self._chunks: AsyncGenerator[bytes] | None = raw.aiter_raw() if hasattr(raw, "aiter_raw") else None
        self._straight = StraightBody.of(raw, size) if isinstance(raw, aiohttp.ClientResponse) else None

    async def receive(self, size: int) -> Sequence[bytes]:
        """Return blocks with a total of ``size`` bytes or up to 512 KiB more, or fewer bytes if the body ends early.

        If cancelled, the received bytes are lost, and the download cannot be used again.

        Raises:
            TransientStorageError: no bytes arrived.
            StorageError: more bytes arrived than were requested.
        """
        blocks: list[bytes] = []
        came = 0
        wanted = min(size, self._missing)
        try:
            with Limited(self._what, "same", self._patience, size):
                # Read until a read returns no bytes, because only that releases the connection.
                while came < wanted or not self._missing:
                    block = await self._next()
                    if not block:
                        break
                    if len(block) > self._missing:
                        raise StorageError(f"{self._what}: the store sent more than the {self._size:,} bytes requested")
                    blocks.append(block)
                    came += len(block)
                    self._missing -= len(block)
        except TransientStorageError:
            if not blocks:
                raise
        if not blocks:
            raise TransientStorageError(
                f"{self._what}: the response ended early: {self._missing:,} of {self._size:,} bytes are missing"
            )
        return blocks

    async def whole(self) -> Sequence[bytes]:
        """Return all blocks (or fewer, but at least one, if the connection fails) and close the body.

        Raises:
            TransientStorageError, StorageError: as for `receive`.
        """
        try:
            return await self.receive(self._size)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Return the connection to the pool if the body is complete, or close it. Shielded for at most two seconds."""
        if self._straight is not None:
            self._straight.leave()
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._body.aclose()
            # httpx nests five generators, and some do not close the inner one. Reading from the closed stream ends
            # them.
            with suppress(Exception):
                while self._chunks is not None and await self._next():
                    pass

    async def _next(self) -> bytes:
        if self._chunks is not None:
            return await anext(self._chunks, b"")
        if self._straight is not None:
            return await self._straight.read()
        block: bytes = await self._body.read(_BLOCK)
        return block
