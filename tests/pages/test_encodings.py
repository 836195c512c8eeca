"""The encoding of a page names the codings that the client did not remove from the body."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import httpx2
import pytest
from aiohttp import web

from asyncrec import pages

TEXT = b"<p>hello hello hello"
PACKED = gzip.compress(TEXT, mtime=0)
TWICE = gzip.compress(PACKED, mtime=0)
BODIES = {
    "plain": ("", TEXT),
    "identity": ("identity", TEXT),
    "gzip": ("gzip", PACKED),
    "spelt": ("GZip", PACKED),
    "doubly": ("gzip", TWICE),
    "x-gzip": ("x-gzip", PACKED),
    "list": ("gzip, gzip", TWICE),
    "compress": ("compress", b"packed"),
    "empty": ("compress", b""),
}


async def _serve(work: Callable[[str], Awaitable[None]]) -> None:
    async def answer(request: web.Request) -> web.Response:
        coding, body = BODIES[request.path[1:]]
        return web.Response(body=body, headers={"Content-Encoding": coding} if coding else {})

    app = web.Application()
    app.router.add_route("*", "/{name}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        await work(f"http://127.0.0.1:{runner.addresses[0][1]}")
    finally:
        await runner.cleanup()


def told(page: dict[str, Any]) -> tuple[bytes, str]:
    stored = pages.PAGE.decode(pages.PAGE.encode(page))
    return stored["content"], stored["encoding"]


def test_aiohttp_body_keeps_encoding_that_is_not_decoded() -> None:
    async def work(root: str) -> None:
        found: dict[bool, dict[str, Any]] = {True: {}, False: {}}
        for decode, by_name in found.items():
            async with aiohttp.ClientSession(auto_decompress=decode) as session:
                for name in BODIES:
                    async with session.get(f"{root}/{name}") as response:
                        by_name[name] = told(await pages.from_aiohttp(response, max_bytes=None if decode else 1 << 20))
                async with session.head(f"{root}/x-gzip") as response:
                    assert told(await pages.from_aiohttp(response)) == (b"", "")
        plain = {"plain": (TEXT, ""), "identity": (TEXT, ""), "empty": (b"", "")}
        raw = {name: (body, coding.lower()) for name, (coding, body) in BODIES.items() if name not in plain}
        assert found[False] == raw | plain
        decoded = {"gzip": (TEXT, ""), "spelt": (TEXT, ""), "doubly": (PACKED, "")}
        assert found[True] == raw | plain | decoded

    asyncio.run(_serve(work))


def test_httpx_body_keeps_encoding_that_is_not_decoded() -> None:
    async def work(root: str) -> None:
        async with httpx2.AsyncClient() as client:
            found = {name: told(await pages.from_httpx(await client.get(f"{root}/{name}"))) for name in BODIES}
            async with client.stream("GET", f"{root}/x-gzip") as response:
                assert told(await pages.from_httpx(response, max_bytes=9)) == (PACKED[:9], "x-gzip")
        plain = dict.fromkeys(("plain", "identity", "gzip", "spelt", "list"), (TEXT, ""))
        kept = {"x-gzip": (PACKED, "x-gzip"), "compress": (b"packed", "compress")}
        assert found == plain | kept | {"doubly": (PACKED, ""), "empty": (b"", "")}

    asyncio.run(_serve(work))


@pytest.mark.parametrize(
    ("codings", "body", "expected"),
    [
        (["gzip"], PACKED, (TEXT, "")),
        (["x-gzip, gzip"], TWICE, (TEXT, "")),
        (["compress", "gzip"], PACKED, (TEXT, "compress")),
        (["gzip, Compress"], PACKED, (PACKED, "gzip, compress")),
    ],
)
def test_scrapy_body_has_encoding_of_its_headers(codings: list[str], body: bytes, expected: tuple[bytes, str]) -> None:
    pytest.importorskip("scrapy", reason="`make frameworks` installs Scrapy")
    from scrapy.downloadermiddlewares.httpcompression import HttpCompressionMiddleware
    from scrapy.http import Request, Response
    from scrapy.utils.test import get_crawler

    request = Request("http://a/")
    middleware = HttpCompressionMiddleware.from_crawler(get_crawler())
    sent = Response("http://a/", body=body, headers={"Content-Encoding": codings})
    response = middleware.process_response(request, sent)
    assert told(pages.from_scrapy(response, request=request)) == expected


@pytest.mark.parametrize(
    ("coding", "encoding"), [("gzip", ""), ("br, gzip", ""), ("gzip, Compress", "gzip, compress"), ("x-gzip", "x-gzip")]
)
def test_crawlee_body_keeps_unknown_encoding(coding: str, encoding: str) -> None:
    async def read() -> bytes:
        return TEXT

    request = SimpleNamespace(url="http://a/", loaded_url="", method="GET", headers={}, crawl_depth=0)
    answer = SimpleNamespace(status_code=200, http_version="", headers={"content-encoding": coding}, read=read)
    page = asyncio.run(pages.from_crawlee(SimpleNamespace(request=request, http_response=answer)))
    assert told(page) == (TEXT, encoding)


def test_content_of_caller_has_encoding_of_caller() -> None:
    response = httpx2.Response(
        200, content=b"packed", headers={"Content-Encoding": "compress"}, request=httpx2.Request("GET", "http://a/")
    )
    assert told(asyncio.run(pages.from_httpx(response))) == (b"packed", "compress")
    assert told(asyncio.run(pages.from_httpx(response, content=TEXT))) == (TEXT, "")
    assert told(asyncio.run(pages.from_httpx(response, encoding="x"))) == (b"packed", "x")
