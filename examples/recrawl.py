"""Crawl the same pages repeatedly, and store only the bodies that have changed.

    python examples/recrawl.py                                   # needs no network; run it twice
    python examples/recrawl.py --to crawl/pages --urls urls.txt  # one URL per line

Without ``--urls``, the pages are modules of the standard library, served by a web server on this machine. Each run
sends the stored ETag and date of each page, so that the server returns only changed pages, and appends a version of the
page. An unchanged page is stored as a revisit: a record without a body that refers to the record with the body.

Where to look: `recrawl` opens the writer and the stored pages, each task runs `fetch_pages`, and `read_back` reads the
newest version of each page with its body.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import sysconfig
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
from crawling.local_site import connector_to, served_folder

import asyncrec
from asyncrec import pages

TASKS = 16
MAX_BYTES = 16 << 20
HOST = "library.localhost"
LIBRARY = Path(sysconfig.get_paths()["stdlib"])


async def fetch_pages(
    urls: Iterator[str],
    session: aiohttp.ClientSession,
    stored: asyncrec.Dataset | None,
    writer: asyncrec.ShardedWriter,
    count: Counter[str],
) -> None:
    """Take URLs, request their pages, and write the records, as one of several tasks."""
    for url in urls:  # all tasks share one iterator: each takes the next URL
        try:
            known = await pages.conditions(stored, url)
            async with session.get(url, headers=known) as response:
                if pages.is_temporary(response.status):
                    count["temporary"] += 1  # the next run tries again
                    continue
                page = await pages.from_aiohttp(response, max_bytes=MAX_BYTES, before=known.page)
        except (aiohttp.ClientError, TimeoutError):
            count["failed"] += 1
            continue
        await writer.write(page)
        count["unchanged" if pages.is_revisit(page) else "stored"] += 1


async def recrawl(urls: Sequence[str], to: str, session: aiohttp.ClientSession) -> Counter[str]:
    """Request each URL and append a version of each page. Return the number of pages by outcome."""
    count: Counter[str] = Counter()
    async with AsyncExitStack() as stack:
        # Open the writer first: it commits pages that a killed run left on the disk, so that the data set has them.
        writer = await stack.enter_async_context(
            asyncrec.open_sharded_writer(
                to, schema=pages.PAGE, key_feature="url", on_duplicate="write", compression="GZIP"
            )
        )
        stored = None
        with suppress(asyncrec.ObjectNotFoundError):  # the first run
            stored = await stack.enter_async_context(asyncrec.open_dataset(to))
        todo = iter(urls)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(TASKS):
                tasks.create_task(fetch_pages(todo, session, stored, writer, count))
    return count


async def read_back(urls: Sequence[str], to: str) -> int:
    """Read the newest version of each page with its body, and return the total size of the bodies."""
    size = 0
    async with asyncrec.open_dataset(to) as dataset:
        for url in urls:
            newest = (await pages.conditions(dataset, url)).page
            if newest is not None:
                size += len((await pages.resolve(dataset, newest))["content"])
    return size


def urls_in(path: str | None) -> list[str]:
    """The URLs in a file, or those of the standard library's modules."""
    if path is not None:
        return Path(path).read_text("utf-8").split()
    return [f"http://{HOST}/{each.name}" for each in sorted(LIBRARY.glob("*.py"))]


@asynccontextmanager
async def session_for(path: str | None) -> AsyncIterator[aiohttp.ClientSession]:
    """A session for the URLs of `urls_in`, with the local site if there is no file."""
    if path is not None:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session:
            yield session
        return
    async with served_folder(LIBRARY) as port, aiohttp.ClientSession(connector=connector_to(HOST, port)) as session:
        yield session


async def run(urls: Sequence[str], path: str | None, to: str) -> None:
    async with session_for(path) as session:
        count = await recrawl(urls, to, session)
    print(", ".join(f"{number:,} {what}" for what, number in sorted(count.items())))
    manifest = await asyncrec.read_manifest(to)
    print(f"{to}: {manifest.records:,} records in {manifest.bytes:,} bytes")
    print(f"the bodies of the newest versions: {await read_back(urls, to):,} bytes")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Crawl pages again, and store the bodies of those that have changed.")
    parser.add_argument("--to", default="demo-data/recrawled", help="the data set: a folder and a name")
    parser.add_argument("--urls", metavar="FILE", help="a file with one URL per line")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(run(urls_in(options.urls), options.urls, options.to))
    except (OSError, asyncrec.AsyncRecError) as error:
        print(f"recrawl: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
