"""A crawler for a container: it streams pages into S3, takes settings from the environment, and can end at any time.

    CRAWL_START_URL=https://example.org/  CRAWL_TO=s3://bucket/crawl/pages  python examples/crawl_to_s3.py

It needs no disk. A shard is uploaded while it grows, and what is in no shard yet is flushed to the store every 30
seconds: a killed process, or a machine that is lost, loses no more, and the next run takes up the rest. With
CRAWL_SPOOL, a folder of its own on a disk, it flushes there every five seconds, and a store that is down does not stop
the crawl. SIGTERM (which Kubernetes and ECS send) and Ctrl-C commit the pages fetched so far. Several of these crawlers
may write one data set at once; each page is a record with the schema of `asyncrec.pages`, and its URL is the key.
`k8s/` runs it in Kubernetes, and `crawl_site.py` is the same crawl as a complete program.

The environment, beside the AWS SDK's own (``AWS_ACCESS_KEY_ID``, ``AWS_PROFILE``, ``AWS_ENDPOINT_URL_S3``, ...):

    CRAWL_START_URL       the site, from this page on; its robots.txt is obeyed. With JOB_COMPLETION_INDEX, which
                          Kubernetes sets, several sites, separated by spaces: the index picks one
    CRAWL_TO              the data set: folder and name
    CRAWL_PAGES           the maximum number of new pages (1000)
    CRAWL_TASKS           (16)
    CRAWL_DELAY           seconds between two requests, of all tasks together (1)
    CRAWL_SHARD_BYTES     (67108864)
    CRAWL_SHARD_SECONDS   (600)
    CRAWL_FLUSH_SECONDS   (30, or 5 with CRAWL_SPOOL)
    CRAWL_DEAD_AFTER      seconds of silence after which other writers take this one for dead (120, or four times
                          CRAWL_FLUSH_SECONDS if that is longer)
    CRAWL_SPOOL           a local folder (none: nothing is kept on this machine)
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
    """What the environment says."""

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
            ValueError: something is missing, or no number; the message names the variable.
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
    """Commit what earlier Pods of this index of a Job had flushed, without waiting until they count as dead.

    They had the same host name, made of the Job's name and the index, and a Job runs one Pod for an index at a time. If
    one lives after all, on a machine that the cluster has lost sight of, its next call raises an error.
    """
    with suppress(asyncrec.ObjectNotFoundError):  # the first run
        for writer in (await asyncrec.recover(to)).unfinished:
            if writer.host == socket.gethostname():
                with suppress(asyncrec.ObjectNotFoundError):  # another process has just taken it up
                    await asyncrec.recover(to, dead=[writer.id])


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
