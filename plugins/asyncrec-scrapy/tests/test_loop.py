"""The middleware processes a response in the right thread."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from asyncrec_scrapy import PagesMiddleware
from scrapy.http import Headers, HtmlResponse, Request
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.statscollectors import MemoryStatsCollector

from asyncrec import blocking, pages


class Crawler:
    """A stand-in for a crawler, with the attributes that the middleware and its store use."""

    engine = spider = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.signals = SignalManager()
        self.stats = MemoryStatsCollector(self)  # type: ignore[arg-type]  # all it takes


def answer(url: str, body: bytes) -> tuple[Request, HtmlResponse]:
    request = Request(url, headers={"Accept": "*/*"})
    headers = Headers({"Content-Type": "text/html", "Set-Cookie": ["a=1", "b=2"], "X": "1\r\nY: 2"})
    return request, HtmlResponse(url, headers=headers, body=body, request=request)


@pytest.mark.parametrize(("size", "elsewhere"), [(100, False), (1 << 20, True)])
def test_large_page_is_built_off_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, elsewhere: bool
) -> None:
    made_in: list[threading.Thread] = []
    digest = pages.payload_digest

    def noted(content: Any) -> str:
        made_in.append(threading.current_thread())
        return digest(content)

    monkeypatch.setattr("asyncrec.pages._schema.payload_digest", noted)

    async def crawl() -> Any:
        middleware = PagesMiddleware(Crawler(Settings({"ASYNCREC_PAGES": str(tmp_path / "pages")})))
        await middleware._store._open()
        request, response = answer("http://a/", bytes(size))
        asked = middleware.process_request(request)
        assert await middleware.process_response(request, response) is response
        await middleware._store._close()
        assert middleware._store.error is None
        return asked

    assert asyncio.run(crawl()) is None, "a first run knows nothing, and needs no coroutine to say so"
    assert [each is not threading.main_thread() for each in made_in] == [elsewhere]
    with blocking.open_dataset(tmp_path / "pages") as dataset:
        page = pages.PAGE.decode(dataset.get_by_key("http://a/"))
    assert (page["content"], page["digest"]) == (bytes(size), digest(bytes(size)))
    assert page["headers"] == b"Content-Type: text/html\nSet-Cookie: a=1\nSet-Cookie: b=2\nX: 1 Y: 2"
    assert page["request_headers"] == b"Accept: */*"
