"""A web server on top of a dictionary, with features that tests can switch off."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parents[3] / "tests/servers"))

from serving import Refusal, Server  # importable because of the line above

__all__ = ["WebServer"]


@dataclass
class File:
    data: bytes
    etag: str
    modified: str


class WebServer(Server):
    """A web server; its log contains ``HEAD`` and ``GET``. It uses URLs literally, without decoding them.

    Attributes:
        files: the files by path and query, as in a request.
        redirects: from a path to a URL.
        ranges, heads, etags, dates, lengths: whether the server supports them; ``weak``: whether its tags are weak.
        wanted: headers that a request must have.
        encoding: a content encoding that is falsely stated for every body.
        more: data that is sent after a range without being announced.
        shift: how many bytes after the requested range the range that is sent begins; the response says so.
    """

    def reset(self) -> None:
        super().reset()
        self.files: dict[str, File] = {}
        self.redirects: dict[str, str] = {}
        self.ranges = self.heads = self.etags = self.dates = self.lengths = True
        self.weak = False
        self.wanted: dict[str, str] = {}
        self.encoding = ""
        self.shift = 0
        self.more = b""
        self._versions = 0

    def store(self, path: str, data: bytes) -> File:
        self._versions += 1
        minute, second = divmod(self._versions, 60)
        date = f"Sun, 22 Nov 2026 10:{minute:02}:{second:02} GMT"
        self.files[path] = File(data, f'"v{self._versions}"', date)
        return self.files[path]

    def kind_of(self, request: web.BaseRequest) -> str:
        return request.method

    async def answer(self, request: web.BaseRequest, kind: str, how: str) -> web.Response:
        path = request.raw_path.lstrip("/")
        for name, value in self.wanted.items():
            if request.headers.get(name) != value:
                raise Refusal(401, f"no {name}: {request.headers.get(name)}")
        if path in self.redirects:
            return web.Response(status=302, headers={"Location": self.redirects[path]})
        if kind == "HEAD" and not self.heads:
            raise Refusal(405, "no HEAD")
        found = self.files.get(path)
        if found is None:
            raise Refusal(404, "Not Found")
        headers = {"Accept-Ranges": "bytes"} if self.ranges else {}
        if self.etags:
            headers["ETag"] = f"W/{found.etag}" if self.weak else found.etag
        if self.dates:
            headers["Last-Modified"] = found.modified
        if self.encoding:
            headers["Content-Encoding"] = self.encoding
        if kind == "HEAD":
            return web.Response(headers=headers | ({"Content-Length": str(len(found.data))} if self.lengths else {}))
        condition = request.headers.get("If-Range")
        span = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
        # As in RFC 9110 and nginx, a weak tag never matches.
        same = condition in (headers.get("ETag"), headers.get("Last-Modified")) and not self.weak
        fresh = condition is None or same
        if span is None or not self.ranges or not fresh:
            response = web.Response(body=found.data, headers=headers)
            if not self.lengths:
                response.enable_chunked_encoding()
            return response
        start, end = int(span[1]) + self.shift, min(int(span[2]) + 1 + self.shift, len(found.data))
        if start >= len(found.data):
            return web.Response(status=416, headers=headers | {"Content-Range": f"bytes */{len(found.data)}"})
        total = str(len(found.data)) if self.lengths else "*"
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{total}"
        return web.Response(status=206, body=found.data[start:end] + self.more, headers=headers)

    def error(self, status: int, words: str, headers: dict[str, str] | None = None) -> web.Response:
        return web.Response(status=status, text=words, headers=headers)
