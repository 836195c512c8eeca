"""Fetch the pages of a web site politely: one host, robots.txt, a pause between requests, a limit for responses.

    async with open_site("https://example.org/docs/", delay=1.0) as site:
        page = await site.fetch(site.start_url)
        urls = [url for url in links_in(page) if site.allows(url)]

A page is a dict with the schema `asyncrec.pages.PAGE`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from email.parser import BytesHeaderParser
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin, urlsplit
from urllib.robotparser import RobotFileParser

import aiohttp
import anyio

from asyncrec import pages

USER_AGENT = "asyncrec-example-crawler/1.0"
TIMEOUT = aiohttp.ClientTimeout(total=60, sock_connect=10)
MAX_PAGE_BYTES = 8 << 20  # this also bounds the crawler's memory, which holds up to sixteen pages
MAX_ROBOTS_BYTES = 512 << 10  # RFC 9309, section 2.5: at least 500 KiB must be read; the rest may be ignored
MAX_PAUSE = 60.0  # seconds; the longest pause that Retry-After can cause


class NotFetched(Exception):
    """A page could not be fetched. The message is a short reason that can be counted. The crawl continues."""


class SiteUnreachable(Exception):
    """The site does not respond, or its robots.txt cannot be read. The message can be shown to a user."""


class Pace:
    """Allows one request every ``delay`` seconds, for all tasks together."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._next = 0.0

    async def turn(self) -> None:
        """Wait until a request may be sent."""
        turn = max(self._next, anyio.current_time())
        self._next = turn + self._delay
        await anyio.sleep_until(turn)

    def hold(self, seconds: float) -> None:
        """Delay the next request by ``seconds``, except for tasks that are already waiting."""
        self._next = max(self._next, anyio.current_time() + seconds)


class Site:
    """A site that the tasks of one event loop crawl. `open_site` creates it."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        start_url: str,
        robots: RobotFileParser,
        *,
        delay: float,
        never: frozenset[str],
    ) -> None:
        self.start_url = start_url
        self._session = session
        self._robots = robots
        self._never = never
        # Crawl-delay is not part of RFC 9309, but sites use it, and the standard library parses it.
        self._pace = Pace(max(delay, float(robots.crawl_delay(USER_AGENT) or 0)))

    def allows(self, url: str) -> bool:
        """Whether ``url`` is on this host, allowed by robots.txt, and outside the folders in ``never``."""
        return (
            _origin(url) == _origin(self.start_url)
            and self._never.isdisjoint(urlsplit(url).path.split("/"))
            and self._robots.can_fetch(USER_AGENT, url)
        )

    async def fetch(self, url: str) -> dict[str, Any]:
        """Wait for the pause between requests, and fetch one page.

        Redirects are not followed, because they may lead to another host, or to a URL that robots.txt forbids. For such
        a page `is_redirect` is true, and `links_in` returns its target.

        Raises:
            NotFetched: there was no response, an error status, or a page larger than `MAX_PAGE_BYTES`.
        """
        await self._pace.turn()
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status >= 400:
                    self._heed(response)
                    raise NotFetched(f"status {response.status}")
                body = await _read(response, MAX_PAGE_BYTES)
                if len(body) > MAX_PAGE_BYTES:
                    raise NotFetched(f"over {MAX_PAGE_BYTES >> 20} MiB")
                # Store the URL as links spell it. If aiohttp's spelling differs, the page would be fetched again.
                return await pages.from_aiohttp(response, url=url, content=body)
        except TimeoutError as error:
            raise NotFetched("timed out") from error
        except aiohttp.ClientError as error:
            raise NotFetched(type(error).__name__) from error

    def _heed(self, response: aiohttp.ClientResponse) -> None:
        """Delay all tasks for as long as an overloaded site requests."""
        pause = response.headers.get("Retry-After", "")
        if response.status in (429, 503) and pause.isdecimal():
            self._pace.hold(min(float(pause), MAX_PAUSE))


@asynccontextmanager
async def open_site(
    start_url: str,
    *,
    delay: float,
    never: frozenset[str] = frozenset(),
    connector: aiohttp.BaseConnector | None = None,
) -> AsyncIterator[Site]:
    """Read the site's robots.txt, and yield a `Site` that fetches its pages.

    Args:
        delay: the seconds between two requests, for all tasks together.
        never: the names of folders that are never visited.
        connector: aiohttp's connection to the site. The default uses the proxies of the environment.

    Raises:
        SiteUnreachable: the site does not respond, or robots.txt cannot be read, so nothing may be fetched.
    """
    async with aiohttp.ClientSession(
        connector=connector, headers={"User-Agent": USER_AGENT}, timeout=TIMEOUT, trust_env=connector is None
    ) as session:
        robots = await _robots(session, start_url)
        if not urlsplit(start_url).path:
            start_url = urljoin(start_url, "/")  # the same page, spelled as in links
        yield Site(session, start_url, robots, delay=delay, never=never)


async def _robots(session: aiohttp.ClientSession, start_url: str) -> RobotFileParser:
    """Read robots.txt by RFC 9309, section 2.3.1: a missing file allows everything, a failing server nothing."""
    url = urljoin(start_url, "/robots.txt")
    robots = RobotFileParser(url)
    try:
        async with session.get(url) as response:
            if response.status >= 500:
                raise SiteUnreachable(f"{url} answers with status {response.status}, so nothing may be fetched")
            text = await _read(response, MAX_ROBOTS_BYTES) if response.status < 400 else b""
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SiteUnreachable(f"{start_url} cannot be reached: {error or type(error).__name__}") from error
    robots.parse(text[:MAX_ROBOTS_BYTES].decode("utf-8-sig", "replace").splitlines())
    return robots


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """The decompressed body, cut off soon after ``limit`` bytes, whatever its Content-Length."""
    blocks, size = [], 0
    async for block in response.content.iter_any():
        blocks.append(block)
        size += len(block)
        if size > limit:
            response.close()  # otherwise the rest would be read before the connection is reused
            break
    return b"".join(blocks)


def is_redirect(page: Mapping[str, Any]) -> bool:
    """Whether a page only redirects to another one, so that it is not stored."""
    return 300 <= page["status"] < 400 and bool(_location(page))


def _location(page: Mapping[str, Any]) -> str:
    return BytesHeaderParser().parsebytes(page["headers"]).get("Location", "")


def links_in(page: Mapping[str, Any]) -> list[str]:
    """The absolute http(s) URLs that a page links to, in order, without fragments."""
    if is_redirect(page):
        hrefs = [_location(page)]
    elif page["content_type"].startswith(("text/html", "application/xhtml+xml")):
        hrefs = _hrefs(page["content"].decode("utf-8", "replace"))
    else:
        return []
    links: dict[str, None] = {}
    for href in hrefs:
        try:
            url = urldefrag(urljoin(page["url"], href)).url
            if urlsplit(url).scheme in ("http", "https"):
                links[url] = None
        except ValueError:
            continue  # not a valid URL, such as "http://["
    return list(links)


def _hrefs(html: str) -> list[str]:
    hrefs: list[str] = []

    class Anchors(HTMLParser):
        def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
            if tag == "a":
                hrefs.extend(value.strip() for name, value in attributes if name == "href" and value)

    with suppress(AssertionError):  # the standard parser fails on an unknown "<![...]"; the links before it count
        Anchors().feed(html)
    return hrefs


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.lower()
