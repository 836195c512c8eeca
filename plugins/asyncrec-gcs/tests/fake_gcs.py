"""A strict Google Cloud Storage for tests: the JSON API's objects and resumable uploads, on a thread and a free port.

Stricter than the real one where that catches mistakes: the 256 KiB rule, a ``Content-Range`` that begins just where the
stored bytes end, ``bytes */*`` with a body refused, no bytes after the end. Faults are planned by a function that sees
each request before it is served.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from aiohttp import web
from crc32c import crc32c

UNIT = 256 * 1024


@dataclass
class Object:
    data: bytes
    generation: int
    metadata: dict[str, str] = field(default_factory=dict)
    updated: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass
class Session:
    bucket: str
    name: str
    metadata: dict[str, str]
    exclusive: bool
    data: bytearray = field(default_factory=bytearray)
    done: bool = False


@dataclass(frozen=True)
class Fault:
    """What happens to a request. ``how`` is one of:

    - ``status``, ``reset``: answered so, or cut off, without effect;
    - ``status-after``, ``reset-after``: the same after its effect;
    - ``forget-after``: as ``reset-after``, and the session, completed, is forgotten;
    - ``stall``: never answered;
    - ``truncate``: cut off in the middle of the answer's body;
    - ``partial``: of a PUT the first half is kept, in whole units, and 308 says so;
    - ``partial-reset``: the same without an answer;
    - ``corrupt``: the object is published with a flipped bit;
    - ``expire``: the session is gone;
    - ``page``: without effect, a page of HTML and a status that says all is well;
    - ``answer``: without effect, whatever `FakeGcs.page` is.
    """

    how: str
    status: int = 503
    headers: dict[str, str] = field(default_factory=dict)
    words: str = "chaos"


Plan = Callable[[str, int], Fault | None]


def nothing(kind: str, n: int) -> Fault | None:
    return None


def nth(n: int, fault: Fault, kind: str = "") -> Plan:
    """The ``n``-th request (of a kind, counted from 1) has a fault, once."""
    count = 0

    def plan(this: str, _: int) -> Fault | None:
        nonlocal count
        count += this.startswith(kind)
        return fault if count == n and this.startswith(kind) else None

    return plan


def chaos(seed: int, *, stalls: float = 0.0) -> Plan:
    """5% of 5xx before and after the effect, 10% throttled, and each of the others now and then.

    ``stalls`` is the chance of a request that is never answered: it takes as long as the client is patient.
    """
    draw = random.Random(seed)
    faults = (
        [Fault("status", 503)] * 3 + [Fault("status-after", 500)] * 2
        + [Fault("status", 429, {"Retry-After": "0"}, "SlowDown")] * 10
        + [Fault("reset"), Fault("reset-after"), Fault("truncate"), Fault("partial"), Fault("partial-reset")] * 2
    )  # fmt: skip

    def plan(kind: str, n: int) -> Fault | None:
        x = draw.random()
        if x > 1 - stalls:
            return Fault("stall")
        return faults[int(x * 100)] if x * 100 < len(faults) else None

    return plan


class FakeGcs:
    """
    Attributes:
        plan: asked about each request, with its kind and number.
        log: the kinds of all requests: ``open``, ``put``, ``last``, ``query``, ``abort``, ``read``, ``meta``, ``list``,
            ``delete``, ``token``, ``credentials``.
        page: the status and the text of the answer to whatever has the fault ``answer``.
        lost: sessions whose address was in an answer that did not arrive: nobody can take them away.
        taking: cleared, bodies are left unread in their sockets.
        most_puts: how many chunks were on their way at once.
        reached: set when a request stalls.
        sparse: an object's size is left out where it is 0.
        aborts: the status of the answer to taking away a session that is completed.
        tokens: what the token endpoint has given out; only the last is good, when there are any.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.plan: Plan = nothing
        self.token: str | None = None
        self.objects: dict[tuple[str, str], Object] = {}
        self.sessions: dict[str, Session] = {}
        self.ended: set[str] = set()
        self.lost: set[str] = set()
        self.log: list[str] = []
        self.seen: list[dict[str, str]] = []
        self.generation = 1_700_000_000_000_000
        self.reached = threading.Event()
        self.most_puts = 0
        self.page_size = 1_000
        self.page = 200, "<html>Sign in</html>"
        self.tokens: list[str] = []
        self.sparse = False
        self.aborts = 404
        self.taking = threading.Event()
        self.taking.set()

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

    def put(self, name: str, data: bytes, bucket: str = "bucket", metadata: dict[str, str] | None = None) -> Object:
        self.generation += 1
        self.objects[bucket, name] = Object(bytes(data), self.generation, metadata or {})
        return self.objects[bucket, name]

    # Serving ---------------------------------------------------------------------------------------------------------

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
        kind = self._kind(request)
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
            answer = await self._serve_one(request, kind, how)
        except _Refusal as refusal:
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

    async def _body(self, request: web.BaseRequest) -> bytes:
        if not self.taking.is_set():
            await asyncio.to_thread(self.taking.wait)
        return await request.content.read()

    # The API ---------------------------------------------------------------------------------------------------------

    def _kind(self, request: web.BaseRequest) -> str:
        path, query = self._where(request)
        if path in ("/token", "/credentials"):
            return path[1:]
        if path.startswith("/upload/"):
            span = request.headers.get("Content-Range", "")
            if request.method == "PUT":
                return "query" if span == "bytes */*" else "put" if span.endswith("/*") else "last"
            return {"POST": "open", "DELETE": "abort"}[request.method]
        if request.method == "DELETE":
            return "delete"
        return "list" if path.endswith("/o") else "read" if query.get("alt") == "media" else "meta"

    def _where(self, request: web.BaseRequest) -> tuple[str, dict[str, str]]:
        parts = urlsplit(request.raw_path)
        return parts.path, {name: values[0] for name, values in parse_qs(parts.query, strict_parsing=True).items()} if (
            parts.query
        ) else {}

    async def _serve_one(self, request: web.BaseRequest, kind: str, how: str) -> web.Response:
        path, query = self._where(request)
        if kind == "token":
            await self._body(request)
            self.tokens.append(f"ya29.token-{len(self.tokens)}")
            return web.json_response({"access_token": self.tokens[-1], "expires_in": 3600, "token_type": "Bearer"})
        wanted = self.tokens[-1] if self.tokens else self.token
        if wanted is not None and request.headers.get("Authorization") != f"Bearer {wanted}":
            raise _Refusal(401, f"Invalid Credentials: {request.headers.get('Authorization')}")
        match = re.fullmatch(r"(?:/upload)?/storage/v1/b/([^/]+)/o(?:/([^/]+))?", path)
        if match is None:
            raise _Refusal(404, f"no such path {path}")
        bucket, name = unquote(match[1]), unquote(match[2], errors="strict") if match[2] else ""
        if bucket == "missing":
            raise _Refusal(404, "The specified bucket does not exist.")
        if kind == "open":
            return await self._open(request, bucket, query)
        if kind in ("put", "last", "query", "abort"):
            return await self._session(request, kind, query.get("upload_id", ""), how)
        if kind == "list":
            return self._list(bucket, query)
        found = self.objects.get((bucket, name))
        if found is None:
            raise _Refusal(404, f"No such object: {bucket}/{name}")
        if query.get("ifGenerationMatch", str(found.generation)) != str(found.generation):
            raise _Refusal(412, "At least one of the pre-conditions you specified did not hold.")
        if kind == "delete":
            del self.objects[bucket, name]
            return web.Response(status=204)
        if kind == "meta":
            return web.json_response(self._resource(bucket, name, found))
        return self._read(request, found)

    def _read(self, request: web.BaseRequest, found: Object) -> web.Response:
        if request.headers.get("Accept-Encoding") != "gzip":
            raise _Refusal(400, "would be decompressed on the way")
        span = request.headers.get("Range")
        if span is None:
            return web.Response(body=found.data)
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", span)
        if match is None:
            raise _Refusal(400, f"bad range {span}")
        start, end = int(match[1]), min(int(match[2]) + 1, len(found.data))
        if start >= len(found.data):
            raise _Refusal(416, "The requested range cannot be satisfied.")
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(found.data)}"}
        return web.Response(status=206, body=found.data[start:end], headers=headers)

    def _list(self, bucket: str, query: dict[str, str]) -> web.Response:
        prefix, offset = query.get("prefix", ""), query.get("startOffset", "")
        names = sorted(
            (name for b, name in self.objects if b == bucket and name.startswith(prefix)),
            key=lambda name: name.encode(),
        )
        names = [name for name in names if name.encode() >= offset.encode()]
        first = int(query.get("pageToken", "0"))
        size = min(int(query.get("maxResults", "1000")), self.page_size)
        page: dict[str, Any] = {"kind": "storage#objects"}
        if items := names[first : first + size]:
            page["items"] = [self._resource(bucket, name, self.objects[bucket, name]) for name in items]
        if first + size < len(names):
            page["nextPageToken"] = str(first + size)
        return web.json_response(page)

    async def _open(self, request: web.BaseRequest, bucket: str, query: dict[str, str]) -> web.Response:
        described = json.loads(await self._body(request) or b"{}")
        if query.get("uploadType") != "resumable" or query.get("name") != described.get("name", query.get("name")):
            raise _Refusal(400, "not a resumable upload of one name")
        exclusive = query.get("ifGenerationMatch") == "0"
        if exclusive and (bucket, query["name"]) in self.objects:
            raise _Refusal(412, "At least one of the pre-conditions you specified did not hold.")
        upload = base64.urlsafe_b64encode(random.randbytes(24)).decode()
        self.sessions[upload] = Session(bucket, query["name"], described.get("metadata", {}), exclusive)
        where = f"{self.url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={upload}"
        return web.Response(headers={"Location": where})

    async def _session(self, request: web.BaseRequest, kind: str, upload: str, how: str) -> web.Response:
        if "Content-Length" not in request.headers:
            raise _Refusal(411, "no length")
        body = await self._body(request)
        session = self.sessions.get(upload)
        if session is None:
            raise _Refusal(499 if upload in self.ended else 404, f"no session upload_id={upload}")
        if how == "expire":
            del self.sessions[upload]
            raise _Refusal(410, "the session expired")
        if kind == "abort":
            if session.done:
                raise _Refusal(self.aborts, "completed")
            del self.sessions[upload]
            self.ended.add(upload)
            return web.Response(status=499)
        if session.done:
            if kind != "query":
                raise _Refusal(400, "completed")
            key = session.bucket, session.name
            return web.json_response(self._resource(*key, self.objects[key]))
        if kind == "query":
            if body:
                raise _Refusal(400, "a status query has no body")
            return self._incomplete(session)
        return self._take(request, session, body, how)

    def _take(self, request: web.BaseRequest, session: Session, body: bytes, how: str) -> web.Response:
        span = request.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", span)
        if match is None:
            raise _Refusal(400, f"bad range {span}")
        stored = len(session.data)
        start, end = (int(match[1]), int(match[2]) + 1) if match[1] else (stored, stored)
        total = None if match[3] == "*" else int(match[3])
        if start != stored or end - start != len(body) or (total is not None and end != total):
            raise _Refusal(400, f"{span} with {len(body)} bytes, but {stored} are stored")
        if total is None and (len(body) % UNIT or not body):
            raise _Refusal(400, f"{len(body)} bytes are no multiple of 256 KiB")
        if how.startswith("partial"):
            session.data += body[: len(body) // 2 // UNIT * UNIT]
            return self._incomplete(session)
        if total is None:
            session.data += body
            return self._incomplete(session)
        data = bytes(session.data) + body
        hashes = request.headers.get("X-Goog-Hash")
        if hashes is not None and hashes != f"crc32c={_base64(crc32c(data))}":
            raise _Refusal(400, "Provided CRC32C doesn't match calculated CRC32C")
        key = session.bucket, session.name
        if session.exclusive and key in self.objects:
            raise _Refusal(412, "At least one of the pre-conditions you specified did not hold.")
        if how == "corrupt":
            data = data[:-1] + bytes([data[-1] ^ 1])
        session.data += body
        session.done = True
        return web.json_response(self._resource(*key, self.put(session.name, data, session.bucket, session.metadata)))

    def _incomplete(self, session: Session) -> web.Response:
        headers = {"Range": f"bytes=0-{len(session.data) - 1}"} if session.data else {}
        return web.Response(status=308, headers=headers)

    def _resource(self, bucket: str, name: str, found: Object) -> dict[str, Any]:
        resource = {
            "kind": "storage#object",
            "bucket": bucket,
            "name": name,
            "size": str(len(found.data)),
            "generation": str(found.generation),
            "crc32c": _base64(crc32c(found.data)),
            "updated": found.updated.isoformat().replace("+00:00", "Z"),
            "metadata": found.metadata,
        }
        if self.sparse and not found.data:
            del resource["size"]
        return resource


class _Refusal(Exception):
    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


def _base64(value: int) -> str:
    return base64.b64encode(value.to_bytes(4, "big")).decode()
