"""Kill -9 crawls of a local site by Scrapy and Crawlee at random times, and restart them each time.

In the end, the data set must contain every page exactly once, with its URL, status, headers and time, and every item.
If it is run directly, as ``python tests/torture/frameworks.py --kills 20 --seed 1``, this module also reports how
Scrapy's own JSON lines feed and HTTP cache fare.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from linked_site import Site, serving_site  # on sys.path because of the line above
from row import Row
from scrapy_project import OURS, OWN, make_project, start_crawl

from asyncrec import ObjectNotFoundError, blocking

_CRAWLEE = Path(__file__).parents[2] / "plugins/asyncrec-crawlee/tests/crawl_pages.py"
_PAUSE = 0.5  # seconds per page: with 16 requests at a time, the site serves 32 pages per second
_PAGES_FOR_A_KILL = 100
_LEAST, _MOST = 0.2, 3.0  # seconds from the first page of a run to the kill
_MOST_SECONDS = 900

Start = Callable[[Path, str, IO[bytes]], "subprocess.Popen[bytes]"]


@dataclass(frozen=True)
class Crawl:
    """A way to crawl.

    Attributes:
        name: its name.
        settings: Scrapy's settings; `None` for Crawlee.
        looked: called at the end with the crawl's folder and the expected URLs; returns the faults found.
    """

    name: str
    settings: dict[str, Any] | None
    looked: Callable[[Path, set[str]], list[str]]

    def start(self, folder: Path, root: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
        if self.settings is not None:
            return start_crawl(folder, root, log)
        return subprocess.Popen(
            [sys.executable, str(_CRAWLEE), root, str(folder)],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def killed(crawl: Crawl, folder: Path, site: Site, kills: int, rng: random.Random) -> tuple[int, int]:
    """Kill a crawl ``kills`` times and then let it end; return the number of kills and the last run's exit status."""
    if crawl.settings is not None:
        make_project(folder, crawl.settings)
    done = 0
    with (folder / "log").open("ab") as log:
        for _ in range(kills):
            process = crawl.start(folder, site.root, log)
            site.wait_for(sum(site.asked.values()) + 1, lambda process=process: process.poll() is not None)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LEAST + rng.random() * (_MOST - _LEAST))
                break  # the crawl ended by itself
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            done += 1
        process = crawl.start(folder, site.root, log)
        try:
            return done, process.wait(_MOST_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def counted(what: str, found: Iterable[str], wanted: set[str]) -> list[str]:
    """Describe the numbers of lost, duplicate and unexpected URLs, if any."""
    counts = Counter(found)
    lost, twice = len(wanted - counts.keys()), sum(counts.values()) - len(counts)
    others = len(counts.keys() - wanted)
    return [f"{what}: {lost:,} lost, {twice:,} twice, {others:,} others"] if lost or twice or others else []


def stored(path: Path, wanted: set[str]) -> list[str]:
    """Return the faults of a data set of pages."""
    problems = []
    try:
        with blocking.open_dataset(path) as dataset:
            found = list(dataset.examples())
    except ObjectNotFoundError:
        found = []
    for page in found:
        whole = b"content-type: text/html" in page["headers"].lower() and page["content"].startswith(
            b"<html><title>Page "
        )
        if not (whole and page["status"] == 200 and page["date"]):
            problems.append(f"{page['url']} is not whole: {page}")
    return problems + counted("pages", (page["url"] for page in found), wanted)


def looked_scrapy(folder: Path, wanted: set[str]) -> list[str]:
    problems = stored(folder / "crawl/pages", wanted)
    with blocking.open_dataset(folder / "crawl/items") as dataset:
        return problems + counted("items", (item["url"][0].decode() for item in dataset.examples()), wanted)


def looked_crawlee(folder: Path, wanted: set[str]) -> list[str]:
    return stored(folder / "crawl/default", wanted)


def looked_own(folder: Path, wanted: set[str]) -> list[str]:
    """Return the faults of Scrapy's own feed and cache."""
    broken, items, cached = 0, [], []
    for line in (folder / "items.jsonl").read_bytes().splitlines():
        try:
            items.append(json.loads(line)["url"])
        except ValueError:
            broken += 1
    for meta in (folder / ".scrapy/httpcache").rglob("pickled_meta"):
        try:
            url = pickle.loads(meta.read_bytes())["url"]
            if (meta.parent / "response_body").read_bytes().endswith(b"</html>"):
                cached.append(url)
        except (EOFError, OSError, pickle.UnpicklingError):
            broken += 1
    problems = counted("HTTP cache", cached, wanted) + counted("JSON lines", items, wanted)
    return problems + [f"{broken:,} lines or entries broken"] * bool(broken)


CRAWLS = [
    Crawl("Scrapy", OURS, looked_scrapy),
    Crawl("Scrapy with a JOBDIR", {**OURS, "JOBDIR": "job"}, looked_scrapy),
    Crawl("Crawlee", None, looked_crawlee),
]
# Scrapy's own storage, for which asyncrec promises nothing.
OTHERS = [
    Crawl("Scrapy's feed and HTTP cache", OWN, looked_own),
    Crawl("Scrapy's feed and HTTP cache with a JOBDIR", {**OWN, "JOBDIR": "job"}, looked_own),
]


def tried(crawl: Crawl, seed: int, kills: int, *, keep: bool = False) -> Row:
    rng = random.Random(f"{seed} {crawl.name}")
    folder = Path(tempfile.mkdtemp(prefix="asyncrec-torture-"))
    pages = kills * _PAGES_FOR_A_KILL
    with serving_site(pages) as site:
        site.pause = _PAUSE
        begun = time.monotonic()
        done, status = killed(crawl, folder, site, kills, rng)
        seconds = time.monotonic() - begun
        problems = crawl.looked(folder, {f"{site.root}/{number}" for number in range(pages)})
        again = sum(site.asked.values()) - len(site.asked)
    if status:
        problems.append(f"the last run ended with status {status}")
    if done < kills:
        problems.append(f"it ended by itself, after {done} kills")
    for problem in problems[:5]:
        print(f"{crawl.name}: {problem}", flush=True)
    if keep or problems:
        print(f"{folder}, {seconds:.0f} s", flush=True)
    if not keep and not problems:
        shutil.rmtree(folder)
    return Row(f"kill -9 of {crawl.name} ({pages:,} pages, {again:,} fetched again)", done, len(problems), seed)


def frameworks(crawl: Crawl) -> Callable[[int, int], Row]:
    return lambda seed, rounds: tried(crawl, seed, max(2, rounds // 25))


ROUNDS = [frameworks(crawl) for crawl in CRAWLS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=20, help="of each (20)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments (1)")
    parser.add_argument("--only", default="", help="those whose name has this in it")
    arguments = parser.parse_args()
    for crawl in CRAWLS + OTHERS:
        if arguments.only in crawl.name:
            row = tried(crawl, arguments.seed, arguments.kills)
            print(f"{row.what:90} {row.tried:>3} kills: {'something is' if row.lost else 'nothing'} lost", flush=True)


if __name__ == "__main__":
    main()
