"""Crawled pages as records, with a schema in WARC's terms, made from the responses of any client.

    async with asyncrec.open_sharded_writer("crawl/pages", schema=pages.PAGE, on_duplicate="skip") as writer:
        async with session.get(url) as response:
            if not pages.is_temporary(response.status):
                page = await pages.from_aiohttp(response, max_bytes=16 << 20)
                await writer.write(page, key=pages.page_key(page))

PAGE              the schema of a page
page              makes a page from its parts
from_aiohttp, from_httpx, from_scrapy, from_crawlee, from_playwright    make a page from a response
page_key          the key of a page: its URL, with the method and body of a request that is not a plain GET
is_temporary      whether to request the page again later instead of storing it
payload_digest    the digest of a body, in WARC's form
conditions        the headers of a conditional request for a stored page
is_revisit        whether a page has no body of its own, because the body was stored before
resolve           returns revisits with the bodies that they refer to

None of these clients is imported, because each function reads only the attributes of its client's response.

The features of `PAGE`:

    url               the URL that was requested (WARC-Target-URI)
    date              the time of the request in UTC: 2026-11-22T07:45:00Z (WARC-Date)
    status            the HTTP status; 0 if there was no HTTP response
    content           the body, without its transfer encoding, and with the content encoding that ``encoding`` names
    content_type      the Content-Type of the response
    headers           the headers of the response as they were sent, in lines of "Name: value"
    method            the method of the request
    final_url         the URL of the response, if redirects were followed; otherwise empty
    digest            sha1:BASE32 of the stored content, or of a revisit's body (WARC-Payload-Digest)
    reason            the reason phrase of the status line
    protocol          HTTP/1.1, HTTP/2 (WARC-Protocol: h2), in the client's spelling (Scrapy's is h2)
    ip                the IP address of the server (WARC-IP-Address), if the client provides it (Crawlee does not)
    elapsed           the number of seconds until the response had arrived, if the client provides it (aiohttp does not)
    charset           the charset of a text
    encoding          the Content-Encoding that the content still has; empty if it has none
    truncated         the reason for incomplete content (WARC-Truncated): length, time, disconnect, unspecified
    depth             the number of links from the start of the crawl
    referrer          the page that links to this page
    request_headers   the headers of the request, in the form of ``headers``
    type              WARC-Type: response, resource, revisit
    record_id         WARC-Record-ID
    warc_headers      the headers of a WARC record that have no feature of their own, in lines
    refers_to_url     of a revisit: the URL of the page that has the body (WARC-Refers-To-Target-URI)
    refers_to_date    of a revisit: the date of that page (WARC-Refers-To-Date)
    refers_to         of a revisit: the record_id of that page, if it has one (WARC-Refers-To)
    profile           of a revisit: the reason (WARC-Profile), which is an identical body or a 304 from the server

Every feature except ``url`` has a default, so pages with fewer features, from an older crawl or a WARC file, can be
decoded. A feature that the client does not provide is not in the dict of a new page, and decodes to its default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncrec._lazy import lazy

if TYPE_CHECKING:
    from asyncrec.pages._responses import from_aiohttp as from_aiohttp
    from asyncrec.pages._responses import from_crawlee as from_crawlee
    from asyncrec.pages._responses import from_httpx as from_httpx
    from asyncrec.pages._responses import from_playwright as from_playwright
    from asyncrec.pages._responses import from_scrapy as from_scrapy
    from asyncrec.pages._revisits import is_revisit as is_revisit
    from asyncrec.pages._schema import PAGE as PAGE
    from asyncrec.pages._schema import is_temporary as is_temporary
    from asyncrec.pages._schema import page as page
    from asyncrec.pages._schema import page_key as page_key
    from asyncrec.pages._schema import payload_digest as payload_digest
    from asyncrec.pages._stored import conditions as conditions
    from asyncrec.pages._stored import resolve as resolve

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.pages._responses": "from_aiohttp from_crawlee from_httpx from_playwright from_scrapy",
        "asyncrec.pages._revisits": "is_revisit",
        "asyncrec.pages._schema": "PAGE is_temporary page page_key payload_digest",
        "asyncrec.pages._stored": "conditions resolve",
    },
)
