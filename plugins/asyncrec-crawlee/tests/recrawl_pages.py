"""A program that crawls a site with Crawlee, and asks whether each page from an earlier run has changed."""

from __future__ import annotations

import asyncio
import re
import sys
from contextlib import AsyncExitStack, suppress

from asyncrec_crawlee import AsyncrecStorageClient
from crawlee import HttpHeaders
from crawlee.configuration import Configuration
from crawlee.crawlers import BasicCrawlingContext, HttpCrawler, HttpCrawlingContext

import asyncrec
from asyncrec import pages


async def crawl(root: str, folder: str) -> None:
    configuration = Configuration(storage_dir=f"{folder}/crawlee", purge_on_start=True)
    async with AsyncExitStack() as stack:
        stored = None
        with suppress(asyncrec.ObjectNotFoundError):
            stored = await stack.enter_async_context(asyncrec.open_dataset(f"{folder}/crawl/default"))
        client = AsyncrecStorageClient(f"{folder}/crawl", schemas={"default": pages.PAGE}, on_duplicate="write")
        storage = await stack.enter_async_context(client)
        crawler = HttpCrawler(storage_client=storage, configuration=configuration)

        @crawler.pre_navigation_hook
        async def ask(context: BasicCrawlingContext) -> None:
            known = await pages.conditions(stored, context.request.url)
            context.request.headers |= HttpHeaders(known)

        @crawler.router.default_handler
        async def handle(context: HttpCrawlingContext) -> None:
            known = await pages.conditions(stored, context.request.url)
            page = await pages.from_crawlee(context, before=known.page)
            await context.push_data(page)
            whole = page if stored is None else await pages.resolve(stored, page)
            await context.add_requests(
                [root + link for link in re.findall(r'href="([^"]+)"', whole["content"].decode())]
            )

        await crawler.run([f"{root}/0"])


if __name__ == "__main__":
    asyncio.run(crawl(*sys.argv[1:]))
