"""Which URL comes next, and when the crawl is over."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import anyio

MAX_WAITING = 200_000  # URLs kept for later, some 30 MB; links beyond them are dropped, and found again by the next run


class Frontier:
    """The URLs still to be visited, in the order in which they were found; shared by the tasks of one event loop.

    Args:
        limit: how many pages there shall be at most; URLs that gave no page do not count.
        wanted: whether a URL is to be visited at all; asked once for each.
    """

    def __init__(self, *, limit: int, wanted: Callable[[str], bool]) -> None:
        self._limit = limit
        self._wanted = wanted
        self._seen: set[str] = set()
        self._waiting: deque[str] = deque()
        self._at_work = 0
        self._news = anyio.Event()

    def add(self, urls: Iterable[str]) -> None:
        """Take in URLs. Those seen before, or not wanted, are left out."""
        for url in urls:
            if url not in self._seen and len(self._waiting) < MAX_WAITING:
                self._seen.add(url)
                if self._wanted(url):
                    self._waiting.append(url)

    async def take(self) -> str | None:
        """The next URL, or `None` when the crawl is over: none waits and no task is at work, or the limit is reached.

        Every URL taken has to be reported `done`, or the others wait for its links for ever.
        """
        while self._at_work and (not self._waiting or self._at_work >= self._limit):
            await self._news.wait()
        if not self._waiting or not self._limit:
            return None
        self._at_work += 1
        return self._waiting.popleft()

    def done(self, *, links: Iterable[str] = (), had: bool) -> None:
        """A URL that was taken is dealt with: the page was ``had`` or not, and led to ``links``."""
        self.add(links)
        self._limit -= had
        self._at_work -= 1
        self._news.set()
        self._news = anyio.Event()
