"""ASYNCREC_OPTIONS: a run recovers the records of an earlier run from the place that the options name."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from asyncrec_scrapy import PagesMiddleware
from asyncrec_scrapy._store import store_of
from local_crawls import Crawl, stat
from scrapy.http import Request, Response
from scrapy.settings import Settings
from test_loop import Crawler

import asyncrec
from asyncrec import blocking

ITEMS = {"ASYNCREC_ITEMS": "far/items", "ASYNCREC_ITEM_KEY": "url"}


@pytest.mark.parametrize("items", [{}, ITEMS], ids=["pages", "pages-and-items"])
def test_killed_crawl_replays_pages_from_spool(crawl: Crawl, tmp_path: Path, items: dict[str, str]) -> None:
    crawl.settings |= {"ASYNCREC_PAGES": "far/pages", **items}
    crawl.settings["ASYNCREC_OPTIONS"] = {"spool": "spool", "flush_seconds": 0.02}
    crawl.site.pause = 0.05
    crawl.kill_after(60)
    asked = sum(crawl.site.asked.values())
    crawl.site.pause = 0.0
    status, output = crawl.run()
    assert status == 0, output
    recovered = stat(output, "pages/recovered")
    assert recovered == stat(output, "pages/replayed") > 0
    assert sum(crawl.site.asked.values()) - asked == 90 - recovered
    with blocking.open_dataset(tmp_path / "far/pages") as dataset:
        assert Counter(page["url"] for page in dataset.examples()) == {f"{crawl.site.root}/{n}": 1 for n in range(90)}


def test_pages_are_replayed_from_passed_storage(tmp_path: Path) -> None:
    async def run(storage: asyncrec.storage.Storage, body: bytes) -> Response:
        settings = Settings({"ASYNCREC_PAGES": "crawl/pages", "ASYNCREC_OPTIONS": {"storage": storage}})
        crawler = Crawler(settings)
        middleware, store = PagesMiddleware(crawler), store_of(crawler)
        await store._open()
        request = Request("http://a/")
        served = middleware.process_request(request)
        response = None if served is None else await served
        if response is None:
            response = await middleware.process_response(request, Response(request.url, body=body, request=request))
        await store._close()
        assert store.error is None
        return response

    async def crawl() -> list[bytes]:
        async with asyncrec.open_storage(tmp_path.as_uri()) as storage:
            return [(await run(storage, body)).body for body in (b"first", b"second")]

    assert asyncio.run(crawl()) == [b"first", b"first"]
