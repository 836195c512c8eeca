"""Crawl a web site into a sharded, indexed TFRecord data set with sixteen tasks and one writer.

    python examples/crawl_site.py                                        # needs no network
    python examples/crawl_site.py --pages 200 --to other-folder/pages
    python examples/crawl_site.py --start-url https://example.org/       # a site that you may crawl

Without ``--start-url``, the site is your Python's standard library, served by a web server on this machine
(`crawling.local_site`). Each page is one record with the schema of `asyncrec.pages`, plus its package, which is the
first folder in its URL. The URL is the key of the record, and the package is its partition. If you run it again, it
continues the crawl, and writes no page twice. Ctrl-C and SIGTERM end it cleanly at any time.

Where to look: `crawl` opens the writer, each task runs `fetch_pages`, and `read_back` reads the data set.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # Until `Ending` listens, which takes seconds if imports are slow, nothing has begun: Ctrl-C can end the process.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import argparse
import asyncio
import re
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import anyio
from anyio import to_thread
from crawling.batches import show_balanced_batches
from crawling.ending import Ending
from crawling.frontier import Frontier
from crawling.local_site import connector_to, served_folder
from crawling.screen import Tally, missed, progress_bar, show_next, show_report, show_stop
from crawling.stored import add_links_of_stored
from crawling.website import NotFetched, Site, SiteUnreachable, is_redirect, links_in, open_site
from rich.filesize import decimal

import asyncrec
from asyncrec import pages

TASKS = 16
MAX_SHARD_BYTES = 2 << 20  # small, so that a short crawl makes several shards; the default, 256 MiB, suits real crawls
OPEN_SHARDS = 4  # the partition keeps the pages of a package together in one of them

LOCAL_HOST = f"python{sys.version_info.major}.{sys.version_info.minor}.localhost"
NOT_LIBRARY = frozenset({"__pycache__", "site-packages", "dist-packages"})  # compiled files and third-party packages


# A page with one additional feature. The manifest stores the schema, so other programs can read the data set.
SCHEMA = asyncrec.Schema({**pages.PAGE.features, "package": asyncrec.FixedLen((), "str")})


def package_of(url: str) -> str:
    """The first folder in the path, such as ``asyncio`` for ``/asyncio/events.py``, or ``"(top)"`` without a folder."""
    first, slash, _ = unquote(urlsplit(url).path).lstrip("/").partition("/")
    return first if slash and first else "(top)"


async def fetch_pages(
    site: Site, frontier: Frontier, writer: asyncrec.ShardedWriter, tally: Tally, parsing: anyio.CapacityLimiter
) -> None:
    """One of the crawler's tasks: takes URLs, fetches their pages, writes the records, and reports the links."""
    while (url := await frontier.take()) is not None:
        links: list[str] = []
        had = False
        try:
            page = await site.fetch(url)
            had = True
            links = await to_thread.run_sync(links_in, page, limiter=parsing)  # takes milliseconds for a large page
            if not is_redirect(page):
                package = package_of(url)
                await writer.write({**page, "package": package}, partition=package)
                tally.pages += 1
                tally.bytes += len(page["content"])
        except NotFetched as reason:
            tally.missed[str(reason)] += 1  # the next run tries again
        finally:
            frontier.done(links=links, had=had)


async def crawl(site: Site, to: str, *, pages: int, tally: Tally, ending: Ending) -> None:
    """Crawl ``site`` into the data set ``to`` until no URL is left, ``pages`` are fetched, or a signal arrives.

    However the crawl ends, leaving the writer's context commits the remaining records.
    """
    await check_schema(to)
    async with asyncrec.open_sharded_writer(
        to,
        max_shard_bytes=MAX_SHARD_BYTES,
        open_shards=OPEN_SHARDS,
        compression="GZIP",
        index=True,
        schema=SCHEMA,
        key_feature="url",
        on_duplicate="skip",
        on_commit=tally.shards.append,
        metadata={"start_url": site.start_url},
    ) as writer:
        frontier = Frontier(limit=pages, wanted=lambda url: site.allows(url) and not writer.has(url))
        frontier.add([site.start_url])
        with ending.scope():
            tally.before = await add_links_of_stored(to, frontier)
        # One thread, because the GIL lets only one parse at a time, and each further thread would delay the event loop.
        parsing = anyio.CapacityLimiter(1)
        began = time.perf_counter()
        with ending.scope(), progress_bar(f"Crawling {urlsplit(site.start_url).netloc}", pages, tally):
            async with anyio.create_task_group() as crawlers:
                for _ in range(TASKS):
                    crawlers.start_soon(fetch_pages, site, frontier, writer, tally, parsing)
        tally.seconds = time.perf_counter() - began


async def check_schema(to: str) -> None:
    """Check that earlier runs wrote records with the same schema.

    Raises:
        asyncrec.errors.DatasetError: the data set has another schema.
    """
    try:
        manifest = await asyncrec.read_manifest(to)
    except asyncrec.ObjectNotFoundError:
        return  # the first run
    if manifest.schema is None or asyncrec.Schema.from_json(manifest.schema) != SCHEMA:
        raise asyncrec.errors.DatasetError(
            f"{to} holds other records than this program writes; give another place with --to, or remove what an "
            "older version wrote"
        )


