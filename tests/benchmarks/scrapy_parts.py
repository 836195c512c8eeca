"""The cost of storing a response, without Scrapy's engine: the add-on, its parts, and Scrapy's HTTP cache.

    python tests/benchmarks/scrapy_parts.py --responses 2000 --rounds 5

The parts take turns, and the medians of the processor time of all threads are compared. Together with complete crawls
(``scrapy_crawls.py``), whose figures suffer on a busy machine, it shows how much of them is due to storing.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asyncrec_scrapy import PagesMiddleware
from scrapy import Spider
from scrapy.extensions.httpcache import FilesystemCacheStorage
from scrapy.http import Headers, HtmlResponse, Request
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.statscollectors import MemoryStatsCollector
from scrapy.utils.request import RequestFingerprinter

from asyncrec import pages

Answers = list[tuple[Request, HtmlResponse]]


class Crawler:
    """A stand-in for a crawler, with the attributes that a middleware uses."""

    engine = spider = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.signals = SignalManager()
        self.stats = MemoryStatsCollector(self)  # type: ignore[arg-type]  # all it takes
        self.request_fingerprinter = RequestFingerprinter(self)  # type: ignore[arg-type]  # all it takes


def answers(count: int) -> Answers:
    """Return pages of 12 KB like those of `linked_site`, each with its request."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 11))) for _ in range(2000)]
    texts = [" ".join(chance.choices(words, k=1500)) for _ in range(100)]
    made = []
    for number in range(count):
        asked = {
            "Accept": "text/html,*/*;q=0.8",
            "Accept-Language": "en",
            "User-Agent": "Scrapy",
            "Accept-Encoding": "gzip",
        }
        request = Request(f"http://127.0.0.1:8000/{number}", headers=asked, meta={"depth": 3, "download_latency": 0.01})
        body = f"<html><title>Page {number}</title>{texts[number % 100]}</html>".encode()
        sent = {"Server": "S", "Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))}
        made.append((request, HtmlResponse(request.url, headers=Headers(sent), body=body, request=request)))
    return made


def by_add_on(folder: Path, given: Answers, options: dict[str, Any]) -> None:
    async def run() -> None:
        settings = Settings({"ASYNCREC_PAGES": str(folder / "pages"), "ASYNCREC_OPTIONS": options})
        middleware = PagesMiddleware(Crawler(settings))
        await middleware._store._open()
        for number, (request, response) in enumerate(given):
            middleware.process_request(request)
            await middleware.process_response(request, response)
            if number % 16 == 0:
                await asyncio.sleep(0)  # as responses from a network would arrive
        await middleware._store._close()

    asyncio.run(run())


def by_cache(folder: Path, given: Answers) -> None:
    cache = FilesystemCacheStorage(Settings({"HTTPCACHE_DIR": str(folder)}))
    spider = Spider(name="pages")
    spider.crawler = Crawler(Settings())  # type: ignore[assignment]  # all it takes
    cache.open_spider(spider)
    for request, response in given:
        cache.store_response(spider, request, response)


def only_made(given: Answers) -> list[bytes]:
    return [pages.PAGE.encode(pages.from_scrapy(response, request=request)) for request, response in given]


WAYS: dict[str, Callable[[Path, Answers], Any]] = {
    "asyncrec-scrapy, GZIP": lambda folder, given: by_add_on(folder, given, {}),
    "asyncrec-scrapy, plain": lambda folder, given: by_add_on(folder, given, {"compression": ""}),
    "only the page, its digest and encoding": lambda folder, given: only_made(given),
    "only the digest": lambda folder, given: [pages.payload_digest(response.body) for _, response in given],
    "only zlib's level 1 over the bodies": lambda folder, given: [zlib.compress(each.body, 1) for _, each in given],
    "Scrapy's HTTP cache": by_cache,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--responses", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="where they are written")
    arguments = parser.parse_args()
    given = answers(arguments.responses)
    found: dict[str, list[float]] = {name: [] for name in WAYS}
    for number in range(arguments.rounds + 1):
        for name, store in WAYS.items():
            with tempfile.TemporaryDirectory(prefix="asyncrec-bench-", dir=arguments.folder) as folder:
                begun = time.process_time()
                store(Path(folder), given)
                if number:  # the first round imports modules
                    found[name].append((time.process_time() - begun) / len(given) * 1e6)
    for name, times in found.items():
        print(f"{name:40} {statistics.median(times):7.1f} us a response, at least {min(times):.1f}")


if __name__ == "__main__":
    main()
