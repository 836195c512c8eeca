"""`Incoming`: an answer that has begun, whose body is read as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

import aiohttp

from asyncrec.storage import in_thread

from .errors import of_transport

__all__ = ["Incoming", "extend", "patient"]

# Seconds in which a request must make progress: connect, send the next slice, or be answered.
_STALLED = 60.0
# Bytes per second below which a body counts as stalled, which sends a byte now and then.
_SLOWEST = 64 * 1024
# Bytes taken from a body at a time: a step of the loop copies no more.
_BLOCK = 256 * 1024
# An error's JSON is a few hundred bytes; what is longer is no explanation.
_ERROR_BYTES = 16 * 1024
# Joining more than this would hold the loop for too long.
_JOIN_ON_LOOP = 1024 * 1024


class Incoming:
    """An answer under way, which holds a connection until all of it came, or it is closed.

    Attributes:
        status: of HTTP.
        headers: may hold the address of a session: they are never shown.
    """

    def __init__(self, response: aiohttp.ClientResponse, what: str) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._what = what

    async def read(self) -> bytes:
        """Read the whole body; of an error's, as much as explains it.

        Raises:
            TransientStorageError: as `receive`.
        """
        blocks: list[bytes] = []
        size = 0
        while (self.status < 400 or size < _ERROR_BYTES) and (came := await self.receive(_BLOCK)):
            blocks += came
            size += sum(map(len, came))
        if size > _JOIN_ON_LOOP:
            return await in_thread(b"".join, blocks)
        return b"".join(blocks)

    async def receive(self, size: int) -> list[bytes]:
        """Receive blocks of ``size`` bytes together, or up to 256 KiB more; fewer where the body ends.

        Cancelled, what had come is lost: the answer is of no use any more.

        Raises:
            TransientStorageError: the connection failed, or nothing came for 60 s, or less than 64 KiB a second.
        """
        blocks: list[bytes] = []
        came = 0
        try:
            async with patient(size):
                while came < size and (block := await self._response.content.read(_BLOCK)):
                    blocks.append(block)
                    came += len(block)
            return blocks
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            failure = of_transport(error, self._what)
        raise failure  # outside the handler: the client's error holds the request, and must not be chained

    async def aclose(self) -> None:
        """Give the connection back where all came, and close it where not. It waits for nothing."""
        self._response.close()


def patient(size: int = 0) -> asyncio.Timeout:
    """Make a context for what must move within 60 s, or bring so many bytes, which raises `TimeoutError`."""
    return asyncio.timeout(_STALLED + size / _SLOWEST)


def extend(patience: asyncio.Timeout) -> None:
    """Begin the time anew in which something must move."""
    with suppress(RuntimeError):  # expired, or the answer came before the body was sent
        patience.reschedule(asyncio.get_running_loop().time() + _STALLED)
