"""The base of the tests' strict servers: each runs in a thread on a free port, with a log and planned faults.

A server class derives from `Server`, implements the responses, and is used within `Server.serving`. A plan is a
function that is called with each request before it is served, and may return a fault.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import web

__all__ = ["Fault", "Plan", "Refusal", "Server", "chaos", "nothing", "nth"]

S = TypeVar("S", bound="Server")


@dataclass(frozen=True)
class Fault:
    """The fault of a request. ``how`` is one of:

    - ``status``, ``reset``: the request gets an error status, or its connection is cut; it has no effect;
    - ``status-after``, ``reset-after``: the same, but after the request has taken effect;
    - ``stall``: the request gets no response and has no effect; ``stall-after``: the same after it has taken effect;
    - ``truncate``: the connection is cut in the middle of the response's body;
    - ``page``: the request has no effect, and gets an HTML page with a status of success;
    - ``answer``: the request has no effect, and gets the response in `Server.page`;
    - any other fault that the server class defines.
    """

    how: str
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    words: str = "chaos"


Plan = Callable[[str, int], Fault | None]


def nothing(kind: str, n: int) -> Fault | None:
    return None


def nth(n: int, fault: Fault, kind: str = "") -> Plan:
    """Return a plan in which only the ``n``-th request (of the kind, counted from 1) has a fault."""
    count = 0

    def plan(this: str, _: int) -> Fault | None:
        nonlocal count
        count += this.startswith(kind)
        return fault if count == n and this.startswith(kind) else None

    return plan


def chaos(seed: int, *more: Fault, stalls: float = 0.0) -> Plan:
    """Return a plan of random faults: 5% get a 5xx before or after the effect, 10% are throttled, others are rare.

    ``stalls`` is the probability that a request is never answered (half of them after the effect), so that it takes
    as long as the client is willing to wait.
    """
    draw = random.Random(seed)
    faults = (
        [Fault("status", 503)] * 3 + [Fault("status-after", 500)] * 2
        + [Fault("status", 429, {"Retry-After": "0"}, "SlowDown")] * 10
        + [Fault("reset"), Fault("reset-after"), Fault("truncate"), *more] * 2
    )  # fmt: skip

    def plan(kind: str, n: int) -> Fault | None:
        x = draw.random()
        if x > 1 - stalls:
            return Fault("stall" if x > 1 - stalls / 2 else "stall-after")
        return faults[int(x * 100)] if x * 100 < len(faults) else None

    return plan


class Refusal(Exception):
    """Raised for a request that cannot be served; the response is an error."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class Server:
    """A server with a log of its requests and a plan of faults.

    Attributes:
        url: the URL of the server.
        plan: the function that is called with the kind and number of each request, and may return a fault.
        log: the kinds of all requests.
        seen: the headers of all requests.
        page: the status and the text of the response to requests with the fault ``answer``.
        reached: set when a request stalls.
        late: the delay before each request is served, in seconds.
    """

    url: str

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all requests and planned faults."""
        self.plan: Plan = nothing
        self.late = 0.0
        self.log: list[str] = []
        self.seen: list[dict[str, str]] = []
        self.reached = threading.Event()
        self.page = 200, "<html>Sign in</html>"
        self.page_headers: dict[str, str] = {}

    # Methods that derived classes implement -----------------------------------------------------------------------

    def kind_of(self, request: web.BaseRequest) -> str:
        """Return the kind of the request, in one word."""
        raise NotImplementedError

    async def answer(self, request: web.BaseRequest, kind: str, how: str) -> web.Response:
        """Serve a request. Faults (``how``) that affect stored data are carried out here."""
        raise NotImplementedError

    def error(self, status: int, words: str, headers: dict[str, str] | None = None) -> web.Response:
        """Return an error response in this kind of server's format."""
        raise NotImplementedError

    def served(self, kind: str, how: str, answer: web.Response) -> bool:
        """Note the response before a fault loses it; return whether to cut the connection instead of sending it."""
        return False

    async def body(self, request: web.BaseRequest) -> bytes:
        return await request.content.read()

    @contextmanager
    def slowed(self, seconds: float) -> Iterator[None]:
        self.late = seconds
        yield
        self.late = 0.0

    @contextmanager
    def answered_by_another(self, number: int, body: bytes) -> Iterator[None]:
        """Respond to the ``number``-th request from now on with ``body``, as if it had reached a different server."""
        self.page, self.plan = (200, body.decode()), nth(number, Fault("answer"))
        yield
        self.plan = nothing

    @contextmanager
    def answered_by_static_page(self, number: int, body: bytes) -> Iterator[None]:
        """Like `answered_by_another`, but with headers that describe the page as a file."""
        self.page_headers = {"ETag": '"65f0-2a"', "Last-Modified": "Mon, 02 Mar 2026 10:00:00 GMT"}
        with self.answered_by_another(number, body):
            yield
        self.page_headers = {}

    # Common to all servers ----------------------------------------------------------------------------------------

    @property
    def busy(self) -> int:
        """The number of requests in progress."""
        return self._busy

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.log)

    def wait_until_idle(self) -> None:
        """Wait until no request is in progress, because the server is slow to notice that a client has hung up."""
        assert self._idle.wait(5), f"{self._busy} requests are still under way"

    @contextmanager
    def serving(self: S, *, tls: ssl.SSLContext | None = None) -> Iterator[S]:
        ready: threading.Event = threading.Event()
        thread = threading.Thread(target=lambda: asyncio.run(self._serve(ready, tls)), name="test-server")
        thread.start()
        ready.wait()
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._stop.set)
            thread.join()

    async def _serve(self, ready: threading.Event, tls: ssl.SSLContext | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._busy = 0
        self._idle = threading.Event()
        self._idle.set()
        self._server = web.Server(self.handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
        await site.start()
        self.url = f"http{'s' * bool(tls)}://127.0.0.1:{runner.addresses[0][1]}"
        ready.set()
        await self._stop.wait()
        await runner.cleanup()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        kind = self.kind_of(request)
        self.log.append(kind)
        self.seen.append(dict(request.headers))
        fault = self.plan(kind, len(self.log))
        self._busy += 1
        self._idle.clear()
        try:
            await asyncio.sleep(self.late)
            return await self._faulty(request, kind, fault)
        finally:
            self._busy -= 1
            if not self._busy:
                self._idle.set()

    async def _faulty(self, request: web.BaseRequest, kind: str, fault: Fault | None) -> web.StreamResponse:
        how = fault.how if fault else ""
        if fault is not None:
            if how == "status":
                await self.body(request)
                return self.error(fault.status, fault.words, fault.headers)
            if how == "stall":
                await self.body(request)
                await self._stall()
            if how == "reset":
                return self.cut(request)
            if how == "answer":
                await self.body(request)  # otherwise the client would get its response while it is still sending
                kind = "xml" if self.page[1].startswith("<") else "json"
                headers = self.page_headers
                return web.Response(
                    status=self.page[0], text=self.page[1], content_type=f"application/{kind}", headers=headers
                )
            if how == "page":
                await self.body(request)
                return web.Response(text="<html>Sign in</html>", content_type="text/html")
        try:
            answer = await self.answer(request, kind, how)
        except Refusal as refusal:
            answer = self.error(refusal.status, refusal.words)
        if self.served(kind, how, answer) or how == "reset-after":
            return self.cut(request)
        if how == "stall-after":
            await self._stall()
        if fault is not None and how == "status-after":
            return self.error(fault.status, fault.words, fault.headers)
        if how == "truncate" and isinstance(answer.body, bytes) and len(answer.body) > 1:
            cut = web.StreamResponse(status=answer.status, headers=answer.headers)
            cut.content_length = len(answer.body)
            await cut.prepare(request)
            await cut.write(answer.body[: len(answer.body) // 2])
            return self.cut(request)
        return answer

    async def _stall(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()  # cancelled when the client hangs up

    def cut(self, request: web.BaseRequest) -> web.Response:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()
