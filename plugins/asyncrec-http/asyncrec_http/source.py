"""`HttpSource` reads ranges of one version of the object at a URL, even if the server does not support ranges.

If a server responds to a range request with the whole object, the response is read through. The bytes before a range
are read and discarded, and a warning is logged once. The response remains open, unless many already are, so that the
next range can be read from it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

import anyio
import httpx2

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, StorageError, StoragePermissionError
from asyncrec.storage import ObjectInfo, redact, retrying
from asyncrec.storage.http import RangedSource, parse_content_range, parse_http_date

from .errors import of_answer, of_transport
from .server import Server

logger = logging.getLogger("asyncrec.storage")

# The time limit in seconds for closing a connection.
_HANG_UP_SECONDS = 5.0
# If at most this many bytes remain, they are read instead of closing the connection. This is more than the client's
# buffer, which may contain the end of the body.
_READ_TO_THE_END = 1 << 20
# The statuses of servers that do not support HEAD, or that sign URLs only for GET.
_NO_HEAD = (400, 401, 403, 405, 501)


@dataclass(frozen=True, slots=True)
class Version:
    """The server's description of one version of an object.

    Attributes:
        etag: the ETag as sent; ``""`` if it is missing or (because no request can contain it) not printable ASCII.
        modified: the Last-Modified header as sent; ``""`` if it is missing or not printable ASCII.
        size: the size in bytes; `None` if unknown.
    """

    etag: str
    modified: str
    size: int | None

    @classmethod
    def of(cls, headers: Mapping[str, str], size: int | None) -> Version:
        return cls(_validator(headers, "ETag"), _validator(headers, "Last-Modified"), size)

    @property
    def condition(self) -> str:
        """The value for ``If-Range``, or ``""``. Weak ETags cannot be used, and a date is used only without an ETag."""
        if self.etag:
            return "" if self.etag.startswith("W/") else self.etag
        return self.modified

    def contradicts(self, other: Version) -> bool:
        """Return whether the versions differ in a value that both have. A response may omit values."""
        pairs = ((self.etag, other.etag), (self.size, other.size))
        if any(mine not in ("", None) and yours not in ("", None) and mine != yours for mine, yours in pairs):
            return True
        # Ignore the dates if both have ETags, because servers behind one URL may have received copies of the same file
        # at different times.
        tagged = bool(self.etag and other.etag)
        return not tagged and bool(self.modified and other.modified) and self.modified != other.modified

    @classmethod
    def known(cls, info: ObjectInfo) -> Version:
        """Return the version from which `Version.info` created ``info``."""
        made_up = f"/{info.size}"
        if info.etag.endswith(made_up):
            return cls("", info.etag.removesuffix(made_up), info.size)
        return cls(info.etag, "", info.size)

    def info(self, key: str) -> ObjectInfo:
        """Return asyncrec's description of the object. If there is no ETag, the date and the size replace it."""
        assert self.size is not None, "the size is known"
        etag = self.etag or f"{self.modified}/{self.size}"
        modified = parse_http_date(self.modified) or datetime.fromtimestamp(0, UTC)  # the epoch if unknown
        return ObjectInfo(key, self.size, etag, None, modified)


def _validator(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "").strip()
    return value if value.isascii() and value.isprintable() else ""


async def look(server: Server, key: str) -> tuple[Version, str]:
    """Return the server's description of an object, and the URL after all redirects.

    Raises:
        ObjectNotFoundError: the object does not exist.
        StoragePermissionError: the server denies access.
        TransientStorageError: every attempt failed.
        StorageError: the server does not send the object's length.
    """
    what = f"{redact(f'{server.options.root}/{key}')}: looking up the file"

    async def ask() -> tuple[Version, str]:
        address = server.options.address(key)
        async with server.request("HEAD", address, what=what) as (response, where):
            if response.status_code == 200 and (length := _length(response)) is not None:
                return Version.of(response.headers, length), where
            if response.status_code not in (200, *_NO_HEAD):
                raise of_answer(response.status_code, response.headers, what)
        async with server.request("GET", address, what=what, headers={"Range": "bytes=0-0"}) as (response, where):
            return Version.of(response.headers, _size_of_get(response, what)), where

    return await retrying(ask, what=what)


