"""`PagesMiddleware`: each response is stored as a page, and one that is there is served from there, or skipped."""

from __future__ import annotations

from typing import Any

from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http import Headers
from scrapy.responsetypes import responsetypes

from asyncrec import pages

from ._store import store_of

__all__ = ["PagesMiddleware"]

_FLAG = "asyncrec"


class PagesMiddleware:
    """For ``DOWNLOADER_MIDDLEWARES``; see `Addon` for the settings.

    A request with ``meta={"asyncrec": False}`` is fetched, and its response is not stored.
    """

    def __init__(self, crawler: Any) -> None:
        settings = crawler.settings
        if not settings.get("ASYNCREC_PAGES"):
            raise NotConfigured("ASYNCREC_PAGES names no data set")
        self._store = store_of(crawler)
        self._known = settings.get("ASYNCREC_KNOWN", "replay")
        # Answers that Scrapy asks again for are no pages to be known by.
        self._transient = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}

    @classmethod
    def from_crawler(cls, crawler: Any) -> PagesMiddleware:
        return cls(crawler)

    async def process_request(self, request: Any, spider: Any = None) -> Any:
        store = self._store
        if not await store.opened():
            raise IgnoreRequest("asyncrec failed, and the crawl stops")
        if self._known == "fetch" or request.meta.get(_FLAG) is False or request.meta.get("redirect_urls"):
            return None
        key = _key_of(request)
        if self._known == "skip":
            # Where the crawl begins is fetched, or it would end there.
            if request.meta.get("depth", 0) and store.has(key):
                store.count("pages/skipped")
                raise IgnoreRequest("it was crawled before")
            return None
        if store.known is None:
            return None
        try:
            record = await store.known.get_by_key(key)
        except KeyError:
            return None
        store.count("pages/replayed")
        return _response(pages.PAGE.decode(record), request)

    async def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        if _FLAG in response.flags or request.meta.get(_FLAG) is False:
            return response
        page = pages.from_scrapy(response, request=request)
        key = None if response.status in self._transient else _key_of(request)
        await self._store.write("pages", page, key)
        return response


def _key_of(request: Any) -> str:
    """Of what was asked for first, where redirects were followed."""
    through = request.meta.get("redirect_urls")
    asked = {"url": through[0] if through else request.url, "method": request.method}
    return pages.page_key(asked, request.body)


def _response(page: dict[str, Any], request: Any) -> Any:
    headers = Headers()
    for line in page["headers"].split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon:
            headers.appendlist(name.strip(), value.strip())
    url = page["final_url"] or page["url"]
    kind = responsetypes.from_args(headers=headers, url=url, body=page["content"])
    encoding = {"encoding": page["charset"]} if page["charset"] and hasattr(kind, "encoding") else {}
    return kind(
        url=url,
        status=page["status"],
        headers=headers,
        body=page["content"],
        request=request,
        flags=[_FLAG],
        protocol=page["protocol"] or None,
        **encoding,
    )
