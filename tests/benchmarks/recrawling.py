"""The cost of storing pages that are crawled again, most of which have not changed.

There are two crawls of 200,000 pages of about 12 KB, without a network. In the second, a tenth of the pages have
changed. Of the others, half get a 304 response, and half the same body from a server without ETags. Each crawl is a
data set of its own, so that its bytes can be counted; the second one reads the first as a crawler does::

    python tests/benchmarks/recrawling.py --folder .
    python tests/benchmarks/recrawling.py --folder . --pages 20000 --compression ''
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
from harness import MIB

import asyncrec
from asyncrec import pages, tools

TASKS = 16
_WORDS = 3_000


class Site:
    """Returns the responses that a server would send."""

    def __init__(self) -> None:
        chance = random.Random(1)
        words = [
            "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randrange(2, 12))) for _ in range(_WORDS)
        ]
        # With the frequencies of words in real text (Zipf).
        self._text = " ".join(chance.choices(words, [1 / rank for rank in range(1, _WORDS + 1)], k=1 << 20)).encode()

    def answer(self, number: int, day: int, conditions: dict[str, str]) -> tuple[int, bytes, dict[str, str]]:
        version = day if number % 10 == 0 else 0
        chance = random.Random(number << 8 | version)
        size = int(chance.lognormvariate(9.2, 0.6))
        begin = chance.randrange(len(self._text) - size)
        body = b"<html><title>Page %d</title><p>" % number + self._text[begin : begin + size]
        headers = {
            "Date": f"Sun, {22 + day} Nov 2026 10:{number // 60 % 60:02}:{number % 60:02} GMT",
            "Server": "nginx/1.27.3",
            "Cache-Control": "public, max-age=0, must-revalidate",
            "Strict-Transport-Security": "max-age=31536000",
            "X-Request-Id": f"{chance.getrandbits(128):032x}",
        }
        if number % 2:
            headers["ETag"] = f'"{chance.getrandbits(64):016x}"'
            if conditions.get("If-None-Match") == headers["ETag"]:
                return 304, b"", headers
        headers |= {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))}
        return 200, body, headers


async def crawl(site: Site, folder: Path, count: int, day: int, options: dict[str, Any]) -> Counter[str]:
    """Crawl on this day, and compare with what was stored the day before."""
    kinds: Counter[str] = Counter()
    numbers = iter(range(count))

    async def fetch(stored: asyncrec.Dataset | None, writer: asyncrec.ShardedWriter) -> None:
        for number in numbers:
            url = f"https://www.example.org/articles/2026/{number:07}/index.html"
            known = await pages.conditions(stored, url)
            status, body, headers = site.answer(number, day, known)
            asked = {"Host": "www.example.org", "Accept": "*/*", "Accept-Encoding": "gzip, deflate", **known}
            asked["User-Agent"] = "Mozilla/5.0 (compatible; example-crawler/1.0; +https://example.org/bot)"
            page = pages.page(
                url, body, status=status, reason="OK" if body else "Not Modified", headers=headers, ip="127.0.0.1",
                request_headers=asked, protocol="HTTP/1.1", before=known.page, elapsed=0.1,
            )  # fmt: skip
            kinds[f"{page.get('type', 'response')} {status}"] += 1
            await writer.write(page)

    async def run(stored: asyncrec.Dataset | None) -> None:
        async with asyncrec.open_sharded_writer(
            folder / f"day-{day}", schema=pages.PAGE, key_feature="url", **options
        ) as writer:
            async with anyio.create_task_group() as tasks:
                for _ in range(TASKS):
                    tasks.start_soon(fetch, stored, writer)

    if day == 0:
        await run(None)
    else:
        async with asyncrec.open_dataset(folder / f"day-{day - 1}") as stored:
            await run(stored)
    return kinds


def size_of(folder: Path, day: int) -> int:
    """Return the size of a data set including its indexes, keys and manifest."""
    mine = [path for path in folder.rglob("*") if f"day-{day}" in str(path.relative_to(folder)) and path.is_file()]
    return sum(path.stat().st_size for path in mine)


async def measure(folder: Path, count: int, options: dict[str, Any]) -> None:
    site = Site()
    sizes, seconds = [], []
    for day in range(2):
        began, work = time.perf_counter(), time.process_time()
        kinds = await crawl(site, folder, count, day, options)
        seconds.append(time.perf_counter() - began)
        sizes.append(size_of(folder, day))
        per_page = (time.process_time() - work) / count * 1e6
        print(
            f"day {day}: {sizes[-1] / MIB:,.1f} MiB, {sizes[-1] / count:,.0f} bytes a page, {seconds[-1]:.0f} s, "
            f"{per_page:.0f} us of processor time a page, {dict(kinds)}",
            flush=True,
        )
    print(f"the second crawl takes {sizes[1] / sizes[0]:.3f} of the bytes of the first", flush=True)
    counted = await tools.count(folder / "day-1", by="type")
    began, bodies = time.perf_counter(), 0
    async with asyncrec.open_dataset(folder / "day-*") as both, asyncrec.open_dataset(folder / "day-1") as day:
        async for batch in day.batches():
            for at in range(0, len(batch), 256):
                found = [pages.PAGE.decode(record) for record in batch[at : at + 256]]
                bodies += sum(bool(page["content"]) for page in await pages.resolve(both, found))
    print(
        f"{bodies:,} of {counted.records:,} pages of the second crawl have a body again, "
        f"{(time.perf_counter() - began) / count * 1e6:.0f} us a page"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--folder", type=Path, required=True, help="where to make the data sets, in a folder of its own"
    )
    parser.add_argument("--pages", type=int, default=200_000)
    parser.add_argument("--compression", default="GZIP")
    options = parser.parse_args()
    folder = options.folder / "recrawling"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        anyio.run(measure, folder, options.pages, {"compression": options.compression, "max_shard_bytes": "64MiB"})
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
