"""Complete crawls by Scrapy that store their pages in different ways: pages per second, processor time, bytes.

    python tests/benchmarks/scrapy_crawls.py --pages 3000 --rounds 5

This process serves the site; all of ``scrapy crawl`` is measured, including its start. Ratios are relative to the crawl
that stores nothing, within each turn.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "servers"))

from linked_site import serving_site  # importable because of the line above
from scrapy_project import OURS, OWN, make_project, start_crawl

_NOTHING = "nothing"
_ITEMS = {name: value for name, value in OURS.items() if name != "ASYNCREC_PAGES"}
_PAGES = {name: value for name, value in OURS.items() if not name.startswith("ASYNCREC_ITEM")}
_FEED = {"FEEDS": OWN["FEEDS"]}
_CACHE = {name: value for name, value in OWN.items() if name != "FEEDS"}
WAYS: dict[str, dict[str, Any]] = {
    _NOTHING: {},
    "asyncrec items": _ITEMS,
    "asyncrec pages": _PAGES,
    "asyncrec pages and items": OURS,
    "JSON lines": _FEED,
    "HTTP cache": _CACHE,
    "JSON lines and HTTP cache": OWN,
}


@dataclass
class Figures:
    """The figures of all crawls that store in one way.

    Attributes:
        clock, processor: seconds for each round.
        stored, taken: bytes written, and bytes used on the disk, in the last round.
    """

    clock: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    stored: int = 0
    taken: int = 0


def run_once(name: str, root: str, figures: Figures, parent: Path) -> None:
    folder = Path(tempfile.mkdtemp(prefix="crawl-", dir=parent))
    make_project(folder, {**WAYS[name], "LOG_LEVEL": "ERROR"})
    begun = time.perf_counter()
    with (parent / "log").open("ab") as log:
        process = start_crawl(folder, root, log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{name}: {(parent / 'log').read_text()[-2000:]}")
    figures.clock.append(time.perf_counter() - begun)
    figures.processor.append(usage.ru_utime + usage.ru_stime)
    kept = [path.stat() for path in folder.rglob("*") if path.is_file() and "project" not in path.parts[-3:]]
    figures.stored = sum(each.st_size for each in kept)
    figures.taken = sum(each.st_blocks * 512 for each in kept)
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--only", default="", help="ways that have this in their name, beside the one that stores nothing"
    )
    parser.add_argument("--folder", help="where the crawls write")
    arguments = parser.parse_args()
    names = [name for name in WAYS if name == _NOTHING or arguments.only in name]
    found = {name: Figures() for name in names}
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 11))) for _ in range(2000)]
    with tempfile.TemporaryDirectory(prefix="asyncrec-bench-", dir=arguments.folder) as parent:
        with serving_site(arguments.pages) as site:
            # Repetitions are beyond deflate's window, so each page is compressed independently.
            site.texts = ["<p>" + " ".join(chance.choices(words, k=1500)) + "</p>" for _ in range(100)]
            for number in range(arguments.rounds):
                # The order rotates with each round.
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    run_once(name, site.root, found[name], Path(parent))
            if set(site.asked.values()) != {arguments.rounds * len(names)}:
                raise SystemExit("a page was not fetched by each crawl once")
    base = found[_NOTHING]
    columns = f"{'pages/s':>8} {'ratio':>6} {'cpu ms/page':>12} {'ratio':>6} {'bytes':>12} {'on the disk':>12}"
    print(f"{'stored by':28} {columns}")
    for name, figures in found.items():
        clock = statistics.median(b / a for a, b in zip(figures.clock, base.clock, strict=True))
        cpu = statistics.median(b / a for a, b in zip(figures.processor, base.processor, strict=True))
        speed = arguments.pages / statistics.median(figures.clock)
        each = statistics.median(figures.processor) / arguments.pages * 1e3
        print(f"{name:28} {speed:8.0f} {clock:6.3f} {each:12.3f} {cpu:6.3f} {figures.stored:12,} {figures.taken:12,}")


if __name__ == "__main__":
    main()
