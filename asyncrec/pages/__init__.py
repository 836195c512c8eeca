"""A crawled page as a record: one schema with WARC's words, made from the responses of any client.

    async with asyncrec.open_sharded_writer("crawl/pages", schema=pages.PAGE, on_duplicate="skip") as writer:
        async with session.get(url) as response:
            if not pages.is_temporary(response.status):
                page = await pages.from_aiohttp(response, max_bytes=16 << 20)
                await writer.write(page, key=pages.page_key(page))

PAGE              the schema of a page, each feature with what it means
page              makes a page from its parts
from_aiohttp, from_httpx, from_scrapy, from_crawlee, from_playwright    make a page from a response
page_key          the key of a page: its URL, and more if the request had more
is_temporary      whether to request the page again later and not store it
payload_digest    as WARC writes it
conditions        the headers of a request that asks whether a stored page has changed
is_revisit        whether a page has no body of its own, since it was stored before
resolve           gives revisits the bodies that they refer to

None of these clients is imported: each maker takes the attributes that its client's response has.

The features of `PAGE`:

    url               the URL that was requested (WARC-Target-URI)
    date              when, in UTC: 2026-11-22T07:45:00Z (WARC-Date)
    status            the HTTP status; 0 if there was no HTTP response
    content           the body, without its transfer encoding, and with the content encoding that ``encoding`` names
    content_type      the header
    headers           those of the response: "Name: value" in lines, as they were sent
    method            of the request
    final_url         the URL that answered, if redirects were followed; else empty
    digest            sha1:BASE32 of the content as it is stored, of a revisit's too (WARC-Payload-Digest)
    reason            the words of the status line
    protocol          HTTP/1.1, h2 (WARC-Protocol has them in its own spelling)
    ip                that of the server (WARC-IP-Address), if the client knows it (Crawlee does not)
    elapsed           seconds until the response had arrived, if the client knows it (aiohttp does not)
    charset           of a text
    encoding          the Content-Encoding that the content still has; empty: none
    truncated         why the content is not whole: length, time, disconnect (WARC-Truncated); empty: it is
    depth             links from where the crawl began
    referrer          the page that links here
    request_headers   as ``headers``, of the request
    type              WARC-Type: response, resource, revisit
    record_id         WARC-Record-ID
    warc_headers      the headers of a WARC record for which there is no feature, in lines
    refers_to_url     of a revisit: the URL of the page that has the body (WARC-Refers-To-Target-URI)
    refers_to_date    its date (WARC-Refers-To-Date)
    refers_to         its record_id, if it has one (WARC-Refers-To)
    profile           of a revisit: why it has no body (WARC-Profile): it is identical, or the server said so (304)

Every feature but ``url`` has a default: a page with fewer of them, from an older crawl or of a WARC, decodes. What a
maker was not told is not in the dict that it returns, and is at its default when the record is read.
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
