"""A program that crawls a site with Crawlee, and continues where an earlier run was killed."""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import timedelta

from asyncrec_crawlee import AsyncrecStorageClient
from crawlee import ConcurrencySettings
from crawlee.configuration import Configuration
from crawlee.crawlers import HttpCrawler, HttpCrawlingContext

from asyncrec import pages


async def crawl(root: str, folder: str) -> None:
    configuration = Configuration(
        storage_dir=f"{folder}/crawlee", purge_on_start=False, persist_state_interval=timedelta(seconds=1)
    )
    async with AsyncrecStorageClient(f"{folder}/crawl", schemas={"default": pages.PAGE}) as storage:
        crawler = HttpCrawler(
            storage_client=storage,
            configuration=configuration,
            concurrency_settings=ConcurrencySettings(min_concurrency=8, desired_concurrency=8, max_concurrency=8),
        )

        @crawler.router.default_handler
        async def handle(context: HttpCrawlingContext) -> None:
            page = await pages.from_crawlee(context)
            await context.add_requests(
                [root + link for link in re.findall(r'href="([^"]+)"', page["content"].decode())]
            )
            await context.push_data(page)

        await crawler.run([f"{root}/0"], purge_request_queue=False)


if __name__ == "__main__":
    asyncio.run(crawl(*sys.argv[1:]))
