"""Create a Scrapy project with one spider, like ``scrapy startproject``, and start ``scrapy crawl`` as a process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

__all__ = ["OURS", "OWN", "make_project", "start_crawl"]

_SPIDER = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"

    async def start(self):
        yield scrapy.Request(self.root + "/0", dont_filter=True)

    def parse(self, response):
        yield {"url": response.url, "status": response.status, "title": response.css("title::text").get()}
        yield from response.follow_all(css="a")
"""

_SETTINGS: dict[str, Any] = {
    "BOT_NAME": "project",
    "SPIDER_MODULES": ["project.spiders"],
    "CONCURRENT_REQUESTS": 16,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "LOG_LEVEL": "INFO",
    "RETRY_ENABLED": False,
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
}

# The settings with which the pages and items of a crawl are stored by the add-on, or by Scrapy's own components.
OURS: dict[str, Any] = {
    "ADDONS": {"asyncrec_scrapy.Addon": 500},
    "ASYNCREC_PAGES": "crawl/pages",
    "ASYNCREC_ITEMS": "crawl/items",
    "ASYNCREC_ITEM_KEY": "url",
}
OWN: dict[str, Any] = {
    "FEEDS": {"items.jsonl": {"format": "jsonlines"}},
    "HTTPCACHE_ENABLED": True,
    "HTTPCACHE_DIR": "httpcache",
}


def make_project(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write the project's files."""
    (folder / "project/spiders").mkdir(parents=True)
    (folder / "scrapy.cfg").write_text("[settings]\ndefault = project.settings\n")
    for name in ("project/__init__.py", "project/spiders/__init__.py"):
        (folder / name).touch()
    lines = [f"{name} = {value!r}\n" for name, value in {**_SETTINGS, **settings}.items()]
    (folder / "project/settings.py").write_text("".join(lines))
    (folder / "project/spiders/pages.py").write_text(_SPIDER)


def start_crawl(folder: Path, root: str, log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start ``scrapy crawl`` in its own process group."""
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy", "crawl", "pages", "-a", f"root={root}"],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        stdout=log,
        stderr=log,
        start_new_session=True,
    )
