"""`Download`: the body of a response, in blocks as they arrive."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import anyio

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage.http import StraightBody

from .errors import Limited

# Bytes read from a body at a time: a step of the loop copies no more.
_BLOCK = 256 << 10
# Seconds for closing the rest of a body that is not needed.
_CLOSE_SECONDS = 2.0


class Download:
    """A body in transit. It holds a connection until it is complete or closed.

    Its blocks are not joined, because the copy would be most of the cost of reading.

    Args:
        body: the body of the SDK's response.
        size: the expected number of bytes.
        what: the object, for errors.
        patience: seconds without a byte after which the request fails.
    """

    def __init__(self, body: Any, size: int, what: str, patience: float) -> None:
        self._body = body
        self._size = self._missing = size
        self._what = what
        self._patience = patience
        # httpx's body is iterated here, because the SDK would leave an abandoned body to the garbage collector.
        raw: Any = getattr(body, "raw_stream", None)
        self._chunks: AsyncGenerator[bytes] | None = raw.aiter_raw() if hasattr(raw, "aiter_raw") else None
        self._straight = StraightBody.of(raw, size) if isinstance(raw, aiohttp.ClientResponse) else None

    async def receive(self, size: int) -> Sequence[bytes]:
        """Receive blocks of ``size`` bytes together, or up to 512 KiB more; fewer if the body ends or breaks off.

        If cancelled, the bytes received are lost, and the download cannot be used again.

        Raises:
            TransientStorageError: no byte arrived.
            StorageError: more bytes arrived than were requested.
        """
        blocks: list[bytes] = []
        came = 0
        wanted = min(size, self._missing)
        try:
            with Limited(self._what, "same", self._patience, size):
                # Read to the very end, which returns the connection. So the last read finds nothing.
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
        """Receive all blocks, or fewer if the body breaks off, but at least one; then close the body.

        Raises:
            TransientStorageError, StorageError: as `receive`.
        """
        try:
            return await self.receive(self._size)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Return the connection if the body is complete, otherwise close it: shielded, within two seconds."""
        if self._straight is not None:
            self._straight.leave()
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._body.aclose()
            # httpx's generators are nested five deep, and not all close the inner one: they end by reading a closed
            # stream.
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
