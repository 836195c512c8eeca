"""One bucket: requests to it with their answers checked, and what sinks and sources need in common."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio

from asyncrec.errors import ObjectChangedError, ObjectNotFoundError, TransientStorageError
from asyncrec.storage import DEFAULT, Buffer, ObjectInfo, RetryPolicy, in_thread, retrying
from asyncrec.storage.http import StreamSlots

from .calls import LibrarySession
from .errors import Condition, of_answer
from .incoming import Incoming
from .options import Options
from .protocol import Resource, list_params, parse_listing, parse_object
from .session import CONNECTIONS, Answer, Client

__all__ = ["Bucket"]


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

    async def download(self, url: str, *, what: str, headers: Mapping[str, str]) -> Incoming:
        """Ask for an object's content, as it is stored; the answer that begins is the caller's to close.

        Raises:
            ObjectChangedError: it is not there, or not in this range, any more.
            StorageError: of the kind that the status means.
        """
        incoming = await self._client.download(url, what=what, headers=headers)
        if incoming.status in (200, 206):
            return incoming
        try:
            body = await incoming.read()
        finally:
            await incoming.aclose()
        if incoming.status in (404, 416):
            raise ObjectChangedError(f"{what}: HTTP {incoming.status}: it was deleted or replaced since it was opened")
        secret = self._client.secret
        raise of_answer(incoming.status, incoming.headers, body, what, write=False, condition="same", secret=secret)

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
                    raise TransientStorageError(
                        f"{what}: the answer is not one of GCS's, and the object is still there"
                    )

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
        raise TransientStorageError(f"{what}: the answer is no JSON") from None
    except ValueError as error:
        raise TransientStorageError(f"{what}: {error}") from None
