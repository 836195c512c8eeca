"""A crawled page as a record: one schema with WARC's words, made from the responses of any client.

    async with asyncrec.open_sharded_writer("crawl/pages", schema=pages.PAGE, on_duplicate="skip") as writer:
        async with session.get(url) as response:
            page = await pages.from_aiohttp(response)
        await writer.write(page, key=pages.page_key(page))

PAGE              the schema of a page, each feature with what it means
page              a page of its parts
from_aiohttp, from_httpx, from_scrapy, from_crawlee, from_playwright    a page of a response
page_key          what names a page: its URL, unless it was asked for with more
payload_digest    as WARC writes it

None of these clients is imported: each maker takes the attributes that its client's response has.

_schema           the schema, and a page of its parts
_responses        the makers
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
    from asyncrec.pages._schema import PAGE as PAGE
    from asyncrec.pages._schema import page as page
    from asyncrec.pages._schema import page_key as page_key
    from asyncrec.pages._schema import payload_digest as payload_digest

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "asyncrec.pages._responses": (
            "from_aiohttp",
            "from_crawlee",
            "from_httpx",
            "from_playwright",
            "from_scrapy",
        ),
        "asyncrec.pages._schema": ("PAGE", "page", "page_key", "payload_digest"),
    },
)
