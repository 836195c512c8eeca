"""`PagesMiddleware` stores each response as a page. Stored pages are served, skipped, or requested again, with or
without the condition that they have changed.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http import Headers
from scrapy.responsetypes import responsetypes

from asyncrec import pages
from asyncrec.storage import in_thread

from ._first import First, first_of, key_of, note_first
from ._store import store_of

_FLAG = "asyncrec"
# Larger bodies are processed in a thread. The digest of this many bytes takes about a millisecond.
_LARGE = 512 << 10


class PagesMiddleware:
    """A Scrapy middleware for ``DOWNLOADER_MIDDLEWARES``. See `Addon` for its settings.

    A request with ``meta={"asyncrec": False}`` is always fetched, and its response is never stored.
    """

    def __init__(self, crawler: Any) -> None:
        settings = crawler.settings
        if not settings.get("ASYNCREC_PAGES"):
            raise NotConfigured("ASYNCREC_PAGES is not set; set it to the path of a data set")
        self._store = store_of(crawler)
        self._known = settings.get("ASYNCREC_KNOWN", "replay")
        # The statuses that Scrapy retries also count as temporary.
        self._transient = {int(code) for code in settings.getlist("RETRY_HTTP_CODES")}

    @classmethod
    def from_crawler(cls, crawler: Any) -> PagesMiddleware:
        return cls(crawler)

    def process_request(self, request: Any, spider: Any = None) -> Any:
        """Return `None`, or an awaitable if needed. In a first run, most requests do not need one."""
        note_first(request)
        store = self._store
        if store.ready and ((store.known is None and self._known != "skip") or self._is_fetched(request)):
            return None
        return self._serve(request)

    def process_response(self, request: Any, response: Any, spider: Any = None) -> Any:
        """Return the response, or an awaitable of the response if it is stored."""
        if _FLAG in response.flags or request.meta.get(_FLAG) is False:
            return response
        if pages.is_temporary(response.status) or response.status in self._transient:
            self._store.count("pages/temporary")
            return response
        return self._keep(request, response)

    async def _keep(self, request: Any, response: Any) -> Any:
        first = first_of(request)
        known = None if self._known != "revisit" else (await self._conditions(first)).page
        make = partial(pages.from_scrapy, response, request=request, before=known, url=first.url, method=first.method)
        page = await in_thread(make) if len(response.body) > _LARGE else make()
        await self._store.write("pages", page, first.key)
        if not pages.is_revisit(page):
            return response
        self._store.count("pages/unchanged")
        if response.status != 304:
            return response
        assert self._store.known is not None, "the known data set has the body"
        return _response(await pages.resolve(self._store.known, page), request)

    async def _conditions(self, first: First) -> Any:
        return await pages.conditions(self._store.known, first.key)

    def _is_fetched(self, request: Any) -> bool:
        """Return whether to send a request even if its page is stored."""
        if self._known == "fetch" or request.meta.get(_FLAG) is False:
            return True
        return first_of(request).key != key_of(request)  # the request follows a redirect

    async def _serve(self, request: Any) -> Any:
        store = self._store
        if not await store.opened():
            raise IgnoreRequest("the page could not be stored, so the crawl stops")
        if self._is_fetched(request):
            return None
        if self._known == "skip":
            # Always fetch the start pages, because the crawl would otherwise end there.
            if request.meta.get("depth", 0) and store.has(key_of(request)):
                store.count("pages/skipped")
                raise IgnoreRequest("the page was crawled before")
            return None
        if store.known is None:
            return None
        if self._known == "revisit":
            for name, value in (await self._conditions(first_of(request))).items():
                request.headers.setdefault(name, value)
            return None
        try:
            record = await store.known.get_by_key(key_of(request))
            page = await pages.resolve(store.known, pages.PAGE.decode(record))
        except KeyError:  # not stored, or a revisit whose body is in another data set
            return None
        store.count("pages/replayed")
        return _response(page, request)


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
