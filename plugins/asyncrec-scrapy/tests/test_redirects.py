"""Requests that a server redirects: each page has the key of the request that the spider made."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from local_crawls import Crawl, stat

from asyncrec import blocking, pages

POSTS = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    custom_settings = {settings!r}

    def requests(self):
        for word in ("red", "green", "blue"):
            yield scrapy.Request({root!r} + "/search", method="POST", body="q=" + word)

    async def start(self):
        for request in self.requests():
            yield request

    def start_requests(self):  # before 2.13
        return self.requests()

    def parse(self, response):
        yield {{"url": response.url, "served": "asyncrec" in response.flags}}
"""

COPIED_META = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = [{root!r} + "/old"]
    custom_settings = {settings!r}

    def parse(self, response):
        yield {{"url": response.url}}
        for link in response.css("a"):
            yield response.follow(link, meta=response.meta)
"""


class Forms(ThreadingHTTPServer):
    """A site whose form redirects to a page of results, and whose /old and /moved redirect to new addresses."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.redirects = {"/old": "/links", "/moved": "/there"}
        self.asked: Counter[str] = Counter()

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Forms

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.send(303, Location=f"/results/{form.removeprefix('q=')}")

    def do_GET(self) -> None:
        if self.path in self.server.redirects:
            self.send(302, Location=self.server.redirects[self.path])
        elif self.path == "/links":
            self.send(200, "".join(f'<a href="{path}">x</a>' for path in ("/1", "/2", "/moved")))
        else:
            self.send(200, f"<p>{self.path}")

    def send(self, status: int, text: str = "", **headers: str) -> None:
        self.server.asked[self.path] += 1
        self.send_response(status)
        for name, value in {"Content-Type": "text/html", "Content-Length": str(len(text)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        pass


@contextmanager
def serving() -> Iterator[Forms]:
    with Forms() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def forms(crawl: Crawl) -> Iterator[Forms]:
    with serving() as server:
        crawl.site = server  # type: ignore[assignment]  # has all that a crawl uses here
        yield server


def stored(path: Path) -> list[dict[str, Any]]:
    with blocking.open_dataset(path) as dataset:
        return list(dataset.examples())


def test_redirected_posts_are_stored_and_replayed_each(crawl: Crawl, forms: Forms, tmp_path: Path) -> None:
    crawl.spider = POSTS
    status, output = crawl.run()
    assert status == 0, output
    assert stat(output, "pages/stored") == 3
    found = {
        page["content"]: (page["url"], page["method"], page["final_url"]) for page in stored(tmp_path / "crawl/pages")
    }
    assert found == {
        f"<p>/results/{word}".encode(): (f"{forms.root}/search", "POST", f"{forms.root}/results/{word}")
        for word in ("red", "green", "blue")
    }
    with blocking.open_dataset(tmp_path / "crawl/pages") as dataset:
        record = dataset.get_by_key(pages.page_key({"url": f"{forms.root}/search", "method": "POST"}, b"q=red"))
        assert pages.PAGE.decode(record)["content"] == b"<p>/results/red"
    asked = dict(forms.asked)
    status, output = crawl.run()
    assert status == 0, output
    assert (stat(output, "pages/replayed"), forms.asked) == (3, asked)


def test_meta_copied_from_redirect_keeps_each_page(crawl: Crawl, forms: Forms, tmp_path: Path) -> None:
    crawl.spider = COPIED_META
    status, output = crawl.run()
    assert status == 0, output
    assert {page["url"]: page["final_url"] for page in stored(tmp_path / "crawl/pages")} == {
        f"{forms.root}/old": f"{forms.root}/links",
        f"{forms.root}/1": "",
        f"{forms.root}/2": "",
        f"{forms.root}/moved": f"{forms.root}/there",
    }
    asked = dict(forms.asked)
    status, output = crawl.run()
    assert status == 0, output
    assert (stat(output, "pages/replayed"), forms.asked) == (4, asked)
