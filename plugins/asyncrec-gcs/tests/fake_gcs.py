"""The tests' fake Google Cloud Storage: `gcs_api` in a thread and on a free port, with faults.

A function that sees each request before it is served decides about faults. Tests import all helpers from here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from aiohttp import web
from asyncrec_gcs.session import Answer, Client
from gcs_api import UNIT, Api
from gcs_faults import Fault, chaos, nothing, nth

__all__ = ["UNIT", "FakeGcs", "Fault", "chaos", "nothing", "nth"]


class FakeGcs(Api):
    """The fake store, while it is `serving`, with a log of its requests and faults on demand.

    The kinds in its log are ``open``, ``put``, ``last``, ``query``, ``abort``, ``read``, ``meta``, ``list``,
    ``delete``, ``token``, ``credentials``.

    Attributes:
        heard: the sessions whose URL has reached a client, recorded while `listening`.
        most_puts: the maximum number of chunks that were being sent at once.
    """

    def reset(self) -> None:
        super().reset()
        self.heard: set[str] = set()
        self.most_puts = self._puts = 0

    @property
    def unfinished(self) -> list[str]:
        return [session.name for session in self.sessions.values() if not session.done]

    @property
    def left(self) -> list[str]:
        """Return the unfinished uploads that a client could have removed, because it has received their URL."""
        used = self.ended | {upload for upload, each in self.sessions.items() if each.done}
        assert used <= self.heard, "nobody was listening"
        return [each.name for upload, each in self.sessions.items() if not each.done and upload in self.heard]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record which sessions' URLs reach a client, which may have disconnected before the response was sent."""
        request = Client.request

        async def listen(client: Client, *args: Any, **options: Any) -> Answer:
            answer = await request(client, *args, **options)
            if "Location" in answer.headers:
                self.heard.add(answer.headers["Location"].rpartition("upload_id=")[2])
            return answer

        with mock.patch.object(Client, "request", listen):
            yield

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        put = self.kind_of(request) == "put"
        self._puts += put
        self.most_puts = max(self.most_puts, self._puts)
        try:
            return await super().handle(request)
        finally:
            self._puts -= put

    def served(self, kind: str, how: str, answer: web.Response) -> bool:
        if how == "forget-after":
            self.sessions = {upload: session for upload, session in self.sessions.items() if not session.done}
        return how in ("forget-after", "partial-reset")

    def error(self, status: int, words: str, headers: dict[str, str] | None = None) -> web.Response:
        body = {"error": {"code": status, "message": words, "errors": [{"reason": "chaos", "message": words}]}}
        return web.json_response(body, status=status, headers=headers)
