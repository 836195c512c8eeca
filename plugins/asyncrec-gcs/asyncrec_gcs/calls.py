"""The library's own calls, sent by us: what `gcloud.aio.storage.Storage` takes for an HTTP session.

Its `download_metadata`, `delete` and `list_objects` form a request and read the answer's JSON, and keep every promise
once the sending does: by this session they go through `Bucket.request`, which has limits for what an answer may weigh
and how long nothing may move, follows no redirect, renews a token, and makes errors without secrets. Why not its other
calls: docs/design/2026-11-22-gcloud-aio-and-aiofiles.md.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from asyncrec.storage import in_thread

from .session import Answer

__all__ = ["LibrarySession", "with_query"]

# What an object's metadata weigh takes microseconds; a page of a listing, some milliseconds.
_PARSED_ON_LOOP = 16 * 1024


class LibrarySession:
    """A session for one call. ``send`` is given method and URL, and raises for every status that is not expected.

    The library's headers and timeouts are left out: it has no token to send, and its timeouts count bodies.

    Attributes:
        status: of the last answer.
    """

    def __init__(self, send: Callable[[str, str], Awaitable[Answer]]) -> None:
        self._send = send
        self.status = 0

    async def get(self, url: str, *, params: Mapping[str, Any] | None = None, **_: Any) -> _Response:
        return await self._sent("GET", url, params)

    async def delete(self, url: str, *, params: Mapping[str, Any] | None = None, **_: Any) -> _Response:
        return await self._sent("DELETE", url, params)

    async def _sent(self, method: str, url: str, params: Mapping[str, Any] | None) -> _Response:
        answer = await self._send(method, with_query(url, params or {}))
        self.status = answer.status
        return _Response(answer)


class _Response:
    """A whole answer, as much of a `aiohttp.ClientResponse` as the library's calls ask for."""

    def __init__(self, answer: Answer) -> None:
        self.status = answer.status
        self.headers = answer.headers
        self._body = answer.body

    async def read(self) -> bytes:
        return self._body

    async def text(self) -> str:
        return self._body.decode(errors="replace")

    async def json(self, *, content_type: str | None) -> Any:
        if len(self._body) <= _PARSED_ON_LOOP:
            return json.loads(self._body)
        return await in_thread(json.loads, self._body)


def with_query(url: str, params: Mapping[str, Any]) -> str:
    return f"{url}?{urlencode(params, quote_via=quote, safe='')}" if params else url
