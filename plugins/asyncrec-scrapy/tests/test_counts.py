"""The counts of stored and known pages are right, even for pages that are processed at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from asyncrec_scrapy._pages import PagesMiddleware
from asyncrec_scrapy._store import Store, store_of
from scrapy.http import Request, Response
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.statscollectors import MemoryStatsCollector


def test_stats_count_record_correctly_during_concurrent_write(tmp_path: Path) -> None:
    async def crawl() -> dict[str, int]:
        settings = Settings({"ASYNCREC_ITEMS": str(tmp_path / "items"), "ASYNCREC_ITEM_KEY": "key"})
        settings["ASYNCREC_OPTIONS"] = {"compression": ""}
        crawler = SimpleNamespace(settings=settings, signals=SignalManager(), engine=None, spider=None)
        crawler.stats = MemoryStatsCollector(SimpleNamespace(settings=settings))  # type: ignore[arg-type]  # all it takes
        store = Store(crawler)
        await store._open()
        await store.write("items", b"first", "a")
        # A large record is checksummed in a thread; in the meantime, a known one arrives.
        large = asyncio.ensure_future(store.write("items", bytes(8 << 20), "b"))
        await asyncio.sleep(0)
        await store.write("items", b"again", "a")
        await large
        await store._close()
        return {name: number for name, number in crawler.stats.get_stats().items() if isinstance(number, int)}

    counts = asyncio.run(crawl())
    assert (counts["asyncrec/items/stored"], counts["asyncrec/items/known"]) == (2, 1)
    assert counts["asyncrec/items/committed"] == 2


class Crawler(SimpleNamespace):
    """A stand-in for the crawler that a store belongs to."""

    __hash__ = object.__hash__


@pytest.mark.parametrize(("status", "stored"), [(200, True), (404, True), (503, False), (425, False), (403, False)])
def test_response_with_temporary_status_is_not_stored(tmp_path: Path, status: int, stored: bool) -> None:
    async def crawl() -> tuple[bool, int]:
        settings = Settings({"ASYNCREC_PAGES": str(tmp_path / "pages"), "RETRY_HTTP_CODES": [403]})
        crawler = Crawler(settings=settings, signals=SignalManager(), engine=None, spider=None)
        crawler.stats = MemoryStatsCollector(SimpleNamespace(settings=settings))  # type: ignore[arg-type]  # all it takes
        middleware, store = PagesMiddleware(crawler), store_of(crawler)
        await store._open()
        request = Request("http://example.org/")
        given = middleware.process_response(request, Response(request.url, status=status, request=request))
        kept = not isinstance(given, Response)
        if kept:
            await given
        known = store.has(request.url)
        await store._close()
        assert known == kept
        return kept, crawler.stats.get_value("asyncrec/pages/temporary", 0)

    assert asyncio.run(crawl()) == (stored, int(not stored))
