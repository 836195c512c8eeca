"""A proxy in front of an S3 store that checks the requests, and fails on demand."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import io
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import aiohttp
import crc32c
from aiohttp import web
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from s3_store import ACCESS_KEY, SECRET_KEY, Store
from wsgi_calls import call
from yarl import URL


@dataclass
class Request:
    """A request as seen by the proxy; ``operation`` is S3's name for it.

    ``number`` counts all requests from 0, ``nth`` those for the same key.
    """

    number: int
    nth: int
    operation: str
    key: str
    headers: dict[str, str]


Fault = str
"""One of "500", "slowdown", "403", "501", "reset", "stall" (without effect; a stall waits until the client leaves);
"500-after", "reset-after", "stall-after" (with the effect, but the response is lost); "truncate" (half of the body),
"etag" (a wrong ETag), "200-error" (an error in a Complete's 200, after the effect); "hold" (waits for `Proxy.release`);
"page" (`Proxy.page`, without effect); "busy" (Ceph's response while it holds the lock of an earlier completion)."""


Plan = Callable[[Request], Fault | None]

# One request in five fails: 5% with a 5xx, 10% with SlowDown, and the rest in all other ways that requests can fail.
CHAOS = {
    "500": 0.03, "500-after": 0.02, "slowdown": 0.10, "reset": 0.01, "reset-after": 0.01, "stall": 0.003,
    "stall-after": 0.002, "truncate": 0.02, "etag": 0.02,
}  # fmt: skip


def chaos(seed: int) -> Plan:
    """Return a plan that makes each request fail with the probabilities of `CHAOS`.

    A wrong ETag is reported only once per key, because that is how a client distinguishes it from a different version.
    """
    draw = random.Random(seed)
    lied_about: set[str] = set()

    def plan(request: Request) -> Fault | None:
        (fault,) = draw.choices([*CHAOS, None], [*CHAOS.values(), 1 - sum(CHAOS.values())])
        if fault == "etag":
            # HEAD and a GET without a version are believed, because a wrong ETag there looks the same as a change.
            reads = request.operation in ("HeadObject", "GetObject")
            if request.key in lied_about or (reads and "if-match" not in map(str.lower, request.headers)):
                return None
            lied_about.add(request.key)
        return fault

    return plan


def _as_it_is(request: Request, headers: dict[str, str], content: bytes) -> tuple[dict[str, str], bytes]:
    return headers, content


class Proxy:
    """A proxy in its own thread and event loop. ``plan(request)`` returns a fault or `None`; a wrong checksum is a 400.

    ``echoes`` says whether the response to a body contains the CRC32C that came with it, as from stores that verify it;
    `None` leaves that to the store. The operations in ``ignores`` ignore their conditions: with
    "CompleteMultipartUpload" in it and without echoes, this behaves like Ceph 16; with "PutObject" as well, like a
    program that implements only the bare protocol.

    ``alter(request, headers, content)`` returns the content that replaces the store's response.

    moto is called in the proxy's threads: with its own server, a connection and a thread per request would take twice
    as long as moto itself.
    """

    def __init__(self, store: Store) -> None:
        self._app = store.app
        self._backend = store.endpoint
        self._threads = ThreadPoolExecutor(32)
        self.plan: Plan = lambda request: None
        self.late = 0.0  # delay of each request in seconds
        self.page: tuple[int, dict[str, str], bytes] = 200, {}, b""
        self.requests: list[Request] = []
        self._counts: Counter[str] = Counter()
        self.refused: list[str] = []
        self.in_flight = 0
        self.most_in_flight = 0
        self.endpoint = ""
        self.echoes: bool | None = None
        self.ignores: frozenset[str] = frozenset()
        self.alter = _as_it_is
        self._keys: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._ready.wait(10)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        self._threads.shutdown()

    def release(self) -> None:
        self._loop.call_soon_threadsafe(self._released.set)

    def reset(self) -> None:
        if self._ready.is_set():
            self._loop.call_soon_threadsafe(self._released.clear)
        self.plan = lambda request: None
        self.echoes = None
        self.ignores = frozenset()
        self.alter = _as_it_is
        self.requests, self.refused, self.most_in_flight = [], [], 0

    @property
    def connections(self) -> int:
        return len(self._server.connections)

    def operations(self) -> list[str]:
        return [request.operation for request in self.requests]

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._released = asyncio.Event()
        self._server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(self._server, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as session:
            self._session = session
            self._ready.set()
            await self._stop.wait()
            await runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await self._answer(request)
        finally:
            self.in_flight -= 1

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = bytearray()
        async for block in request.content.iter_any():
            body += block
        key = _key(request)
        if not self.requests:  # a test may clear the list
            self._counts.clear()
        self._counts[key] += 1
        seen = Request(len(self.requests), self._counts[key] - 1, _operation(request), key, dict(request.headers))
        self.requests.append(seen)
        fault = self.plan(seen)
        await asyncio.sleep(self.late)
        if fault == "stall":
            await asyncio.sleep(3600)
        if fault == "hold":
            await self._released.wait()
        if fault == "reset":
            return self._reset(request)
        if fault == "500":
            return _error(500, "InternalError")
        if fault == "403":
            return _error(403, "AccessDenied")
        if fault == "501":
            return _error(501, "NotImplemented")
        if fault == "page":
            status, headers, content = self.page
            return web.Response(status=status, headers={"Content-Type": "text/html"} | headers, body=content)
        if fault == "busy":
            return _error(500, "InternalError", words="This multipart completion is already in progress")
        if fault == "slowdown":
            return _error(503, "SlowDown", {"Retry-After": "0"})
        if wrong := _wrong_checksum(seen.headers, bytes(body)):
            self.refused.append(f"{seen.operation} {seen.key}: {wrong}")
            return _error(400, "BadDigest")
        # Once started, a change is completed even if the client has gone.
        task = asyncio.create_task(self._forward(request, bytes(body), seen))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        answer = await asyncio.shield(task)
        if fault == "500-after":
            return _error(500, "InternalError")
        if fault == "reset-after":
            return self._reset(request)
        if fault == "stall-after":
            await asyncio.sleep(3600)
        if fault == "200-error":
            return _error(200, "InternalError")
        status, headers, content = answer
        if self.echoes is not None and request.method == "PUT":
            headers = {name: value for name, value in headers.items() if name.lower() != "x-amz-checksum-crc32c"}
            if self.echoes and (crc := request.headers.get("x-amz-checksum-crc32c")):
                headers["x-amz-checksum-crc32c"] = crc
        if fault == "etag":
            headers = {name: value for name, value in headers.items() if name.lower() != "etag"}
            headers["ETag"] = '"00000000000000000000000000000000"'
            content = re.sub(
                rb"<ETag>[^<]*</ETag>", b"<ETag>&quot;00000000000000000000000000000000-9&quot;</ETag>", content
            )
        headers, content = self.alter(seen, headers, content)
        if request.method == "HEAD":
            response = web.Response(status=status, headers=headers)
        elif fault == "truncate" and content:
            half = web.StreamResponse(status=status, headers=headers | {"Content-Length": str(len(content))})
            await half.prepare(request)
            await half.write(content[: len(content) // 2])
            await asyncio.sleep(0.01)
            return self._reset(request, half)
        else:
            headers.pop("Content-Length", None)
            response = web.Response(status=status, headers=headers, body=content)
        return response

    async def _forward(self, request: web.BaseRequest, body: bytes, seen: Request) -> tuple[int, dict[str, str], bytes]:
        if "If-None-Match" not in request.headers or seen.operation in self.ignores:
            return await self._send_on(request, body, without="if-none-match")
        # moto checks and then writes, so that two concurrent conditional writes would both succeed.
        async with self._keys.setdefault(seen.key, asyncio.Lock()):
            return await self._send_on(request, body)

    async def _send_on(
        self, request: web.BaseRequest, body: bytes, without: str = ""
    ) -> tuple[int, dict[str, str], bytes]:
        dropped = ("expect", "transfer-encoding", without)
        headers = {k: v for k, v in request.headers.items() if k.lower() not in dropped}
        if without and without in request.headers.get("Authorization", ""):
            headers = self._signed(request.method, self._backend + _path(request), headers, body)
        if self._app is not None:
            status, answered, content = await self._loop.run_in_executor(
                self._threads, call, self._app, request.method, _path(request), headers, body
            )
            return status, {k: v for k, v in answered if k.lower() != "connection"}, content
        url = URL(self._backend + _path(request), encoded=True)
        async with self._session.request(
            request.method,
            url,
            headers=headers,
            data=io.BytesIO(body),
            skip_auto_headers=["Content-Type"],
            allow_redirects=False,
        ) as answer:
            kept = {
                k: v
                for k, v in answer.headers.items()
                if k.lower() not in ("connection", "transfer-encoding", "server")
            }
            return answer.status, kept, await answer.read()

    @staticmethod
    def _signed(method: str, url: str, headers: dict[str, str], body: bytes) -> dict[str, str]:
        """Sign the request again, because the signature covers the original headers."""
        kept = {k: v for k, v in headers.items() if k.lower() not in ("authorization", "x-amz-date")}
        request = AWSRequest(method, url, headers=kept, data=body)
        S3SigV4Auth(Credentials(ACCESS_KEY, SECRET_KEY), "s3", "us-east-1").add_auth(request)
        return dict(request.headers.items())

    @staticmethod
    def _reset(request: web.BaseRequest, response: web.StreamResponse | None = None) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return response or web.Response(status=500)


def _path(request: web.BaseRequest) -> str:
    # aiobotocore's httpx session sends the absolute form (RFC 9112, 3.2.2).
    return re.sub(r"^https?://[^/]+", "", request.raw_path)


def _operation(request: web.BaseRequest) -> str:
    query = request.query
    has_key = _path(request).partition("?")[0].strip("/").count("/") > 0
    if request.method == "PUT":
        return "UploadPart" if "partNumber" in query else "PutObject"
    if request.method == "POST":
        return "CreateMultipartUpload" if "uploads" in query else "CompleteMultipartUpload"
    if request.method == "DELETE":
        return "AbortMultipartUpload" if "uploadId" in query else "DeleteObject"
    if request.method == "HEAD":
        return "HeadObject"
    if "uploads" in query:
        return "ListMultipartUploads"
    if "uploadId" in query:
        return "ListParts"
    return "GetObject" if has_key else "ListObjectsV2"


def _key(request: web.BaseRequest) -> str:
    return unquote(_path(request).partition("?")[0].lstrip("/").partition("/")[2])


def _wrong_checksum(headers: dict[str, str], body: bytes) -> str:
    given = {name.lower(): value for name, value in headers.items()}
    if (md5 := given.get("content-md5")) and base64.b64decode(md5) != hashlib.md5(body).digest():
        return "Content-MD5"
    crc = given.get("x-amz-checksum-crc32c")
    if crc and body[:1] != b"<" and base64.b64decode(crc) != crc32c.crc32c(body).to_bytes(4, "big"):
        return "CRC32C"
    sha = given.get("x-amz-content-sha256", "UNSIGNED-PAYLOAD")
    if re.fullmatch("[0-9a-f]{64}", sha) and sha != hashlib.sha256(body).hexdigest():
        return "SHA-256"
    return ""


def _error(status: int, code: str, headers: dict[str, str] | None = None, words: str = "told to") -> web.Response:
    body = f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{words}</Message></Error>'
    return web.Response(status=status, text=body, content_type="application/xml", headers=headers)


@contextmanager
def running_proxy(store: Store) -> Iterator[Proxy]:
    proxy = Proxy(store)
    proxy.start()
    yield proxy
    proxy.stop()
