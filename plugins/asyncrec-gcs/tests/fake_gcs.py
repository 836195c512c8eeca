"""The fake Google Cloud Storage of the tests: `gcs_api` on a thread and a free port, with faults.

Faults are planned by a function that sees each request before it is served. What tests need is imported from here.
"""

from __future__ import annotations

from aiohttp import web
from gcs_api import UNIT, Api
from gcs_faults import Fault, chaos, nothing, nth

__all__ = ["UNIT", "FakeGcs", "Fault", "chaos", "nothing", "nth"]


class FakeGcs(Api):
    """The store while it is `serving`, what it was asked, and what goes wrong with it.

    The kinds in its log are ``open``, ``put``, ``last``, ``query``, ``abort``, ``read``, ``meta``, ``list``,
    ``delete``, ``token``, ``credentials``.

    Attributes:
        lost: sessions whose address was in an answer that did not arrive: nobody can take them away.
        most_puts: how many chunks were on their way at once.
    """

    def reset(self) -> None:
        super().reset()
        self.lost: set[str] = set()
        self.most_puts = self._puts = 0

    @property
    def unfinished(self) -> list[str]:
        return [session.name for session in self.sessions.values() if not session.done]

    @property
    def left(self) -> list[str]:
        """Names of unfinished uploads that somebody could have taken away."""
        return [each.name for upload, each in self.sessions.items() if not each.done and upload not in self.lost]

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        put = self.kind_of(request) == "put"
        self._puts += put
        self.most_puts = max(self.most_puts, self._puts)
        try:
            return await super().handle(request)
        finally:
            self._puts -= put

    def served(self, kind: str, how: str, answer: web.Response) -> bool:
        if how.endswith(("-after", "-reset")) and kind == "open":
            self.lost.add(answer.headers.get("Location", "").rpartition("upload_id=")[2])
        if how == "forget-after":
            self.sessions = {upload: session for upload, session in self.sessions.items() if not session.done}
        return how in ("forget-after", "partial-reset")

    def error(self, status: int, words: str, headers: dict[str, str] | None = None) -> web.Response:
        body = {"error": {"code": status, "message": words, "errors": [{"reason": "chaos", "message": words}]}}
        return web.json_response(body, status=status, headers=headers)
