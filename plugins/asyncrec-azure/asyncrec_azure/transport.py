"""`Transport` sends the SDK's requests and reads every response completely, with limits on time and size.

The SDK's own transport accepts a download of any size as long as a byte arrives each minute, and treats uploads and
truncated bodies differently. This transport, set through the SDK's extension point, fails a request that makes no
progress for a minute, and rejects a response that is longer than any that asyncrec requests.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Any

import aiohttp
from azure.core.exceptions import ServiceResponseError
from azure.core.pipeline.transport import AioHttpTransport

from asyncrec.errors import StorageError
from asyncrec.storage import in_thread
from asyncrec.storage.http import SlicedBody

# The seconds within which a request must make progress: connect, send the next slice, or receive more of the response.
STALLED_SECONDS = 60.0
CONNECT_SECONDS = 10.0
# The maximum number of connections, enough for the blocks and ranges in transit of all storages of a program.
_CONNECTIONS = 100
# The maximum size of an error's body. The XML of an error has a few hundred bytes.
_ERROR_BYTES = 64 << 10
# The maximum size of any other body, larger than a source's window or a page of a listing.
_MOST_BYTES = 64 << 20
_EMPTY_LISTING = b"<EnumerationResults><Blobs /><NextMarker /></EnumerationResults>"
# Joining more bytes would block the loop for too long.
_JOIN_ON_LOOP = 1 << 20


class Transport(AioHttpTransport):  # type: ignore[misc]  # the SDK exports it by a function
    """The SDK's aiohttp transport, with our own session, which trusts the authorities of ``context``."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(
            connection_timeout=CONNECT_SECONDS,
            read_timeout=STALLED_SECONDS,
            connection_data_block_size=256 << 10,
        )
        self._context: ssl.SSLContext | None = context
        self._sends_ids = False

    async def open(self) -> None:
        """Open the session on the first request, so that a client whose creation failed need not be closed."""
        if self._context is not None:
            self.session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self._context, limit=_CONNECTIONS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                trust_env=True,  # proxies
            )
            self._context = None
        await super().open()

    async def send(self, request: Any, *, stream: bool = False, proxies: Any = None, **config: Any) -> Any:
        """Send one request and read the whole response, regardless of its status.

        If ``config`` contains a list ``taken``, store the body of a listing in it and return an empty listing.

        Raises:
            ServiceResponseError: there was no progress for a minute, the body was truncated, or the response is not
                from Azure.
            StorageError: the body is longer than any that asyncrec requests.
        """
        taken: list[bytes] | None = config.pop("taken", None)
        try:
            async with asyncio.timeout(STALLED_SECONDS) as patience:
                body = request.data
                if isinstance(body, SlicedBody):
                    body.moved = lambda: _extend(patience)
                response = await super().send(request, stream=True, proxies=proxies, **config)
                self._check_origin(response)
                content = await _read(response, patience)
                if taken is not None and response.status_code == 200:
                    taken[:] = [content]
                    content = _EMPTY_LISTING
                return _Answer(response, content)
        except TimeoutError:
            stalled = ServiceResponseError(f"no data was sent or received for {STALLED_SECONDS:.0f} s")
        raise stalled

    def _check_origin(self, response: Any) -> None:
        """Reject a success without a request id if the store sent one before: a gateway's page may look like an object.

        Raises:
            ServiceResponseError: the response is not from the store.
        """
        if response.status_code < 300:
            has_id = "x-ms-request-id" in response.headers
            if self._sends_ids and not has_id:
                response.internal_response.close()
                raise ServiceResponseError("the response is not from Azure: it has no x-ms-request-id")
            self._sends_ids = has_id


class _Answer:
    """A response whose body has been read, with the attributes that the SDK uses."""

    is_stream_consumed = True

    def __init__(self, response: Any, content: bytes) -> None:
        self._response = response
        self.content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._response, name)

    def body(self) -> bytes:
        return self.content

    def text(self, encoding: str | None = None) -> str:
        return self.content.decode(encoding or "utf-8-sig", errors="replace")

    async def read(self) -> bytes:
        return self.content

    def stream_download(self, *_: Any, **__: Any) -> _Download:
        return _Download(self)


class _Download:
    """The body of a response as an iterator over a single block. The SDK sets ``properties``."""

    properties: Any

    def __init__(self, answer: _Answer) -> None:
        self.response = answer
        self.content_length = len(answer.content)
        self._left = [answer.content]

    def __aiter__(self) -> _Download:
        return self

    async def __anext__(self) -> bytes:
        if not self._left:
            raise StopAsyncIteration
        return self._left.pop()


def _extend(patience: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # expired, or the response arrived before the body was sent
        patience.reschedule(asyncio.get_running_loop().time() + STALLED_SECONDS)


async def _read(response: Any, patience: asyncio.Timeout) -> bytes:
    blocks: list[bytes] = []
    size = 0
    try:
        async for block in response.iter_raw():
            _extend(patience)
            blocks.append(block)
            size += len(block)
            if response.status_code >= 400 and size > _ERROR_BYTES:
                break
            if size > _MOST_BYTES:
                raise StorageError(f"the store's response is longer than the limit of {_MOST_BYTES:,} bytes")
    finally:
        response.internal_response.close()  # if the body is complete, the connection has already been released
    if size > _JOIN_ON_LOOP:
        return await in_thread(b"".join, blocks)
    return b"".join(blocks)
