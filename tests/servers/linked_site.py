"""A web site of linked pages for crawls. It counts requests, so that a test can kill a crawl at a given request."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Site", "serving_site"]


class Site(ThreadingHTTPServer):
    """A web server where page n links to 3n+1, 3n+2 and 3n+3, so that all pages can be reached from the first.

    Attributes:
        count: the number of pages.
        asked: how often each path was requested.
        pause: the delay before each response, in seconds.
        texts: the texts that pages contain in addition to their links, used in rotation.
        tagged: whether pages have an ETag, and conditional requests are answered with 304.
        unchanged: how many responses were 304.
    """

    request_queue_size = 64
    daemon_threads = True

    def __init__(self, count: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.count = count
        self.asked: dict[str, int] = {}
        self.pause = 0.0
        self.texts = [""]
        self.tagged = False
        self.unchanged = 0
        self.reached = threading.Condition()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error, because clients are killed on purpose."""

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def wait_for(self, asked: int, ended: Callable[[], bool]) -> None:
        """Wait until ``asked`` requests have arrived or the crawl has ended."""
        with self.reached:
            while sum(self.asked.values()) < asked and not ended():
                self.reached.wait(0.05)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        with self.server.reached:
            self.server.asked[self.path] = self.server.asked.get(self.path, 0) + 1
            self.server.reached.notify_all()
        if self.server.pause:
            time.sleep(self.server.pause)
        number = int(self.path.strip("/") or 0)
        links = "".join(f'<a href="/{n}">x</a>' for n in range(3 * number + 1, 3 * number + 4) if n < self.server.count)
        text = self.server.texts[number % len(self.server.texts)]
        body = f"<html><title>Page {number}</title>{links}{text}</html>".encode()
        tag = f'"{zlib.crc32(body)}"'
        if self.server.tagged and self.headers["If-None-Match"] == tag:
            with self.server.reached:
                self.server.unchanged += 1
            self.send_response(304)
            self.send_header("ETag", tag)
            self.end_headers()
            return
        self.send_response(200)
        if self.server.tagged:
            self.send_header("ETag", tag)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving_site(count: int) -> Iterator[Site]:
    with Site(count) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
