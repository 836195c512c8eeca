"""`Bucket` sends checked requests, and holds the state that sinks and sources of one bucket share."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

import anyio

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage import DEFAULT, Buffer, ObjectInfo, RetryPolicy, in_thread, retrying
from asyncrec.storage.http import StreamSlots

from .errors import Condition, of_answer
from .options import Options
from .protocol import Resource, list_params, parse_listing, parse_object
from .session import CONNECTIONS, Answer, Client, Incoming

# JSON up to this size, such as an object's metadata, is parsed on the loop in microseconds. A page of a listing takes
# milliseconds.
_PARSED_ON_LOOP = 16 * 1024


class LibrarySession:
    """A session for one call of `gcloud.aio.storage.Storage`, which sends the library's requests through asyncrec.

    The library's `download_metadata`, `delete` and `list_objects` correctly form a request and parse the response's
    JSON. This session sends their requests through `Bucket.request`, which limits the size of a response and the time
    without progress, follows no redirect, renews a token, and raises errors without secrets.
    docs/design/clients-of-stores.md explains why the library's other calls are not used.

    ``send`` accepts the method and the URL, and raises an error for every unexpected status.

    The library's headers and timeouts are ignored, because it has no token to send, and its timeouts include the body.

    Attributes:
        status: the status of the last response.
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
    """A complete response, with the methods of `aiohttp.ClientResponse` that the library calls."""

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


class Bucket:
    """One bucket of one client, shared by all sinks and sources of a storage.

    Attributes:
        slots: one slot for each chunk being copied or in transit, to bound the memory of all sinks together.
        streams: one slot for each source that keeps a connection between two calls of its reader.
    """

    def __init__(self, client: Client, options: Options, policy: RetryPolicy = DEFAULT) -> None:
        self.name = options.bucket
        self._quoted = quote(self.name, safe="")
        self.endpoint = client.endpoint
        self.chunk_size = options.chunk_size
        self.policy = policy
        self.slots = anyio.Semaphore(options.max_concurrency)
        self.streams = StreamSlots(CONNECTIONS // 4)
        self._client = client

    @property
    def root(self) -> str:
        return f"gs://{self.name}"

    def shown(self, key: str) -> str:
        return f"{self.root}/{key}"

    async def request(
        self,
        method: str,
        url: str,
        *,
        what: str,
        expect: Collection[int] = (200,),
        write: bool = False,
        condition: Condition = "",
        headers: Mapping[str, str] | None = None,
        data: Buffer | None = None,
    ) -> Answer:
        """Send one request. Return the response if its status is in ``expect``.

        See `Client.request` and `asyncrec_gcs.errors.of_answer` for the arguments.

        Raises:
            StorageError: the status is not in ``expect``.
        """
        answer = await self._client.request(method, url, what=what, headers=headers, data=data)
        if answer.status in expect:
            return answer
        secret = self._client.secret
        raise of_answer(
            answer.status,
            answer.headers,
            answer.body,
            what,
            write=write,
            condition=condition,
            secret=secret,
            endpoint=self.endpoint,
        )

    async def download(
        self,
        url: str,
        *,
        what: str,
        headers: Mapping[str, str],
        expect: Collection[int] = (200, 206),
        pinned: bool = False,
    ) -> Incoming:
        """Request an object's content without decompressing it. The caller must close the response.

        Raises:
            ObjectChangedError: ``pinned`` is true, and the object no longer exists or has no bytes in the range.
            StorageError: the status is not in ``expect``.
        """
        incoming = await self._client.download(url, what=what, headers=headers)
        if incoming.status in expect:
            return incoming
        try:
            body = await incoming.read()
        finally:
            await incoming.aclose()
        if pinned and incoming.status in (404, 416):
            raise ObjectChangedError(
                f"{what}: HTTP {incoming.status}: the object was deleted or replaced since it was opened; open it again"
            )
        secret = self._client.secret
        condition: Condition = "same" if pinned else ""
        raise of_answer(incoming.status, incoming.headers, body, what, write=False, condition=condition, secret=secret)

    async def resource(self, key: str, what: str, policy: RetryPolicy | None = None) -> Resource:
        """Return the metadata of an object.

        Raises:
            ObjectNotFoundError: the object does not exist.
            StoragePermissionError: the store denies access.
            TransientStorageError: every attempt failed.
        """

        return await retrying(partial(self._look, key, what), what=what, policy=policy or self.policy)

    async def _look(self, key: str, what: str) -> Resource:
        gcloud, session = self._client.gcloud, self._session(what)
        with _checked(what):
            return parse_object(await gcloud.download_metadata(self._quoted, key, session=session))

    async def remove(self, key: str, *, generation: str | None = None) -> None:
        """Delete an object (or only the generation ``generation``). Do nothing if it does not exist."""
        what = f"{self.shown(key)}: deleting"
        params = {"ifGenerationMatch": generation} if generation else {}

        async def ask() -> None:
            session = self._session(what, expect=(200, 204), condition="same")
            with suppress(ObjectNotFoundError, ObjectChangedError):
                await self._client.gcloud.delete(self._quoted, key, params=params, session=session)
                if session.status != 204:
                    # The response may be from a proxy or an emulator, so check whether the object still exists.
                    await self._look(key, what)
                    raise TransientStorageError(f"{what}: the response is not from GCS, and the object still exists")

        await retrying(ask, what=what, policy=self.policy)

    async def page(
        self, *, prefix: str, start_offset: str, page: str, size: int, what: str
    ) -> tuple[list[ObjectInfo], str]:
        """Return a page of the objects from ``start_offset`` on (inclusive), and the next page's token (``""`` if
        none).

        Raises:
            StorageError: the request failed. This method does not retry.
        """
        params = list_params(prefix=prefix, start_offset=start_offset, page=page, size=size)
        gcloud, session = self._client.gcloud, self._session(what)
        with _checked(what):
            listing = await gcloud.list_objects(self._quoted, params=params, session=session)
            return await in_thread(parse_listing, listing)  # a few milliseconds for a thousand objects

    def _session(self, what: str, **options: Any) -> Any:
        """Return a session for one call of the library. Its type is `Any`, because the library expects aiohttp's."""
        return LibrarySession(partial(self.request, what=what, **options))


@contextmanager
def _checked(what: str) -> Iterator[None]:
    """Raise a transient error for an unreadable response, which may be from a proxy or damaged."""
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise TransientStorageError(f"{what}: the response is not JSON") from None
    except ValueError as error:
        raise TransientStorageError(f"{what}: {error}") from None
