"""A crawler for a container: streams pages into S3, is configured by the environment, and can be stopped at any time.

    CRAWL_START_URL=https://example.org/  CRAWL_TO=s3://bucket/crawl/pages  python examples/crawl_to_s3.py

It needs no disk. Shards are uploaded while they grow, and records that are not in a shard yet are flushed to the store
every 30 seconds. If the process or the machine dies, only pages since the last flush are lost, and the next run
recovers the rest. With CRAWL_SPOOL, a local folder, it flushes to that folder every five seconds, and continues while
the store is down. SIGTERM, which Kubernetes and ECS send, and Ctrl-C commit the pages fetched so far. Several of these
crawlers can write one data set at the same time. Each page is a record with the schema of `asyncrec.pages`, and its URL
is the key. `k8s/` runs this in Kubernetes. `crawl_site.py` is the same crawl with a progress bar and a report.

Environment variables, in addition to those of the AWS SDK (``AWS_ACCESS_KEY_ID``, ``AWS_PROFILE``, ...):

    CRAWL_START_URL       the first page of the site; its robots.txt is obeyed. With JOB_COMPLETION_INDEX, which
                          Kubernetes sets, a list of sites separated by spaces, from which the index selects one
    CRAWL_TO              the data set: folder and name
    CRAWL_PAGES           the maximum number of new pages (1000)
    CRAWL_TASKS           the number of tasks (16)
    CRAWL_DELAY           seconds between two requests, for all tasks together (1)
    CRAWL_SHARD_BYTES     the size at which a shard is committed (67108864)
    CRAWL_SHARD_SECONDS   the age at which a shard is committed (600)
    CRAWL_FLUSH_SECONDS   seconds between two flushes (30, or 5 with CRAWL_SPOOL)
    CRAWL_DEAD_AFTER      seconds of silence after which other writers consider this one dead (120, or four times
                          CRAWL_FLUSH_SECONDS if that is longer)
    CRAWL_SPOOL           a local folder (by default, nothing is stored on this machine)
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anyio
from anyio import to_thread
from crawling.ending import Ending
from crawling.frontier import Frontier
from crawling.stored import add_links_of_stored
from crawling.website import NotFetched, Site, SiteUnreachable, is_redirect, links_in, open_site

import asyncrec
from asyncrec import pages

log = logging.getLogger("crawl_to_s3")

NUMBERS: Mapping[str, Callable[[str], float]] = {
    "CRAWL_PAGES": int,
    "CRAWL_TASKS": int,
    "CRAWL_DELAY": float,
    "CRAWL_SHARD_BYTES": int,
    "CRAWL_SHARD_SECONDS": float,
    "CRAWL_FLUSH_SECONDS": float,
    "CRAWL_DEAD_AFTER": float,
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings from the environment."""

    start_url: str
    to: str
    pages: int = 1000
    tasks: int = 16
    delay: float = 1.0
    shard_bytes: int = 64 << 20
    shard_seconds: float = 600.0
    flush_seconds: float | None = None
    dead_after: float | None = None
    spool: str | None = None
    index: int | None = None

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """
        Raises:
            ValueError: a variable is missing or invalid; the message names it.
        """
        given: dict[str, Any] = {}
        for name in ("start_url", "to"):
            value = environment.get(f"CRAWL_{name.upper()}", "")
            if not value:
                raise ValueError(f"CRAWL_{name.upper()} is not set")
            given[name] = value
        for name, number in NUMBERS.items():
            if text := environment.get(name):
                try:
                    given[name.removeprefix("CRAWL_").lower()] = number(text)
                except ValueError:
                    raise ValueError(f"{name} is a number, not {text!r}") from None
        if text := environment.get("JOB_COMPLETION_INDEX"):
            index, sites = int(text), given["start_url"].split()
            if index >= len(sites):
                raise ValueError(f"CRAWL_START_URL has {len(sites)} sites, and JOB_COMPLETION_INDEX is {index}")
            given |= {"index": index, "start_url": sites[index]}
        if spool := environment.get("CRAWL_SPOOL"):
            given["spool"] = spool
        return cls(**given)


async def take_up_own(to: str) -> None:
    """Commit the records that earlier Pods with this index flushed, without waiting until they are considered dead.

    They had the same host name, which consists of the Job's name and the index. A Job runs only one Pod per index at a
    time. If an earlier Pod is still alive, on a machine that the cluster has lost, its next call raises an error.
    """
    with suppress(asyncrec.ObjectNotFoundError):  # the first run
        for writer in (await asyncrec.recover(to)).unfinished:
            if writer.host == socket.gethostname():
                with suppress(asyncrec.ObjectNotFoundError):  # another process has just recovered it
                    await asyncrec.recover(to, dead=[writer.id])


async def fetch_pages(site: Site, frontier: Frontier, writer: asyncrec.ShardedWriter) -> None:
    """One task: fetches pages and writes their records. `write` waits while the store is slower than the site."""
    while (url := await frontier.take()) is not None:
        links: list[str] = []
        had = False
        try:
            page = await site.fetch(url)
            had = True
            links = await to_thread.run_sync(links_in, page)  # a large page takes milliseconds: use a thread
            if not is_redirect(page):
                await writer.write(page)
        except NotFetched as reason:
            log.info("%s: %s", url, reason)
        finally:
            frontier.done(links=links, had=had)


async def crawl(settings: Settings, ending: Ending) -> None:
    if settings.index is not None:
        await take_up_own(settings.to)
    async with (
        open_site(settings.start_url, delay=settings.delay) as site,
        asyncrec.open_sharded_writer(
            settings.to,
            max_shard_bytes=settings.shard_bytes,
            max_shard_seconds=settings.shard_seconds,
            flush_seconds=settings.flush_seconds or "default",
            dead_after=settings.dead_after,
            spool=settings.spool,
            compression="GZIP",
            schema=pages.PAGE,
            key_feature="url",
            metadata={"start_url": settings.start_url},
            on_duplicate="skip",  # including pages that earlier runs and other machines have committed
            on_commit=lambda shard: log.info("committed %s: %d records", shard.path, shard.records),
        ) as writer,
    ):
        # Every run fetches the start page again to find new links.
        wanted = lambda url: site.allows(url) and (url == site.start_url or not writer.has(url))  # noqa: E731  # one line
        frontier = Frontier(limit=settings.pages, wanted=wanted)
        frontier.add([site.start_url])
        with ending.scope():
            await add_links_of_stored(settings.to, frontier)
            async with anyio.create_task_group() as tasks:
                for _ in range(settings.tasks):
                    tasks.start_soon(fetch_pages, site, frontier, writer)
    # Leaving the writer's context has committed the remaining records, even if a signal ended the crawl.


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
    """Exit codes: 0 success, 1 the site or the store failed, 2 wrong settings, 128 + n ended by signal n."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("aiobotocore").setLevel(logging.WARNING)  # at INFO, it logs where it found credentials
    try:
        settings = Settings.of(os.environ)
    except ValueError as error:
        log.error("%s", error)
        return 2
    code = 1
    try:
        code = asyncio.run(run(settings))
    except* (SiteUnreachable, asyncrec.AsyncRecError, OSError) as group:
        # If the writer fails, all tasks get the same error: log it once.
        for message in dict.fromkeys(str(error) for error in leaves(group)):
            log.error("%s", message)
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
