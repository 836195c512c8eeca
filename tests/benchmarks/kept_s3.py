"""An S3 store that keeps the written objects, with a delay before each response; like a writable `folder_s3`.

    python tests/benchmarks/kept_s3.py DELAY_MS

prints its port, and serves 127.0.0.1 until its standard input ends. The bucket is in memory. It supports PUT with
``If-None-Match: *`` and ``If-Match``, multipart uploads, GET with ranges, HEAD, ListObjectsV2, and deletions of one or
many objects. A request takes effect when its response is sent. Checksums are echoed, not computed. The store has a
single thread: if that is always busy (``cpu``), it limits the result.

``GET /?delay=MS`` sets the delay. ``GET /?counts`` returns as JSON the requests since ``GET /?reset=TRIES``:

    requests   requests by kind
    tries      puts of a key that matches TRIES, a regular expression
    depths     the number of sequential requests (each begun after another ended), of "all" and of each writer (`MARK`)
    cpu        seconds of processor time
"""

from __future__ import annotations

import asyncio
import bisect
import hashlib
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from subprocess import PIPE, Popen
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

# Identifies a writer by its access key, or by a part of the names that it puts.
MARK = re.compile(r"race\d{4}")
_CODES = {404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange", 501: "NotImplemented"}
Answer = tuple[int, list[str], bytes]


@dataclass
class _Object:
    body: bytes
    etag: str
    headers: list[str]
    made: float = field(default_factory=time.time)


@dataclass
class _Request:
    method: str
    key: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    mark: str
    body: bytes = b""

    def of(self, name: str, default: str = "") -> str:
        return self.query.get(name, [default])[0]

    @property
    def kind(self) -> str:
        if self.method == "GET":
            return "LIST" if "list-type" in self.query else "GET"
        return "PART" if "partNumber" in self.query else self.method


class _Store:
    def __init__(self, delay: float) -> None:
        self.delay = delay
        self.objects: dict[str, _Object] = {}
        self.names: list[str] = []  # sorted
        self.uploads: dict[str, tuple[list[str], dict[int, bytes]]] = {}  # the headers and the parts
        self.reset("$^")

    def reset(self, tries: str) -> None:
        """Restart counting."""
        self.requests: Counter[str] = Counter()
        self.pattern, self.tries = re.compile(tries), 0
        # By mark, and "all" for all requests: the depth of the deepest request that has ended.
        self.ended: dict[str, int] = {}
        self.cpu = time.process_time()

    def told(self, request: _Request) -> bytes:
        """Apply the benchmark's settings, and return the counts."""
        cpu = time.process_time() - self.cpu
        if "reset" in request.query:
            self.reset(request.of("reset"))
        if "delay" in request.query:
            self.delay = float(request.of("delay")) / 1000
        return json.dumps({"requests": self.requests, "tries": self.tries, "depths": self.ended, "cpu": cpu}).encode()

    def answer(self, request: _Request) -> Answer:
        match request.method:
            case "GET" if "list-type" in request.query:
                return 200, [], self.listed(request)
            case "GET" | "HEAD":
                return self.give(request)
            case "PUT" if "partNumber" in request.query:
                _, parts = self.uploads[request.of("uploadId")]
                parts[int(request.of("partNumber"))] = request.body
                return 200, [f"ETag: {_etag(request.body)}", *_echoed(request)], b""
            case "PUT" if "x-amz-copy-source" not in request.headers:
                return self.put(request)
            case "POST" if "uploads" in request.query:
                name = f"upload-{time.monotonic_ns()}"
                self.uploads[name] = (_kept(request), {})
                return 200, [], _xml("InitiateMultipartUploadResult", Key=request.key, UploadId=name)
            case "POST" if "uploadId" in request.query:
                return self.complete(request)
            case "POST" if "delete" in request.query:
                keys = re.findall(r"<Key>(.*?)</Key>", request.body.decode())
                for key in keys:
                    self.remove(unescape(key))
                return 200, [], _xml("DeleteResult", "".join(_tag("Deleted", _tag("Key", key)) for key in keys))
            case "DELETE":
                if "uploadId" in request.query:
                    self.uploads.pop(request.of("uploadId"), None)
                else:
                    self.remove(request.key)
                return 204, [], b""
        return self.no(501)

    def no(self, status: int) -> Answer:
        return status, [], _xml("Error", Code=_CODES[status])

    def refuses(self, request: _Request) -> bool:
        """Return whether the condition of a put is not met."""
        found = self.objects.get(request.key)
        if "if-none-match" in request.headers:
            return found is not None
        wanted = request.headers.get("if-match")
        return wanted is not None and (found is None or found.etag.strip('"') != wanted.strip('"'))

    def put(self, request: _Request) -> Answer:
        if self.refuses(request):
            return self.no(412)
        self.keep(request.key, _Object(request.body, _etag(request.body), _kept(request)))
        return 200, [f"ETag: {_etag(request.body)}", *_echoed(request)], b""

    def complete(self, request: _Request) -> Answer:
        if self.refuses(request):
            return self.no(412)
        headers, parts = self.uploads.pop(request.of("uploadId"))
        body = b"".join(parts[number] for number in sorted(parts))
        etag = f'{_etag(body)[:-1]}-{len(parts)}"'
        self.keep(request.key, _Object(body, etag, headers))
        return 200, [], _xml("CompleteMultipartUploadResult", Key=escape(request.key), ETag=etag.replace('"', "&quot;"))

    def keep(self, key: str, made: _Object) -> None:
        if key not in self.objects:
            bisect.insort(self.names, key)
        self.objects[key] = made

    def remove(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self.names[bisect.bisect_left(self.names, key)]

    def give(self, request: _Request) -> Answer:
        if not request.key:
            return 200, [], b""  # the bucket
        found = self.objects.get(request.key)
        if found is None:
            return self.no(404)
        if "if-match" in request.headers and self.refuses(request):
            return self.no(412)
        said = [
            f"ETag: {found.etag}",
            f"Last-Modified: {formatdate(found.made, usegmt=True)}",
            "Accept-Ranges: bytes",
            *found.headers,
        ]
        match = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("range", ""))
        if match is None:
            return 200, said, found.body
        size = len(found.body)
        start = int(match[1]) if match[1] else max(size - int(match[2]), 0)
        end = min(size, int(match[2]) + 1) if match[1] and match[2] else size
        if start >= size:
            return self.no(416)
        return 206, [*said, f"Content-Range: bytes {start}-{end - 1}/{size}"], found.body[start:end]

    def listed(self, request: _Request) -> bytes:
        prefix, delimiter, most = request.of("prefix"), request.of("delimiter"), int(request.of("max-keys", "1000"))
        after = request.of("continuation-token") or request.of("start-after")
        show = quote if request.of("encoding-type") else escape
        rows: list[str] = []
        last, more = "", False
        at = max(bisect.bisect_left(self.names, prefix), bisect.bisect_right(self.names, after))
        while at < len(self.names) and self.names[at].startswith(prefix):
            if len(rows) == most:
                more = True
                break
            last = self.names[at]
            head, found, _ = last[len(prefix) :].partition(delimiter) if delimiter else (last, "", "")
            if not found:
                each = self.objects[last]
                made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(each.made))
                row = _tag("Key", show(last)) + _tag("Size", str(len(each.body))) + _tag("ETag", escape(each.etag))
                rows.append(_tag("Contents", row + _tag("LastModified", made)))
                at += 1
                continue
            last = prefix + head + delimiter
            rows.append(f"<CommonPrefixes><Prefix>{show(last)}</Prefix></CommonPrefixes>")
            last += "\U0010ffff"
            at = bisect.bisect_left(self.names, last)
        said = [_tag("IsTruncated", str(more).lower()), _tag("KeyCount", str(len(rows))), _tag("Prefix", show(prefix))]
        said += [_tag("MaxKeys", str(most)), *([_tag("NextContinuationToken", escape(last))] if more else [])]
        return _xml("ListBucketResult", inner="".join([*said, *rows]))


