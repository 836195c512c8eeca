"""Real crawls by Crawlee, in processes of their own, killed with -9 and started again: each page is there once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from asyncrec import blocking, pages

PROGRAM = Path(__file__).parent / "crawl_pages.py"
KILLS = int(os.environ.get("ASYNCREC_CRAWLEE_KILLS", "2"))  # 20 of them take some minutes
PAGES = 60 + 30 * KILLS


class Site(ThreadingHTTPServer):
    """Page n links to 3n+1, 3n+2 and 3n+3, so that all are found from the first.

    Attributes:
        asked: how often each path was.
    """

    request_queue_size = 64
    daemon_threads = True

    def __init__(self, count: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.count = count
        self.asked: dict[str, int] = {}
        self.reached = threading.Condition()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed."""

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def wait_for(self, asked: int, ended: Callable[[], bool]) -> None:
        """Until so many requests have come, or the crawl has ended."""
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
        number = int(self.path.strip("/") or 0)
        links = "".join(f'<a href="/{n}">x</a>' for n in range(3 * number + 1, 3 * number + 4) if n < self.server.count)
        body = f"<html><title>Page {number}</title>{links}</html>".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(PAGES) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@contextmanager
def crawling(site: Site, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A crawl in a process of its own, which is killed in the end if it has not ended."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), site.root, str(folder)],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stored(folder: Path) -> list[dict[str, Any]]:
    with blocking.open_dataset(folder / "crawl/default") as dataset:
        assert dataset.schema == pages.PAGE
        return list(dataset.examples())


@pytest.mark.timeout(600)
def test_killed_again_and_again_every_page_is_there_once(site: Site, tmp_path: Path) -> None:
    for kill in range(1, KILLS + 1):
        with crawling(site, tmp_path) as process:
            site.wait_for(kill * PAGES // (KILLS + 1), lambda: process.poll() is not None)
    with crawling(site, tmp_path) as process:
        assert process.wait() == 0, (tmp_path / "log").read_text()
    found = stored(tmp_path)
    assert sorted(page["url"] for page in found) == sorted(f"{site.root}/{number}" for number in range(PAGES))
    for page in found:
        assert page["status"] == 200
        assert page["content"].startswith(b"<html><title>Page ")
        assert page["date"]
    # What was under way when it was killed is asked for again, and not much more.
    assert sum(site.asked.values()) <= PAGES + KILLS * 8 * 2
