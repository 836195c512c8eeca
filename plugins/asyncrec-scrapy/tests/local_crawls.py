"""A site of linked pages, and crawls of it in processes of their own, which may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

SPIDER = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = [{root!r} + "/0"]
    custom_settings = {settings!r}

    def parse(self, response):
        yield {{"url": response.url, "title": response.css("title::text").get(), "none": None}}
        yield from response.follow_all(css="a")
"""

SETTINGS = {
    "ADDONS": {"asyncrec_scrapy.Addon": 500},
    "LOG_LEVEL": "INFO",
    "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "RETRY_TIMES": 0,
}


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
        self.pause = 0.0
        self.lock = threading.Lock()
        self.reached = threading.Condition(self.lock)

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
        if self.server.pause:
            time.sleep(self.server.pause)
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
    with Site(90) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class Crawl:
    """Runs of one spider in a folder."""

    def __init__(self, folder: Path, site: Site, **settings: Any) -> None:
        self.folder = folder
        self.site = site
        self.prelude = ""  # of the spider's module
        self.settings = {**SETTINGS, "ASYNCREC_PAGES": "crawl/pages", **settings}

    def start(self, **settings: Any) -> subprocess.Popen[str]:
        spider = SPIDER.format(root=self.site.root, settings={**self.settings, **settings})
        (self.folder / "spider.py").write_text(self.prelude + textwrap.dedent(spider), "utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "scrapy", "runspider", "spider.py"],
            cwd=self.folder,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, **settings: Any) -> tuple[int, str]:
        """The exit status of a whole run, and what it logged."""
        process = self.start(**settings)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def kill_after(self, asked: int) -> None:
        """Start it, and kill it when the site was asked so often in all."""
        process = self.start()
        self.site.wait_for(asked, lambda: process.poll() is not None)
        with suppress(ProcessLookupError):  # a fast machine has crawled all by then
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def crawl(tmp_path: Path, site: Site) -> Crawl:
    return Crawl(tmp_path, site)


def stat(output: str, name: str) -> Any:
    """Of Scrapy's statistics, as they are logged in the end."""
    for line in output.splitlines():
        if f"'asyncrec/{name}': " in line:
            return json.loads(line.partition("': ")[2].strip().rstrip(",}").replace("'", '"'))
    return None
