"""Pages are made from the responses of each client: real ones of aiohttp and httpx, and fakes for the others."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from threading import get_ident
from types import SimpleNamespace
from typing import Any

import aiohttp
import httpx2
import pytest
from aiohttp import web

from asyncrec import pages

BODY = b"<p>\xc3\xa9</p>"


async def _serve(work: Any) -> Any:
    async def page(request: web.Request) -> web.Response:
        return web.Response(body=BODY, headers={"Content-Type": "text/html; charset=utf-8", "X-Two": "b"})

    async def away(request: web.Request) -> web.Response:
        raise web.HTTPFound("/page")

    async def large(request: web.Request) -> web.Response:
        return web.Response(body=bytes(1 << 20))

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        with suppress(ConnectionError):
            while True:
                await response.write(bytes(64 << 10))
        return response

    app = web.Application()
    app.router.add_get("/endless", endless)
    app.router.add_route("*", "/page", page)
    app.router.add_get("/away", away)
    app.router.add_get("/large", large)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        return await work(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


def stored(page: dict[str, Any]) -> dict[str, Any]:
    """Return the page as it would be read from storage, which also checks that it fits the schema."""
    return pages.PAGE.decode(pages.PAGE.encode(page))


def test_aiohttp_response_becomes_page() -> None:
    async def work(root: str) -> None:
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{root}/page", headers={"Referer": "http://from/"}) as response:
                page = stored(await pages.from_aiohttp(response, depth=2))
            assert (page["url"], page["final_url"]) == (f"{root}/page", "")
            assert (page["status"], page["reason"], page["protocol"]) == (200, "OK", "HTTP/1.1")
            assert page["content"] == BODY
            assert (page["content_type"], page["charset"]) == ("text/html; charset=utf-8", "utf-8")
            assert b"X-Two: b" in page["headers"].split(b"\n")
            assert b"Referer: http://from/" in page["request_headers"].split(b"\n")
            assert (page["referrer"], page["depth"]) == ("http://from/", 2)
            async with session.get(f"{root}/away") as response:
                page = stored(await pages.from_aiohttp(response))
            assert (page["url"], page["final_url"], page["status"]) == (f"{root}/away", f"{root}/page", 200)
            async with session.post(f"{root}/page", data=b"q") as response:
                page = stored(await pages.from_aiohttp(response))
            assert page["method"] == "POST"
            async with session.get(f"{root}/large") as response:
                page = stored(await pages.from_aiohttp(response, max_bytes=700_000))
            assert (len(page["content"]), page["truncated"]) == (700_000, "length")
            assert page["ip"] == "127.0.0.1"
            async with session.get(f"{root}/page") as response:
                page = stored(await pages.from_aiohttp(response, max_bytes=len(BODY)))
            assert (page["content"], page["truncated"], page["ip"]) == (BODY, "", "127.0.0.1")
            async with session.get(f"{root}/page") as response:
                await response.read()
                assert (await pages.from_aiohttp(response, max_bytes=3))["content"] == BODY[:3]
                with pytest.raises(ValueError, match="max_bytes=-1: must be at least 0"):
                    await pages.from_aiohttp(response, max_bytes=-1)

    asyncio.run(_serve(work))


def test_httpx_response_becomes_page() -> None:
    async def work(root: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True) as client:
            page = stored(await pages.from_httpx(await client.get(f"{root}/away", headers={"Referer": "http://from/"})))
            assert (page["url"], page["final_url"], page["status"]) == (f"{root}/away", f"{root}/page", 200)
            assert (page["content"], page["protocol"], page["reason"]) == (BODY, "HTTP/1.1", "OK")
            assert b"X-Two: b" in page["headers"].split(b"\n")
            assert page["referrer"] == "http://from/"
            assert page["elapsed"] > 0
            async with client.stream("GET", f"{root}/page") as response:
                page = stored(await pages.from_httpx(response))
            assert (page["content"], page["ip"]) == (BODY, "127.0.0.1")
            made = httpx2.Response(204, request=httpx2.Request("GET", "http://a/"))
            assert stored(await pages.from_httpx(made))["status"] == 204

    asyncio.run(_serve(work))


@pytest.mark.parametrize("client", ["aiohttp", "httpx"])
def test_endless_response_is_read_up_to_limit(client: str) -> None:
    async def work(root: str) -> None:
        if client == "aiohttp":
            async with aiohttp.ClientSession() as session, session.get(f"{root}/endless") as response:
                page = await pages.from_aiohttp(response, max_bytes=1 << 20)
        else:
            async with httpx2.AsyncClient() as session, session.stream("GET", f"{root}/endless") as response:
                page = stored(await pages.from_httpx(response, max_bytes=1 << 20))
        assert (len(page["content"]), page["truncated"], page["ip"]) == (1 << 20, "length", "127.0.0.1")

    asyncio.run(_serve(work))


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503, 599])
def test_retryable_status_is_temporary(status: int) -> None:
    assert pages.is_temporary(status)


@pytest.mark.parametrize("status", [0, 200, 304, 404, 410, 451, 600])
def test_permanent_status_is_not_temporary(status: int) -> None:
    assert not pages.is_temporary(status)


def test_large_body_is_digested_in_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def page(*args: Any, **features: Any) -> dict[str, Any]:
        threads.append(get_ident())
        return pages.page(*args, **features)

    monkeypatch.setattr("asyncrec.pages._responses.page", page)
    response = httpx2.Response(204, request=httpx2.Request("GET", "http://a/"))
    for content in (b"small", bytes(1 << 20)):
        assert asyncio.run(pages.from_httpx(response, content=content))["content"] == content
    assert [thread == get_ident() for thread in threads] == [True, False]


def scrapy_response(**changes: Any) -> Any:
    request = SimpleNamespace(
        url="http://a/b",
        method="GET",
        headers={b"Referer": [b"http://from/"], "Referer": b"http://from/"},
        meta={"download_latency": 0.25, "depth": 3},
    )
    return SimpleNamespace(
        **{
            "url": "http://a/b",
            "status": 404,
            "headers": {b"Content-Type": [b"text/html"], b"Set-Cookie": [b"a=1", b"b=2"]},
            "body": BODY,
            "request": request,
            "protocol": "HTTP/1.1",
            "ip_address": None,
            "encoding": "utf-8",
            "flags": [],
            **changes,
        }
    )


def test_scrapy_response_becomes_page() -> None:
    page = stored(pages.from_scrapy(scrapy_response()))
    assert (page["url"], page["status"], page["elapsed"], page["depth"]) == ("http://a/b", 404, 0.25, 3)
    assert page["headers"] == b"Content-Type: text/html\nSet-Cookie: a=1\nSet-Cookie: b=2"
    assert (page["charset"], page["referrer"], page["truncated"]) == ("utf-8", "http://from/", "")
    assert stored(pages.from_scrapy(scrapy_response(flags=["partial"])))["truncated"] == "disconnect"
    response = scrapy_response(url="http://a/c")
    response.request.meta["redirect_urls"] = ["http://a/first", "http://a/b"]
    page = stored(pages.from_scrapy(response))
    assert (page["url"], page["final_url"]) == ("http://a/first", "http://a/c")
    page = stored(pages.from_scrapy(scrapy_response(request=None)))
    assert (page["url"], page["request_headers"]) == ("http://a/b", b"")


class Playwright:
    """The attributes and methods of Playwright's response."""

    url = "http://a/last"
    status = 200
    status_text = "OK"

    def __init__(self) -> None:
        first = SimpleNamespace(url="http://a/first", method="GET", redirected_from=None)
        self.request = self
        self.method = "GET"
        self.redirected_from = first
        self.timing = {"responseEnd": 120.0}

    async def body(self) -> bytes:
        return BODY

    async def headers_array(self) -> list[dict[str, str]]:
        return [{"name": "Content-Type", "value": "text/html"}, {"name": "X", "value": "1"}]

    async def server_addr(self) -> dict[str, Any]:
        return {"ipAddress": "127.0.0.1", "port": 80}

    async def all_headers(self) -> dict[str, str]:
        return {":method": "GET", "referer": "http://from/"}


