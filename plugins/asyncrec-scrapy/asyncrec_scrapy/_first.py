"""`First`: the request that the spider made, from which a page has its URL, its method and its key.

Scrapy follows a redirect with a new request, which may have a different method and no body. It copies the meta of the
redirected request, and adds that request's URL to ``redirect_urls``. So `note_first` writes the first request into the
meta, where it reaches the requests that follow.

A spider may also pass the meta of a response on to other requests (``meta=response.meta``). These requests then have
the ``redirect_urls`` of a different page. So a note is valid only for the request that it was written for, and for the
request that follows its redirect.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from asyncrec import pages

_NOTE = "asyncrec_first"


class First(NamedTuple):
    """A request as the spider made it."""

    url: str
    method: str
    key: str


def note_first(request: Any) -> None:
    """Write the first of the requests that led to this one by redirects into its meta."""
    # Plain values, because a JOBDIR stores them.
    request.meta[_NOTE] = (*first_of(request), key_of(request), request.url, len(_redirects(request)))


def first_of(request: Any) -> First:
    """Return the first of the requests that led to this one by redirects, or this one if it was not redirected."""
    key = key_of(request)
    if (note := request.meta.get(_NOTE)) is not None:
        *first, noted, url, count = note
        redirects = _redirects(request)
        if key == noted or (len(redirects) == count + 1 and redirects[-1] == url):
            return First(*first)
    return First(request.url, request.method, key)


def key_of(request: Any) -> str:
    """Return the key of a request that was not redirected. The page from `pages.from_scrapy` has the same key."""
    return pages.page_key({"url": request.url, "method": request.method}, request.body)


def _redirects(request: Any) -> Any:
    return request.meta.get("redirect_urls") or ()