def _size_of_get(response: httpx2.Response, what: str) -> int:
    """Return the size of the object, from the response to a request for its first byte."""
    size = None
    if response.status_code == 206:
        try:
            size = parse_content_range(response.headers.get("Content-Range"))[2]
        except ValueError as error:
            raise StorageError(f"{what}: {error}") from None
    elif response.status_code == 416 and response.headers.get("Content-Range", "").strip() == "bytes */0":
        size = 0
    elif response.status_code == 200:
        size = _length(response)
    else:
        raise of_answer(response.status_code, response.headers, what)
    if size is None:
        raise StorageError(f"{what}: the server does not send the length of this file, so it cannot be read")
    return size


def _size_of_first(response: httpx2.Response, start: int, end: int) -> int | None:
    """Return the object's size if the first response contains the size and the requested bytes, or `None` otherwise."""
    if response.status_code == 200:
        size = _length(response)
        return None if size is None or size <= start else size
    if response.status_code != 206:
        return None
    try:
        begin, until, size = parse_content_range(response.headers.get("Content-Range"))
    except ValueError:
        return None
    return size if size is not None and (begin, until) == (start, min(end, size)) else None


def _length(response: httpx2.Response) -> int | None:
    text = response.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


class HttpSource(RangedSource):
    """A source for the object at one URL."""

    def __init__(self, server: Server, key: str, *, start: int, end: int | None, info: ObjectInfo | None) -> None:
        self._server = server
        self._key = key
        self._shown = redact(f"{server.options.root}/{key}")
        self._through = AsyncExitStack()  # contains the response that is read through
        self._body: AsyncGenerator[bytes] | None = None
        self._at = 0  # the position in the body
        self._rest = b""  # the unread rest of the body's last block
        self._address = server.options.address(key)
        if info is not None:
            self._version = Version.known(info)
        super().__init__(self._shown, start=start, end=end, info=info)

    async def look(self) -> ObjectInfo:
        self._version, self._address = await look(self._server, self._key)
        return self._version.info(self._key)

    async def first(self, start: int, end: int | None) -> tuple[ObjectInfo, list[bytes]] | None:
        assert end is not None, "without slots, end is always passed"
        what = f"{self._shown}: opening"
        headers = {"Range": f"bytes={start}-{end - 1}"}
        async with AsyncExitStack() as stack:
            asking = self._server.request("GET", self._address, what=what, headers=headers)
            response, where = await stack.enter_async_context(asking)
            size = _size_of_first(response, start, end)
            if size is None:
                return None
            version = Version.of(response.headers, size)
            end = min(end, size)
            if response.status_code == 206:
                blocks = [block async for block in _limited(response, end - start, what)]
            else:
                blocks = await self._read_through(stack.pop_all(), response, size, start, end)
            self._version, self._address = version, where
        return version.info(self._key), blocks

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await super().__aexit__(exc_type, exc, traceback)
        await self._leave()

    async def fetch(self, start: int, end: int) -> list[bytes]:
        what = f"{self._shown}: reading bytes {start:,} to {end:,}"
        if self._body is not None and self._at <= start:
            return await self._go_on(start, end)
        await self._leave()
        try:
            return await self._ask(self._address, start, end, what)
        except (ObjectNotFoundError, StoragePermissionError):
            original = self._server.options.address(self._key)
            if self._address == original:
                raise
        # The target of a redirect may be signed for only a few minutes, so request the original URL again.
        blocks = await self._ask(original, start, end, what)
        self._address = original
        return blocks

    async def _ask(self, address: str, start: int, end: int, what: str) -> list[bytes]:
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if condition := self._version.condition:
            headers["If-Range"] = condition
        async with AsyncExitStack() as stack:
            asking = self._server.request("GET", address, what=what, headers=headers)
            response, _ = await stack.enter_async_context(asking)
            if response.status_code == 206:
                self._check(Version.of(response.headers, self._span(response, start, end, what)), what)
                return [block async for block in _limited(response, end - start, what)]
            if response.status_code != 200:
                raise of_answer(response.status_code, response.headers, what)
            self._check(Version.of(response.headers, _length(response)), what)
            return await self._read_through(stack.pop_all(), response, self.info.size, start, end)

    async def _read_through(
        self, answer: AsyncExitStack, response: httpx2.Response, size: int, start: int, end: int
    ) -> list[bytes]:
        """Read the range from a response with the whole object, because the server does not support ranges."""
        if start or end < size:
            self._tell(start)
        self._body = _limited(response, size, f"{self._shown}: reading bytes {start:,} to {end:,}")
        self._at, self._rest = 0, b""
        self._through = answer
        kept = self._server.through > 0
        if kept:
            self._server.through -= 1
            self._through.callback(self._give_back)
        blocks = await self._go_on(start, end)
        if not kept:
            await self._leave()
        return blocks

    async def _go_on(self, start: int, end: int) -> list[bytes]:
        """Continue reading the open response. Any error or cancellation closes it."""
        blocks: list[bytes] = []
        try:
            assert self._body is not None, "the response is open"
            while self._at < end:
                block = self._rest or await anext(self._body, b"")
                if not block:
                    break
                skipped = max(0, min(len(block), start - self._at))
                taken = min(len(block), end - self._at)
                if taken > skipped:
                    blocks.append(block[skipped:taken])
                self._at += taken
                self._rest = block[taken:]
        except BaseException:
            await self._leave()
            raise
        return blocks

    def _give_back(self) -> None:
        self._server.through += 1

    async def _leave(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            await body.aclose()
        await self._through.aclose()

    def _span(self, response: httpx2.Response, start: int, end: int, what: str) -> int | None:
        try:
            span = parse_content_range(response.headers.get("Content-Range"))
        except ValueError as error:
            raise StorageError(f"{what}: {error}") from None
        if span[:2] != (start, end):
            if span[2] not in (None, self.info.size):
                raise ObjectChangedError(f"{what}: the file now has {span[2]:,} bytes; open it again")
            raise StorageError(f"{what}: the server sent bytes {span[0]:,} to {span[1]:,} instead")
        return span[2]

    def _check(self, version: Version, what: str) -> None:
        if self._version.contradicts(version):
            raise ObjectChangedError(f"{what}: the file was replaced since it was opened; open it again")

    def _tell(self, start: int) -> None:
        if self._server.told:
            return
        self._server.told = True
        logger.warning(
            "%s: the server does not support ranges, so every file is read from its beginning, although the "
            "requested bytes begin at byte %d. Random access is slow",
            self._shown,
            start,
            extra={"path": self._shown},
        )


async def _limited(response: httpx2.Response, size: int, what: str) -> AsyncGenerator[bytes]:
    """Yield the body in blocks, without decompression. Raise StorageError if it is longer than ``size``."""
    left = size
    body: Any = response.aiter_raw()
    ended = False
    try:
        async for block in body:
            left -= len(block)
            if left < 0:
                raise StorageError(f"{what}: the server sent more bytes than it had declared")
            yield block
        ended = True
        return
    except httpx2.HTTPError as error:
        failure = of_transport(error, what)
    finally:
        if not ended:
            await _hang_up(response, body, left)
    raise failure


async def _hang_up(response: httpx2.Response, body: AsyncGenerator[bytes], left: int) -> None:
    """Stop reading a body before its end.

    If few bytes remain, read them, so that the connection can be reused. Otherwise, close the connection, which ends
    the client's nested generators.
    """
    with anyio.move_on_after(_HANG_UP_SECONDS, shield=True), suppress(Exception):
        if not 0 <= left <= _READ_TO_THE_END:
            await response.extensions["network_stream"].aclose()
        async for _ in body:
            pass
