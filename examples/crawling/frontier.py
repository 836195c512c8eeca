"""Choose the next URL, and detect the end of the crawl."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import anyio

MAX_WAITING = 200_000  # queued URLs, about 30 MB; further links are dropped, and the next run finds them again


class Frontier:
    """The queue of URLs to visit, in the order in which they were found. The tasks of one event loop share it.

    Args:
        limit: the maximum number of pages. URLs without a page do not count.
        wanted: returns whether to visit a URL. It is called once for each URL.
    """

    def __init__(self, *, limit: int, wanted: Callable[[str], bool]) -> None:
        self._limit = limit
        self._wanted = wanted
        self._seen: set[str] = set()
        self._waiting: deque[str] = deque()
        self._at_work = 0
        self._news = anyio.Event()

    def add(self, urls: Iterable[str]) -> None:
        """Add URLs to the queue, except those already seen and those not wanted."""
        for url in urls:
            if url not in self._seen and len(self._waiting) < MAX_WAITING:
                self._seen.add(url)
                if self._wanted(url):
                    self._waiting.append(url)

    async def take(self) -> str | None:
        """The next URL, or `None` at the end: the queue is empty and no task is working, or the limit is reached.

        Call `done` for every URL taken. Otherwise the other tasks wait forever for its links.
        """
        while self._at_work and (not self._waiting or self._at_work >= self._limit):
            await self._news.wait()
        if not self._waiting or not self._limit:
            return None
        self._at_work += 1
        return self._waiting.popleft()

    def done(self, *, links: Iterable[str] = (), had: bool) -> None:
        """Report that a URL is finished: whether its page was fetched (``had``), and the ``links`` in it."""
        self.add(links)
        self._limit -= had
        self._at_work -= 1
        self._news.set()
        self._news = anyio.Event()
