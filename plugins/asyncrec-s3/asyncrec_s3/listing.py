"""`Listing` iterates over the entries of a listing, fetched one page at a time.

It is a class rather than an async generator, so that an abandoned listing need not be closed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asyncrec.errors import StorageError


class Listing:
    """An async iterator over the entries of a listing.

    Args:
        ask: a function that sends a request with the given parameters, retries transient faults, and returns the
            response.
        what: the operation, for error messages.
        params: the parameters of the first request.
        entries: the member of a response that contains the entries.
        marks: the parameters of the next request, and the members of a response that contain their values.
        ordered: whether to reject keys that are not in ascending order.
    """

    def __init__(
        self,
        ask: Callable[[dict[str, Any]], Awaitable[Mapping[str, Any]]],
        what: str,
        params: dict[str, Any],
        entries: str,
        marks: Mapping[str, str],
        *,
        ordered: bool,
    ) -> None:
        self._ask = ask
        self._what = what
        self._params: dict[str, Any] | None = params
        self._entries = entries
        self._marks = marks
        self._ordered = ordered
        # The rest of the current page, last entry first.
        self._page: list[dict[str, Any]] = []
        self._last = b""

    def __aiter__(self) -> Listing:
        return self

    async def __anext__(self) -> dict[str, Any]:
        while not self._page:
            if self._params is None:
                raise StopAsyncIteration
            await self._fetch(self._params)
        return self._page.pop()

    async def _fetch(self, params: dict[str, Any]) -> None:
        answer = await self._ask(params)
        page = answer.get(self._entries, [])
        if self._ordered:
            for entry in page:
                self._check_order(entry["Key"])
        following = None
        if answer["IsTruncated"]:
            following = params | {name: answer[mark] for name, mark in self._marks.items() if answer.get(mark)}
            if following == params:
                raise StorageError(
                    f"{self._what}: the store announces another page but does not say where it starts, so the rest "
                    "would be missed"
                )
        self._page, self._params = page[::-1], following

    def _check_order(self, key: str) -> None:
        raw = key.encode()
        if self._last and raw <= self._last:
            raise StorageError(
                f"{self._what}: {key!r} was listed after {self._last.decode()!r}, so the store does not list objects "
                "in the order of UTF-8 bytes, on which asyncrec relies. S3's directory buckets do not either; use a "
                "general purpose bucket"
            )
        self._last = raw
