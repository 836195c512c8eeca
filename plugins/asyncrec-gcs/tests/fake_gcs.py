"""The fake Google Cloud Storage of the tests: `gcs_api` on a thread and a free port, with faults.

Faults are planned by a function that sees each request before it is served. What tests need is imported from here.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web
from gcs_api import UNIT, Api, Refusal
from gcs_faults import Fault, Plan, chaos, nothing, nth

__all__ = ["UNIT", "FakeGcs", "Fault", "chaos", "nothing", "nth"]


class FakeGcs(Api):
    """The store while it is `serving`, what it was asked, and what goes wrong with it.

    Attributes:
        plan: asked about each request, with its kind and number.
        log: the kinds of all requests: ``open``, ``put``, ``last``, ``query``, ``abort``, ``read``, ``meta``, ``list``,
            ``delete``, ``token``, ``credentials``.
        page: the status and the text of the answer to whatever has the fault ``answer``.
        lost: sessions whose address was in an answer that did not arrive: nobody can take them away.
        most_puts: how many chunks were on their way at once.
        reached: set when a request stalls.
    """

    def reset(self) -> None:
        super().reset()
        self.plan: Plan = nothing
        self.lost: set[str] = set()
        self.log: list[str] = []
        self.seen: list[dict[str, str]] = []
        self.reached = threading.Event()
        self.most_puts = 0
        self.page = 200, "<html>Sign in</html>"

    @property
    def unfinished(self) -> list[str]:
        return [session.name for session in self.sessions.values() if not session.done]

    @property
    def left(self) -> list[str]:
        """Names of unfinished uploads that somebody could have taken away."""
        return [each.name for upload, each in self.sessions.items() if not each.done and upload not in self.lost]

    @property
    def busy(self) -> int:
        """Requests under way."""
        return self._busy

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.log)

    def wait_until_idle(self) -> None:
        """Return when no request is under way, as the server sees it; a client that hung up is seen soon after."""
        assert self._idle.wait(5), f"{self._busy} requests are still under way"

    @contextmanager
    def serving(self) -> Iterator[FakeGcs]:
        ready: threading.Event = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready)), name="fake-gcs")
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._busy = self._puts = 0
        self._idle = threading.Event()
        self._idle.set()
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        kind = self.kind_of(request)
        self.log.append(kind)
        self.seen.append(dict(request.headers))
        fault = self.plan(kind, len(self.log))
        self._busy += 1
        self._idle.clear()
        self._puts += kind == "put"
        self.most_puts = max(self.most_puts, self._puts)
        try:
            return await self._faulty(request, kind, fault)
        finally:
            self._busy -= 1
            self._puts -= kind == "put"
            if not self._busy:
                self._idle.set()

    async def _faulty(self, request: web.BaseRequest, kind: str, fault: Fault | None) -> web.StreamResponse:
        how = fault.how if fault else ""
        if fault is not None:
            if how == "status":
                await self._body(request)
                return self._error(fault.status, fault.words, fault.headers)
            if how == "stall":
                await self._body(request)
                self.reached.set()
                await asyncio.Event().wait()  # cancelled when the client hangs up
            if how == "reset":
                return self._cut(request)
            if how == "answer":
                return web.Response(status=self.page[0], text=self.page[1], content_type="application/json")
            if how == "page":
                await self._body(request)
                return web.Response(text="<html>Sign in</html>", content_type="text/html")
        try:
            answer = await self.answer(request, kind, how)
        except Refusal as refusal:
            answer = self._error(refusal.status, refusal.words)
        if how.endswith(("-after", "-reset")) and kind == "open":
            self.lost.add(answer.headers.get("Location", "").rpartition("upload_id=")[2])
        if fault is not None and how == "status-after":
            return self._error(fault.status, fault.words, fault.headers)
        if how == "forget-after":
            self.sessions = {upload: session for upload, session in self.sessions.items() if not session.done}
        if how in ("reset-after", "forget-after", "partial-reset"):
            return self._cut(request)
        if how == "truncate" and isinstance(answer.body, bytes) and len(answer.body) > 1:
            cut = web.StreamResponse(status=answer.status, headers=answer.headers)
            cut.content_length = len(answer.body)
            await cut.prepare(request)
            await cut.write(answer.body[: len(answer.body) // 2])
            return self._cut(request)
        return answer

    def _cut(self, request: web.BaseRequest) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()

    def _error(self, status: int, words: str, headers: dict[str, str] | None = None) -> web.Response:
        body = {"error": {"code": status, "message": words, "errors": [{"reason": "chaos", "message": words}]}}
        return web.json_response(body, status=status, headers=headers)
