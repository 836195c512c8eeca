"""`StraightBody` is the body of an aiohttp response, received directly into large blocks.

aiohttp's parser copies the bytes that the socket received, and its reader joins the copies. On a fast link, these
copies, and a dozen steps of Python per 256 KiB, dominate the cost of reading. However, a body of known length needs no
parsing. Until the last byte of the body, this class therefore replaces the connection's protocol, so that the socket,
or the TLS layer, writes directly into blocks of 512 KiB. After that, the response is marked as ended, and the
connection is returned to aiohttp for reuse.

All aiohttp names used here are public, except two that aiohttp itself uses at the end of a body:
`StreamReader.feed_eof`, and `pause_reading` of its protocol, which stops the timer for the next byte.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

# The size of a returned block. Splitting it into small records takes half a millisecond on the loop.
_BLOCK = 512 << 10
# The maximum number of complete blocks in memory. At this number, the socket is no longer read, so the sender has to
# wait.
_MOST_WAITING = 2


class StraightBody(asyncio.BufferedProtocol):
    """The rest of a body, created by `of` for one task. Read the body to its end, or abandon it with `leave`."""

    def __init__(self, response: Any, transport: asyncio.Transport, size: int) -> None:
        self._content = response.content
        self._transport = transport
        self._aiohttp: Any = transport.get_protocol()
        self._blocks: deque[bytes] = deque()
        self._missing = size
        self._block = memoryview(b"")
        self._filled = 0
        self._owns = self._paused = False
        self._lost: OSError | None = None
        self._waiter: asyncio.Future[None] | None = None

    @classmethod
    def of(cls, response: Any, size: int) -> StraightBody | None:
        """Take over the body of an `aiohttp.ClientResponse` from which nothing has been read.

        Return `None` if the headers do not declare ``size`` bytes, or if the event loop is not asyncio's own, because
        uvloop's transports have not been shown to change protocols in the middle of a body. The caller then reads the
        body as usual.
        """
        connection, headers = response.connection, response.headers
        transport = None if connection is None else connection.transport
        if transport is None or headers.get("Content-Length") != str(size) or "Transfer-Encoding" in headers:
            return None
        if not type(transport).__module__.startswith("asyncio."):
            return None
        body = cls(response, transport, size)
        while block := response.content.read_nowait():
            body._blocks.append(block)
            body._missing -= len(block)
        if body._missing and not transport.is_closing():
            body._owns = True
            body._aiohttp.pause_reading()
            transport.set_protocol(body)
            transport.resume_reading()
        return body

    async def read(self) -> bytes:
        """Return the next block, of 512 KiB or the rest; an empty block at the end.

        A cancelled call loses no bytes.

        Raises:
            OSError: the connection was lost before the end of the body.
        """
        while not self._blocks:
            if not self._missing:
                return b""
            if not self._owns:
                raise self._lost or ConnectionResetError("the connection was closed")
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        block = self._blocks.popleft()
        if self._paused and self._owns:
            self._paused = False
            self._transport.resume_reading()
        return block

    def leave(self) -> None:
        """Return the connection to aiohttp, which closes it if the body has not ended."""
        if self._owns:
            self._owns = False
            self._transport.set_protocol(self._aiohttp)

    def get_buffer(self, sizehint: int) -> memoryview:
        if not self._block:
            self._block = memoryview(bytearray(min(_BLOCK, self._missing) + 1))
        end = self._filled + self._missing
        # Leave room for one excess byte, which would otherwise remain in the socket and be read as the next response.
        return self._block[self._filled : end + 1 if end <= _BLOCK else _BLOCK]

    def buffer_updated(self, nbytes: int) -> None:
        if nbytes > self._missing:
            self._transport.abort()
            nbytes = self._missing
        self._filled += nbytes
        self._missing -= nbytes
        if self._missing and self._filled < _BLOCK:
            return
        self._hand_on()
        if not self._missing:
            self.leave()
            self._content.feed_eof()
        elif len(self._blocks) >= _MOST_WAITING:
            self._paused = True
            self._transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._owns = False
        self._lost = exc if isinstance(exc, OSError) else None
        self._hand_on()
        self._aiohttp.connection_lost(exc)

    def _hand_on(self) -> None:
        if self._filled:
            self._blocks.append(bytes(self._block[: self._filled]))
            self._filled = 0
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
