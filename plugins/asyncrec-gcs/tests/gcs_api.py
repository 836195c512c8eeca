"""Google Cloud Storage's JSON API on top of a dictionary: objects and resumable uploads, stricter than the real one.

It is stricter where that catches mistakes: it enforces the 256 KiB rule, a ``Content-Range`` has to begin where the
stored bytes end, ``bytes */*`` with a body is rejected, and so are bytes after the end.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from aiohttp import web
from crc32c import crc32c

sys.path.insert(0, str(Path(__file__).parents[3] / "tests/servers"))

from serving import Refusal, Server  # importable because of the line above

__all__ = ["UNIT", "Api", "Object", "Refusal"]

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


class Api(Server):
    """The objects and upload sessions of a store, and its responses to requests.

    Attributes:
        page_size: the maximum number of objects on a page of a listing.
        taking: if cleared, bodies are left unread in their sockets.
        sparse: whether an object's size is omitted if it is 0.
        aborts: the status of the response to aborting a completed session.
        tokens: the tokens issued by the token endpoint; if there are any, only the last one is valid.
    """

    def reset(self) -> None:
        super().reset()
        self.token: str | None = None
        self.objects: dict[tuple[str, str], Object] = {}
        self.sessions: dict[str, Session] = {}
        self.ended: set[str] = set()
        self.generation = 1_700_000_000_000_000
        self.page_size = 1_000
        self.tokens: list[str] = []
        self.sparse = False
        self.aborts = 404
        self.taking = threading.Event()
        self.taking.set()

    def put(self, name: str, data: bytes, bucket: str = "bucket", metadata: dict[str, str] | None = None) -> Object:
        self.generation += 1
        self.objects[bucket, name] = Object(bytes(data), self.generation, metadata or {})
        return self.objects[bucket, name]

    def kind_of(self, request: web.BaseRequest) -> str:
        """Return the kind of a request in one word; `FakeGcs.log` contains these words."""
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

    async def answer(self, request: web.BaseRequest, kind: str, how: str) -> web.Response:
        """Serve a request, applying only the faults in ``how`` that change the stored data."""
        path, query = self._where(request)
        if kind == "token":
            await self.body(request)
            self.tokens.append(f"ya29.token-{len(self.tokens)}")
            return web.json_response({"access_token": self.tokens[-1], "expires_in": 3600, "token_type": "Bearer"})
        wanted = self.tokens[-1] if self.tokens else self.token
        if wanted is not None and request.headers.get("Authorization") != f"Bearer {wanted}":
            raise Refusal(401, f"Invalid Credentials: {request.headers.get('Authorization')}")
        match = re.fullmatch(r"(?:/upload)?/storage/v1/b/([^/]+)/o(?:/([^/]+))?", path)
        if match is None:
            raise Refusal(404, f"no such path {path}")
        bucket, name = unquote(match[1]), unquote(match[2], errors="strict") if match[2] else ""
        if bucket == "missing":
            raise Refusal(404, "The specified bucket does not exist.")
        if kind == "open":
            return await self._open(request, bucket, query)
        if kind in ("put", "last", "query", "abort"):
            return await self._session(request, kind, query.get("upload_id", ""), how)
        if kind == "list":
            return self._list(bucket, query)
        found = self.objects.get((bucket, name))
        if found is None:
            raise Refusal(404, f"No such object: {bucket}/{name}")
        if query.get("ifGenerationMatch", str(found.generation)) != str(found.generation):
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")
        if kind == "delete":
            del self.objects[bucket, name]
            return web.Response(status=204)
        if kind == "meta":
            return web.json_response(self._resource(bucket, name, found))
        return self._read(request, found)

    def _read(self, request: web.BaseRequest, found: Object) -> web.Response:
        if request.headers.get("Accept-Encoding") != "gzip":
            raise Refusal(400, "would be decompressed on the way")
        headers = {
            "X-Goog-Generation": str(found.generation),
            "X-Goog-Hash": f"crc32c={_base64(crc32c(found.data))}",
            "Last-Modified": format_datetime(found.updated, usegmt=True),
        }
        span = request.headers.get("Range")
        if span is None:
            return web.Response(body=found.data, headers=headers)
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", span)
        if match is None:
            raise Refusal(400, f"bad range {span}")
        start, end = int(match[1]), min(int(match[2]) + 1 if match[2] else len(found.data), len(found.data))
        if start >= len(found.data):
            raise Refusal(416, "The requested range cannot be satisfied.")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(found.data)}"
        return web.Response(status=206, body=found.data[start:end], headers=headers)

    def _list(self, bucket: str, query: dict[str, str]) -> web.Response:
        prefix, offset = query.get("prefix", ""), query.get("startOffset", "")
        names = sorted(
            (name for b, name in self.objects if b == bucket and name.startswith(prefix)),
            key=lambda name: name.encode(),
        )
        # A page token is the last name of the page, so that changes before it do not shift the listing.
        last = query.get("pageToken", "")
        names = [name for name in names if name.encode() >= offset.encode() and name.encode() > last.encode()]
        size = min(int(query.get("maxResults", "1000")), self.page_size)
        page: dict[str, Any] = {"kind": "storage#objects"}
        if items := names[:size]:
            page["items"] = [self._resource(bucket, name, self.objects[bucket, name]) for name in items]
        if size < len(names):
            page["nextPageToken"] = items[-1]
        return web.json_response(page)

    async def _open(self, request: web.BaseRequest, bucket: str, query: dict[str, str]) -> web.Response:
        described = json.loads(await self.body(request) or b"{}")
        if query.get("uploadType") != "resumable" or query.get("name") != described.get("name", query.get("name")):
            raise Refusal(400, "not a resumable upload of one name")
        exclusive = query.get("ifGenerationMatch") == "0"
        if exclusive and (bucket, query["name"]) in self.objects:
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")
        upload = base64.urlsafe_b64encode(random.randbytes(24)).decode()
        self.sessions[upload] = Session(bucket, query["name"], described.get("metadata", {}), exclusive)
        where = f"{self.url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={upload}"
        return web.Response(headers={"Location": where})

    async def _session(self, request: web.BaseRequest, kind: str, upload: str, how: str) -> web.Response:
        if "Content-Length" not in request.headers:
            raise Refusal(411, "no length")
        body = await self.body(request)
        session = self.sessions.get(upload)
        if session is None:
            raise Refusal(499 if upload in self.ended else 404, f"no session upload_id={upload}")
        if how == "expire":
            del self.sessions[upload]
            raise Refusal(410, "the session expired")
        if kind == "abort":
            if session.done:
                raise Refusal(self.aborts, "completed")
            del self.sessions[upload]
            self.ended.add(upload)
            return web.Response(status=499)
        if session.done:
            if kind != "query":
                raise Refusal(400, "completed")
            key = session.bucket, session.name
            return web.json_response(self._resource(*key, self.objects[key]))
        if kind == "query":
            if body:
                raise Refusal(400, "a status query has no body")
            return self._incomplete(session)
        return self._take(request, session, body, how)

    def _take(self, request: web.BaseRequest, session: Session, body: bytes, how: str) -> web.Response:
        span = request.headers.get("Content-Range", "")
        match = re.fullmatch(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)", span)
        if match is None:
            raise Refusal(400, f"bad range {span}")
        stored = len(session.data)
        start, end = (int(match[1]), int(match[2]) + 1) if match[1] else (stored, stored)
        total = None if match[3] == "*" else int(match[3])
        if start != stored or end - start != len(body) or (total is not None and end != total):
            raise Refusal(400, f"{span} with {len(body)} bytes, but {stored} are stored")
        if total is None and (len(body) % UNIT or not body):
            raise Refusal(400, f"{len(body)} bytes are no multiple of 256 KiB")
        if how.startswith("partial"):
            session.data += body[: len(body) // 2 // UNIT * UNIT]
            return self._incomplete(session)
        if total is None:
            session.data += body
            return self._incomplete(session)
        data = bytes(session.data) + body
        hashes = request.headers.get("X-Goog-Hash")
        if hashes is not None and hashes != f"crc32c={_base64(crc32c(data))}":
            raise Refusal(400, "Provided CRC32C doesn't match calculated CRC32C")
        key = session.bucket, session.name
        if session.exclusive and key in self.objects:
            raise Refusal(412, "At least one of the pre-conditions you specified did not hold.")
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

    async def body(self, request: web.BaseRequest) -> bytes:
        if not self.taking.is_set():
            await asyncio.to_thread(self.taking.wait)
        return await request.content.read()


def _base64(value: int) -> str:
    return base64.b64encode(value.to_bytes(4, "big")).decode()