class _Connection(asyncio.Protocol):
    def __init__(self, store: _Store) -> None:
        self.store = store
        self.held = bytearray()
        self.request: _Request | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        self.held += data
        if self.request is None:
            end = self.held.find(b"\r\n\r\n")
            if end < 0:
                return
            self.request = _head(bytes(self.held[:end]).decode("latin-1"))
            del self.held[: end + 4]
            if "expect" in self.request.headers:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request, headers = self.request, self.request.headers
        if "chunked" in headers.get("transfer-encoding", ""):
            size = _chunks(self.held)[1]
        else:
            size = int(headers.get("content-length", 0))
        if not 0 <= size <= len(self.held):
            return
        request.body = bytes(self.held[:size])
        del self.held[:size]
        for name in ("transfer-encoding", "content-encoding"):  # chunks may be nested
            if "chunked" in headers.get(name, ""):
                request.body = _chunks(request.body)[0]
        self.request = None
        self.arrived(request)

    def arrived(self, request: _Request) -> None:
        store = self.store
        if request.query.keys() & {"counts", "reset", "delay"}:
            self.reply((200, [], store.told(request)), request)
        else:
            store.requests[request.kind] += 1
            creates = request.kind == "PUT" or (request.method == "POST" and "uploadId" in request.query)
            store.tries += creates and store.pattern.search(request.key) is not None
            ended = store.ended
            depths = {of: ended.get(of, 0) + 1 for of in {request.mark, "all"} - {""}}
            asyncio.get_running_loop().call_later(store.delay, self.answer, request, depths, ended)

    def answer(self, request: _Request, depths: dict[str, int], ended: dict[str, int]) -> None:
        said = self.store.answer(request)
        for of, depth in depths.items():
            ended[of] = max(ended.get(of, 0), depth)
        self.reply(said, request)

    def reply(self, said: Answer, request: _Request) -> None:
        status, headers, body = said
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Date: {formatdate(usegmt=True)}"]
        lines += [
            "x-amz-request-id: of-kept-s3",
            f"Content-Length: {len(body)}",
            *(["Content-Type: application/xml"] if body[:5] == b"<?xml" else []),
        ]
        head = "\r\n".join([*lines, *headers, "", ""]).encode("latin-1")
        self.transport.write(head if request.method == "HEAD" else head + body)


