"""Real clients crawl a changing site repeatedly, and every page is read back complete."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeAlias

import aiohttp
import httpx2
import pytest

import asyncrec
from asyncrec import pages

Fetch: TypeAlias = Callable[[str, dict[str, str], Any], Awaitable[dict[str, Any]]]


class Site(ThreadingHTTPServer):
    """Responds to each path with a body or a redirect. A body is not sent if the client knows its ETag or date.

    Attributes:
        asked: the path of each request, and whether it was conditional.
    """

    daemon_threads = True

    def __init__(self, validator: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.validator = validator
        self.bodies: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.changed: dict[str, int] = {}
        self.asked: list[tuple[str, bool]] = []

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Site

    def do_GET(self) -> None:
        site, path = self.server, self.path
        known = self.headers["If-None-Match"], self.headers["If-Modified-Since"]
        site.asked.append((path, any(known)))
        version = site.changed.get(path, 0)
        validators = {
            "etag": {"ETag": f'"{version}"'},
            "date": {"Last-Modified": f"Sun, 22 Nov 2026 10:00:{version:02} GMT"},
            "none": {},
        }[site.validator]
        if path in site.redirects:
            self._answer(302, {"Location": site.redirects[path], "Content-Length": "0"})
        elif set(validators.values()) & set(known):
            self._answer(304, validators)
        else:
            body = site.bodies[path]
            self._answer(200, {**validators, "Content-Type": "text/html", "Content-Length": str(len(body))}, body)

    def _answer(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(params=["etag", "date", "none"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with Site(request.param) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@asynccontextmanager
async def by_httpx() -> AsyncIterator[Fetch]:
    async with httpx2.AsyncClient(follow_redirects=True, trust_env=False) as client:

        async def fetch(url: str, headers: dict[str, str], before: Any) -> dict[str, Any]:
            return await pages.from_httpx(await client.get(url, headers=headers), before=before)

        yield fetch


@asynccontextmanager
async def by_aiohttp() -> AsyncIterator[Fetch]:
    async with aiohttp.ClientSession() as session:

        async def fetch(url: str, headers: dict[str, str], before: Any) -> dict[str, Any]:
            async with session.get(url, headers=headers) as response:
                return await pages.from_aiohttp(response, max_bytes=1 << 20, before=before)

        yield fetch


async def crawl(path: Path, urls: list[str], fetch: Fetch) -> list[dict[str, Any]]:
    """Crawl pages for one day; return what was stored."""
    async with asyncrec.open_sharded_writer(path, schema=pages.PAGE, key_feature="url", on_duplicate="write") as writer:
        made = []
        with suppress(asyncrec.ObjectNotFoundError):
            async with asyncrec.open_dataset(path) as stored:
                for url in urls:
                    known = await pages.conditions(stored, url)
                    made.append(await fetch(url, known, known.page))
        if not made:
            made = [await fetch(url, {}, None) for url in urls]
        for page in made:
            await writer.write(page)
    return made


async def bodies(path: Path, made: list[dict[str, Any]]) -> list[tuple[int, bytes]]:
    async with asyncrec.open_dataset(path) as dataset:
        return [(page["status"], page["content"]) for page in await pages.resolve(dataset, made)]


async def three_days(site: Site, path: Path, fetch: Fetch) -> None:
    site.bodies = {"/a": b"<p>a", "/b": b"<p>b", "/c": b"<p>c"}
    urls = [f"{site.root}{name}" for name in site.bodies]
    kinds = []
    for change in (None, "/b", None):
        if change is not None:
            site.bodies[change] += b" changed"
            site.changed[change] = 1
        made = await crawl(path, urls, fetch)
        kinds.append([page.get("type", "response") for page in made])
        assert await bodies(path, made) == [(200, body) for body in site.bodies.values()]
    assert kinds == [["response"] * 3, ["revisit", "response", "revisit"], ["revisit"] * 3]
    assert {conditional for _, conditional in site.asked[3:]} == {site.validator != "none"}
    unchanged = 304 if site.validator != "none" else 200
    assert {page["status"] for page in made} == {unchanged}


async def moved(site: Site, path: Path, fetch: Fetch) -> None:
    """The page then redirects to another one with a different body, but the same ETag or date."""
    site.bodies = {"/old": b"<p>old", "/new": b"<p>new"}
    site.redirects = {"/page": "/old"}
    urls = [f"{site.root}/page"]
    await crawl(path, urls, fetch)
    assert await bodies(path, await crawl(path, urls, fetch)) == [(200, b"<p>old")]
    site.redirects["/page"] = "/new"
    (page,) = await crawl(path, urls, fetch)
    assert not pages.is_revisit(page)
    assert page["final_url"] == f"{site.root}/new"
    if site.validator != "none":
        assert (page["status"], page["content"]) == (304, b"")
        (page,) = await crawl(path, urls, fetch)
        assert site.asked[-1] == ("/new", False), "it has no body to keep, so the next request wants one"
    assert (page["status"], page["content"]) == (200, b"<p>new")


@pytest.mark.anyio
@pytest.mark.parametrize("work", [three_days, moved], ids=lambda work: work.__name__)
async def test_httpx_recrawl_stores_changes_only(site: Site, tmp_path: Path, work: Any) -> None:
    async with by_httpx() as fetch:
        await work(site, tmp_path / "pages", fetch)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # aiohttp needs asyncio
@pytest.mark.parametrize("work", [three_days, moved], ids=lambda work: work.__name__)
async def test_aiohttp_recrawl_stores_changes_only(site: Site, tmp_path: Path, work: Any, anyio_backend: str) -> None:
    async with by_aiohttp() as fetch:
        await work(site, tmp_path / "pages", fetch)