async def read_back(to: str) -> asyncrec.Manifest:
    """Read every shard with the schema in the manifest, verify each checksum, and check the number of records.

    Raises:
        asyncrec.errors.FormatError: a shard is damaged.
        asyncrec.errors.ExampleError: a record does not match the schema.
        asyncrec.errors.DatasetError: the number of records in a shard differs from the manifest.
    """
    manifest = await asyncrec.read_manifest(to)
    assert manifest.schema is not None, "the crawl wrote it"
    schema = asyncrec.Schema.from_json(manifest.schema)
    paths = await asyncrec.list_shards(manifest)
    for shard, path in zip(manifest.shards, paths, strict=True):
        found = 0
        async with asyncrec.open_reader(path) as reader:
            async for records in reader.batches():
                columns = await to_thread.run_sync(schema.decode_batch, records)  # one array for each feature
                found += len(columns["url"])
        if found != shard.records:
            raise asyncrec.errors.DatasetError(f"{path} holds {found:,} records, the manifest says {shard.records:,}")
    return manifest


@asynccontextmanager
async def site_to_crawl(options: argparse.Namespace) -> AsyncIterator[Site]:
    """The site that the user named, or a local site that is served while the context is open."""
    if options.start_url is not None:
        async with open_site(options.start_url, delay=options.delay) as site:
            yield site
        return
    async with served_folder(Path(sysconfig.get_paths()["stdlib"])) as port:
        connector = connector_to(LOCAL_HOST, port)
        start_url = f"http://{LOCAL_HOST}/"
        async with open_site(start_url, delay=options.delay, never=NOT_LIBRARY, connector=connector) as site:
            yield site


async def run(options: argparse.Namespace) -> int:
    """Crawl, read back and report; returns the exit code."""
    ending, tally = Ending(), Tally()
    manifest: asyncrec.Manifest | None = None
    async with anyio.create_task_group() as watchers:
        await watchers.start(ending.listen, watchers.cancel_scope)
        # Opening the storage here creates its client once, before the loop is watched: for S3 this takes about 50 ms.
        store = asyncrec.open_storage(options.to.rpartition("/")[0] or ".")
        async with store, site_to_crawl(options) as site:
            watchers.start_soon(tally.watch_the_loop)
            await crawl(site, options.to, pages=options.pages, tally=tally, ending=ending)
        if ending.signal is None:
            with ending.scope():
                began = time.perf_counter()
                manifest = await read_back(options.to)
                seconds = time.perf_counter() - began
        watchers.cancel_scope.cancel()
    if ending.at_once:
        print("\ncrawl_site: ended at once; committed pages are kept, and the same command continues", file=sys.stderr)
        return 130
    if manifest is None:
        assert ending.signal is not None, "nothing else cancels"
        show_stop(tally, options.to, ending.signal.name)
        return 128 + ending.signal
    if not manifest.shards:
        print(f"crawl_site: {site.start_url} gave no page: {missed(tally)}", file=sys.stderr)
        return 1
    sizes = (
        f"each is committed at {decimal(MAX_SHARD_BYTES)}, or at the end of the crawl; {OPEN_SHARDS} are open at once, "
        "and each package is written to one of them"
    )
    show_report(tally, options.to, manifest.shards, sizes=sizes, seconds=seconds)
    await show_balanced_batches(options.to)
    show_next(options.to)
    return 0


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pages", type=int, metavar="N", help="at most N new pages (2000; 100 with --start-url)")
    parser.add_argument(
        "--to", metavar="URL", default="demo-data/pages", help="the data set: folder and name (%(default)s)"
    )
    parser.add_argument("--start-url", metavar="URL", help="the page at which the crawl starts; robots.txt is obeyed")
    parser.add_argument("--delay", type=float, metavar="SECONDS", help="between two requests (0; 1 with --start-url)")
    options = parser.parse_args(arguments)
    foreign = options.start_url is not None
    if options.pages is None:
        options.pages = 100 if foreign else 2000
    if options.delay is None:
        options.delay = 1.0 if foreign else 0.0
    if options.pages < 1:
        parser.error("--pages: at least 1")
    if not 0 <= options.delay <= 3600:
        parser.error("--delay: from 0 to 3600 seconds")
    if not re.fullmatch(r"(.*/)?[^/_.*?\[][^/*?\[]*", options.to):
        parser.error(f"--to: a folder and a name, as in demo-data/pages, not {options.to!r}")
    # Refuse user names and passwords, because the manifest and every record store the URL.
    if foreign and not re.match(r"https?://[^\s/?#@\[\]]+([/?#]|$)", options.start_url):
        parser.error("--start-url: a plain http:// or https:// address, without user and password")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 success, 1 the site or the storage failed, 2 wrong usage, 128 + n ended by signal n."""
    options = parse_options(arguments)
    code, messages = 1, dict[str, None]()
    try:
        return asyncio.run(run(options))
    except* KeyboardInterrupt:
        code = 130
    except* (SiteUnreachable, asyncrec.AsyncRecError, OSError) as group:
        # If the writer fails, all sixteen tasks get the same error: print it once.
        messages = dict.fromkeys(str(error) for error in leaves(group))
    for message in messages:
        print(f"crawl_site: {message}", file=sys.stderr)
    return code


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors in a group, including those in nested groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


if __name__ == "__main__":
    sys.exit(main())