def _head(text: str) -> _Request:
    first, *lines = text.split("\r\n")
    method, target, _ = first.split(" ")
    url = urlsplit(target)
    mark = MARK.search("".join(lines)) or (None if method == "GET" else MARK.search(target))
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    key = unquote(url.path).lstrip("/").partition("/")[2]
    return _Request(method, key, parse_qs(url.query, keep_blank_values=True), headers, mark[0] if mark else "")


def _chunks(body: bytes | bytearray) -> tuple[bytes, int]:
    """Return the data of a chunked body and its encoded length with the trailer; the length is -1 if incomplete."""
    whole, at = bytearray(), 0
    while (end := body.find(b"\r\n", at)) >= 0:
        size = int(body[at:end].partition(b";")[0], 16)
        if not size:
            last = body.find(b"\r\n\r\n", end)
            return bytes(whole), last + 4 if last >= 0 else -1
        whole += body[end + 2 : end + 2 + size]
        at = end + 4 + size
    return b"", -1


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'


def _kept(request: _Request) -> list[str]:
    kept = [f"{name}: {value}" for name, value in request.headers.items() if name.startswith("x-amz-meta-")]
    return kept + _echoed(request)


def _echoed(request: _Request) -> list[str]:
    sums = re.compile(r"x-amz-checksum-(crc32c?|crc64nvme|sha1|sha256)")
    return [f"{name}: {value}" for name, value in request.headers.items() if sums.fullmatch(name)]


def _tag(name: str, value: str) -> str:
    return f"<{name}>{value}</{name}>"


def _xml(root: str, inner: str = "", **values: str) -> bytes:
    inner += "".join(_tag(name, value) for name, value in values.items())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}>{inner}</{root}>'.encode()


async def serve(delay: float) -> None:
    """Serve until standard input ends, which also happens if the benchmark is killed."""
    loop, store = asyncio.get_running_loop(), _Store(delay)
    # For example, without free descriptors: the benchmark must not measure the store.
    loop.set_exception_handler(lambda *_: os._exit(1))
    server = await loop.create_server(lambda: _Connection(store), "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.buffer.read)


@contextmanager
def kept_s3(delay: float) -> Iterator[str]:
    """Start a server in a separate process with a delay for each request; yield its endpoint."""
    with Popen([sys.executable, __file__, str(delay * 1000)], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.stdin.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) / 1000))
