"""One bucket: requests to it with their answers checked, and what sinks and sources need in common."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import anyio

from asyncrec.errors import StorageError
from asyncrec.storage.base import Buffer
from asyncrec.storage.retry import DEFAULT, RetryPolicy, retrying

from .errors import Condition, of_answer
from .options import Options
from .protocol import Resource, object_url, parse_object
from .session import Answer, Client

__all__ = ["Bucket"]


class Bucket:
    """
    Attributes:
        slots: one for each chunk that is copied and on its way: what bounds the memory of all sinks together.
    """

    def __init__(self, client: Client, options: Options, policy: RetryPolicy = DEFAULT) -> None:
        self.name = options.bucket
        self.endpoint = client.endpoint
        self.chunk_size = options.chunk_size
        self.policy = policy
        self.slots = anyio.Semaphore(options.max_concurrency)
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
        media: bool = False,
    ) -> Answer:
        """One request; see `Client.request` and `asyncrec_gcs.errors.of_answer`.

        Raises:
            StorageError: of the kind that a status not in ``expect`` means.
        """
        answer = await self._client.request(method, url, what=what, headers=headers, data=data, media=media)
        if answer.status in expect:
            return answer
        secret = self._client.secret
        raise of_answer(
            answer.status, answer.headers, answer.body, what, write=write, condition=condition, secret=secret
        )

    async def resource(self, key: str, what: str, policy: RetryPolicy | None = None) -> Resource:
        """What the store says of an object.

        Raises:
            ObjectNotFoundError, StoragePermissionError, TransientStorageError.
        """
        url = object_url(self.endpoint, self.name, key)

        async def ask() -> Resource:
            answer = await self.request("GET", url, what=what)
            try:
                return parse_object(answer.body)
            except ValueError as error:
                raise StorageError(f"{what}: {error}") from None

        return await retrying(ask, what=what, policy=policy or self.policy)

    async def remove(self, key: str, *, generation: str | None = None) -> None:
        """Delete an object, or only this generation of it. That it is not there is no error."""
        what = f"{self.shown(key)}: deleting"
        params = {"ifGenerationMatch": generation} if generation else {}
        url = object_url(self.endpoint, self.name, key, **params)
        gone = (200, 204, 404, 412) if generation else (200, 204, 404)
        await retrying(lambda: self.request("DELETE", url, what=what, expect=gone), what=what, policy=self.policy)
