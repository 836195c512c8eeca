"""`Download`: the body of an answer, in blocks, as it comes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any

import aiohttp
import anyio

from asyncrec.errors import StorageError, TransientStorageError
from asyncrec.storage.http import StraightBody

from .errors import Limited

# Bytes taken from a body at a time: a step of the loop copies no more.
_BLOCK = 256 << 10
# Seconds for closing the rest of a body that is not wanted.
_CLOSE_SECONDS = 2.0


class Download:
    """A body under way, which holds a connection until all of it came, or it is closed.

    Joined, its blocks would be copied once more, which is most of what reading costs.

    Args:
        body: of the SDK's answer.
        size: bytes it is to have.
        what: the object, for errors.
        patience: seconds without a byte after which it is given up.
    """

    def __init__(self, body: Any, size: int, what: str, patience: float) -> None:
        self._body = body
        self._size = self._missing = size
        self._what = what
        self._patience = patience
        # httpx's is iterated here: the SDK, which would, leaves that of a body that is given up to the collector.
        raw: Any = getattr(body, "raw_stream", None)
        self._chunks: AsyncGenerator[bytes] | None = raw.aiter_raw() if hasattr(raw, "aiter_raw") else None
        self._straight = StraightBody.of(raw, size) if isinstance(raw, aiohttp.ClientResponse) else None

    async def receive(self, size: int) -> Sequence[bytes]:
        """Receive blocks of ``size`` bytes together, or up to 512 KiB more; fewer where the body ends or breaks off.

        Cancelled, what had come is lost: the download is of no use any more.

        Raises:
            TransientStorageError: no byte came.
            StorageError: more came than was asked for.
        """
        blocks: list[bytes] = []
        came = 0
        wanted = min(size, self._missing)
        try:
            with Limited(self._what, "same", self._patience, size):
                # To the very end, which gives the connection back; so the last read finds nothing.
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
        """Receive all, or fewer where the body breaks off, but at least one block, and close it.

        Raises:
            TransientStorageError, StorageError: as `receive`.
        """
        try:
            return await self.receive(self._size)
        finally:
            await self.aclose()

    async def aclose(self) -> None:
        """Give the connection back where all came, and close it where not: shielded, within two seconds."""
        if self._straight is not None:
            self._straight.leave()
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            await self._body.aclose()
            # httpx's generators are five deep, and not all close the one within: they end by reading what is closed.
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
