"""One bucket: requests to it with their answers checked, and what sinks and sources need in common."""

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

# What an object's metadata weigh takes microseconds; a page of a listing, some milliseconds.
_PARSED_ON_LOOP = 16 * 1024


class LibrarySession:
    """The library's own calls, sent by us: what `gcloud.aio.storage.Storage` takes for an HTTP session, for one call.

    Its `download_metadata`, `delete` and `list_objects` form a request and read the answer's JSON, and keep every
    promise once the sending does: by this session they go through `Bucket.request`, which has limits for what an answer
    may weigh and how long nothing may move, follows no redirect, renews a token, and makes errors without secrets. Why
    not its other calls: docs/design/clients-of-stores.md.

    ``send`` is given method and URL, and raises for every status that is not expected.

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


class Bucket:
    """
    Attributes:
        slots: one for each chunk that is copied and on its way: what bounds the memory of all sinks together.
        streams: one for each source that holds a connection between two calls of its reader.
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
        """Make one request; see `Client.request` and `asyncrec_gcs.errors.of_answer`.

        Raises:
            StorageError: of the kind that a status not in ``expect`` means.
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
        """Ask for an object's content, as it is stored; the answer that begins is the caller's to close.

        Raises:
            ObjectChangedError: ``pinned``, and it is not there, or not in this range, any more.
            StorageError: of the kind that the status means.
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
        """Ask for the metadata of an object.

        Raises:
            ObjectNotFoundError, StoragePermissionError, TransientStorageError.
        """

        return await retrying(partial(self._look, key, what), what=what, policy=policy or self.policy)

    async def _look(self, key: str, what: str) -> Resource:
        gcloud, session = self._client.gcloud, self._session(what)
        with _checked(what):
            return parse_object(await gcloud.download_metadata(self._quoted, key, session=session))

    async def remove(self, key: str, *, generation: str | None = None) -> None:
        """Delete an object, or only this generation of it. That it is not there is no error."""
        what = f"{self.shown(key)}: deleting"
        params = {"ifGenerationMatch": generation} if generation else {}

        async def ask() -> None:
            session = self._session(what, expect=(200, 204), condition="same")
            with suppress(ObjectNotFoundError, ObjectChangedError):
                await self._client.gcloud.delete(self._quoted, key, params=params, session=session)
                if session.status != 204:
                    # An emulator's, or a proxy's: what is there tells.
                    await self._look(key, what)
                    raise TransientStorageError(f"{what}: the response is not from GCS, and the object still exists")

        await retrying(ask, what=what, policy=self.policy)

    async def page(
        self, *, prefix: str, start_offset: str, page: str, size: int, what: str
    ) -> tuple[list[ObjectInfo], str]:
        """List some objects from ``start_offset`` on (inclusive), with the token of the next page; ``""`` at the end.

        Raises:
            StorageError: not repeated here.
        """
        params = list_params(prefix=prefix, start_offset=start_offset, page=page, size=size)
        gcloud, session = self._client.gcloud, self._session(what)
        with _checked(what):
            listing = await gcloud.list_objects(self._quoted, params=params, session=session)
            return await in_thread(parse_listing, listing)  # a thousand objects with their times: some milliseconds

    def _session(self, what: str, **options: Any) -> Any:
        """Make a session for one of the library's calls: the library names the type of session that aiohttp has."""
        return LibrarySession(partial(self.request, what=what, **options))


@contextmanager
def _checked(what: str) -> Iterator[None]:
    """Make an answer that the library, or we, cannot read a passing error: a proxy's, or one that was damaged."""
    try:
        yield
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise TransientStorageError(f"{what}: the response is not JSON") from None
    except ValueError as error:
        raise TransientStorageError(f"{what}: {error}") from None
