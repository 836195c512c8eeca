"""A crawler for a container: it streams pages into S3, takes settings from the environment, and can end at any time.

    CRAWL_START_URL=https://example.org/  CRAWL_TO=s3://bucket/crawl/pages  python examples/crawl_to_s3.py

A shard is uploaded while it grows, and committed when it is full or a minute old: that is the most that a killed
machine loses, and the next run fetches it again. With CRAWL_SPOOL, a folder of its own on a disk, a killed process
loses no record that had reached the disk, because the next run commits it, and a store that is down does not stop the
crawl. SIGTERM (which Kubernetes and ECS send) and Ctrl-C commit the pages fetched so far. Several of these crawlers may
write one data set at once; each page is a record with the schema of `asyncrec.pages`, and its URL is the key.
`crawl_site.py` is the same crawl as a complete program.

The environment, beside the AWS SDK's own (``AWS_ACCESS_KEY_ID``, ``AWS_PROFILE``, ``AWS_ENDPOINT_URL_S3``, ...):

    CRAWL_START_URL       the site, from this page on; its robots.txt is obeyed
    CRAWL_TO              the data set: folder and name
    CRAWL_PAGES           the maximum number of new pages (1000)
    CRAWL_TASKS           (16)
    CRAWL_DELAY           seconds between two requests, of all tasks together (1)
    CRAWL_SHARD_BYTES     (67108864)
    CRAWL_SHARD_SECONDS   (60)
    CRAWL_SPOOL           a local folder (none: nothing is kept on this machine)
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import anyio
from anyio import to_thread
from crawling.ending import Ending
from crawling.frontier import Frontier
from crawling.stored import add_links_of_stored
from crawling.website import NotFetched, Site, SiteUnreachable, is_redirect, links_in, open_site

import asyncrec
from asyncrec import pages

log = logging.getLogger("crawl_to_s3")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the environment says."""

    start_url: str
    to: str
    pages: int = 1000
    tasks: int = 16
    delay: float = 1.0
    shard_bytes: int = 64 << 20
    shard_seconds: float = 60.0
    spool: str | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """
        Raises:
            ValueError: something is missing, or no number; the message names the variable.
        """
        given: dict[str, str | int | float] = {}
        for name in ("start_url", "to"):
            value = environment.get(f"CRAWL_{name.upper()}", "")
            if not value:
                raise ValueError(f"CRAWL_{name.upper()} is not set")
            given[name] = value
        for name in ("pages", "tasks", "delay", "shard_bytes", "shard_seconds"):
            if text := environment.get(f"CRAWL_{name.upper()}"):
                number = type(getattr(cls, name))
                try:
                    given[name] = number(text)
                except ValueError:
                    raise ValueError(f"CRAWL_{name.upper()} is a number, not {text!r}") from None
        if spool := environment.get("CRAWL_SPOOL"):
            given["spool"] = spool
        return cls(**given)  # type: ignore[arg-type]  # each was made of the type that its default has


async def fetch_pages(site: Site, frontier: Frontier, writer: asyncrec.ShardedWriter) -> None:
    """One task: a URL, its page, its record. `write` waits while the store is slower than the site."""
    while (url := await frontier.take()) is not None:
        links: list[str] = []
        had = False
        try:
            page = await site.fetch(url)
            had = True
            links = await to_thread.run_sync(links_in, page)  # milliseconds, in a large page: not for the event loop
            if not is_redirect(page):
                await writer.write(page)
        except NotFetched as reason:
            log.info("%s: %s", url, reason)
        finally:
            frontier.done(links=links, had=had)


async def crawl(settings: Settings, ending: Ending) -> None:
    async with (
        open_site(settings.start_url, delay=settings.delay) as site,
        asyncrec.open_sharded_writer(
            settings.to,
            max_shard_bytes=settings.shard_bytes,
            max_shard_seconds=settings.shard_seconds,
            spool=settings.spool,
            compression="GZIP",
            schema=pages.PAGE,
            key_feature="url",
            metadata={"start_url": settings.start_url},
            on_duplicate="skip",  # also of what other runs, and other machines, have committed before
            on_commit=lambda shard: log.info("committed %s: %d records", shard.path, shard.records),
        ) as writer,
    ):
        # The start page is looked at again by every run, for links that are new.
        wanted = lambda url: site.allows(url) and (url == site.start_url or not writer.has(url))  # noqa: E731  # one line
        frontier = Frontier(limit=settings.pages, wanted=wanted)
        frontier.add([site.start_url])
        with ending.scope():
            await add_links_of_stored(settings.to, frontier)
            async with anyio.create_task_group() as tasks:
                for _ in range(settings.tasks):
                    tasks.start_soon(fetch_pages, site, frontier, writer)
    # Left, the writer has committed the rest, whether the crawl ended by itself or by a signal.


async def run(settings: Settings) -> int:
    ending = Ending()
    async with anyio.create_task_group() as watchers:
        await watchers.start(ending.listen, watchers.cancel_scope)
        await crawl(settings, ending)
        watchers.cancel_scope.cancel()
    manifest = await asyncrec.read_manifest(settings.to)
    log.info("%s: %d records in %d shards", settings.to, manifest.records, len(manifest.shards))
    return 0 if ending.signal is None else 128 + ending.signal


def main() -> int:
    """0: all well. 1: the site or the store failed. 2: the environment is not right. 128 + n: ended by signal n."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiobotocore").setLevel(logging.WARNING)  # it tells where it found credentials
    try:
        settings = Settings.of(os.environ)
    except ValueError as error:
        log.error("%s", error)
        return 2
    code = 1
    try:
        code = asyncio.run(run(settings))
    except* (SiteUnreachable, asyncrec.AsyncRecError, OSError) as group:
        # A writer that failed tells each of its tasks; one line is enough.
        for message in dict.fromkeys(str(error) for error in leaves(group)):
            log.error("%s", message)
    return code


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """The errors in a group, and in the groups within it."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


if __name__ == "__main__":
    sys.exit(main())
