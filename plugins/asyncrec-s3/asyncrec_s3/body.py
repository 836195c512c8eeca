"""Request bodies that are sent in blocks without a copy, and hashed off the event loop if payloads are signed.

Neither HTTP client sends the SDK's body types in this way. aiohttp copies an entire `io.BytesIO` on the loop to
determine its length (7 ms for 8 MiB), and writes `bytes` all at once. httpx splits an `io.BytesIO` into lines. So
`Body` is a separate type, for which an `aiohttp.Payload` is registered, and over which httpx iterates.

botocore hashes a body when it signs the request, on the event loop, which takes 13 to 23 ms for 8 MiB. With
``payload_signing=True``, the hash is computed beforehand in a worker thread, and a subclass of the SDK's signer reads
the hash from the body. The signer is registered under a separate name, which only clients with this option choose.
Without the option, the signature covers only the header with our own checksum.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn

import aiohttp
import aiohttp.abc
import anyio
import anyio.lowlevel
import botocore.auth

from asyncrec.storage import Buffer, in_thread

_NAME = "asyncrec-s3v4"
# The number of bytes passed to the socket at a time. This occupies the loop for about 0.2 ms before other tasks run.
_BLOCK = 512 << 10


class Body:
    """A body in memory that can be sent repeatedly.

    The SDK calls ``read``, ``seek`` and ``tell`` to measure or hash the body.

    Attributes:
        sha256: the hash in hexadecimal, or `None` if payloads are not signed.
        moved: called before each block and after the last one, to report progress.
    """

    sha256: str | None = None

    def __init__(self, data: Buffer) -> None:
        self.moved: Callable[[], object] = lambda: None
        self._data = memoryview(data)
        self._position = 0

    def __len__(self) -> int:
        return len(self._data)

    def read(self, size: int = -1) -> memoryview:
        begin = self._position
        self._position = len(self._data) if size < 0 else min(begin + size, len(self._data))
        return self._data[begin : self._position]

    def seek(self, offset: int, whence: int = 0) -> int:
        self._position = max(0, offset + (0, self._position, len(self._data))[whence])
        return self._position

    def tell(self) -> int:
        return self._position

    def blocks(self) -> Iterator[memoryview]:
        """Yield the body in blocks. The client asks for the next block when it has sent the last one."""
        for begin in range(0, len(self._data), _BLOCK):
            self.moved()
            yield self._data[begin : begin + _BLOCK]
        self.moved()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for block in self.blocks():
            yield bytes(block)  # httpx's writer accepts nothing else
            await anyio.lowlevel.checkpoint()


class _Payload(aiohttp.Payload):
    """An aiohttp payload that sends a `Body`."""

    _autoclose = True  # there is nothing to close
    _value: Body

    def __init__(self, value: Body, **options: Any) -> None:
        super().__init__(value, **options)
        self._size = len(value)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> NoReturn:
        raise TypeError("a body of bytes cannot be converted to text")

    async def write(self, writer: aiohttp.abc.AbstractStreamWriter) -> None:
        for block in self._value.blocks():
            await writer.write(block)
            await asyncio.sleep(0)  # let other tasks run, because on a fast network the write never waits

    async def write_with_length(self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None) -> None:
        assert content_length in (None, self._size), "the SDK passes the body's size"
        await self.write(writer)


aiohttp.PAYLOAD_REGISTRY.register(_Payload, Body)


async def body_of(data: Buffer, *, hashed: bool, limiter: anyio.CapacityLimiter) -> Body:
    """Return a body for one attempt, which shares the memory of ``data``."""
    body = Body(data)
    if hashed:
        body.sha256 = await in_thread(_sha256, data, limiter=limiter)
    return body


def _sha256(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()


class _Signer(botocore.auth.S3SigV4Auth):  # type: ignore[misc]  # botocore ships no types
    def payload(self, request: Any) -> str:
        known: str | None = getattr(request.body, "sha256", None)
        if known is None:
            known = super().payload(request)
        return known


def sign_in_thread(session: Any) -> None:
    """Make this session's clients sign with the precomputed hash of a body."""
    botocore.auth.AUTH_TYPE_MAPS.setdefault(_NAME, _Signer)
    session.register("choose-signer.s3", _choose)


def _choose(signature_version: Any = None, **_: Any) -> str | None:
    # A client's version is "s3v4", but the SDK's model of an operation, which takes precedence, calls it "v4".
    return _NAME if signature_version in ("v4", "s3v4") else None
