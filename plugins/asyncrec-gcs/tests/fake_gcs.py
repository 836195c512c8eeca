"""The fake Google Cloud Storage of the tests: `gcs_api` on a thread and a free port, with faults.

Faults are planned by a function that sees each request before it is served. What tests need is imported from here.
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
    """The store while it is `serving`, what it was asked, and what goes wrong with it.

    The kinds in its log are ``open``, ``put``, ``last``, ``query``, ``abort``, ``read``, ``meta``, ``list``,
    ``delete``, ``token``, ``credentials``.

    Attributes:
        heard: sessions whose address a client has got, while somebody was `listening`.
        most_puts: how many chunks were on their way at once.
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
        """Names of unfinished uploads that somebody could have taken away: a client has got their address."""
        used = self.ended | {upload for upload, each in self.sessions.items() if each.done}
        assert used <= self.heard, "nobody was listening"
        return [each.name for upload, each in self.sessions.items() if not each.done and upload in self.heard]

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Learn which sessions' addresses reach a client: it may have given up an answer that was sent to it."""
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