def test_playwright_response_becomes_page() -> None:
    page = stored(asyncio.run(pages.from_playwright(Playwright())))
    assert (page["url"], page["final_url"], page["status"]) == ("http://a/first", "http://a/last", 200)
    assert (page["content"], page["headers"]) == (BODY, b"Content-Type: text/html\nX: 1")
    assert (page["request_headers"], page["referrer"]) == (b"referer: http://from/", "http://from/")
    assert page["ip"] == "127.0.0.1"
    assert page["elapsed"] == pytest.approx(0.12)


class Answer:
    """A response of Crawlee's HTTP clients."""

    http_version = "HTTP/2"
    status_code = 200

    def __init__(self) -> None:
        self.headers = {"content-type": "text/plain"}

    async def read(self) -> bytes:
        return BODY


def test_crawlee_context_becomes_page() -> None:
    request = SimpleNamespace(url="http://a/", loaded_url="http://a/b", method="GET", headers={"a": "b"}, crawl_depth=1)
    page = stored(asyncio.run(pages.from_crawlee(SimpleNamespace(request=request, http_response=Answer()))))
    assert (page["url"], page["final_url"], page["depth"]) == ("http://a/", "http://a/b", 1)
    assert (page["content_type"], page["protocol"]) == ("text/plain", "HTTP/2")
    page = stored(asyncio.run(pages.from_crawlee(SimpleNamespace(request=request, response=Playwright()))))
    assert (page["url"], page["final_url"], page["depth"]) == ("http://a/", "http://a/last", 1)


def test_crawlee_page_key_contains_request_payload() -> None:
    request = SimpleNamespace(url="http://a/", method="POST", headers={}, payload=b"q=1")
    page = asyncio.run(pages.from_crawlee(SimpleNamespace(request=request, http_response=Answer())))
    assert (
        pages.page_key(page) == pages.page_key(dict(page), b"q=1") == f"POST http://a/ {pages.payload_digest(b'q=1')}"
    )
    assert pages.page_key(page, b"q=2") == pages.page_key(dict(page), b"q=2")
