"""Crawls of a site of linked pages, in processes of their own, which may be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests/servers"))

from linked_site import Site, serving_site  # found by the line above

SPIDER = """
import scrapy

class Pages(scrapy.Spider):
    name = "pages"
    start_urls = [{root!r} + "/0"]
    custom_settings = {settings!r}

    def parse(self, response):
        yield {{"url": response.url, "title": response.css("title::text").get(), "none": None}}
        yield from response.follow_all(css="a")
"""

SETTINGS = {
    "ADDONS": {"asyncrec_scrapy.Addon": 500},
    "LOG_LEVEL": "INFO",
    "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 16,
    "DOWNLOAD_DELAY": 0,
    "ROBOTSTXT_OBEY": False,
    "RETRY_TIMES": 0,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",  # the default since 2.13
}


@pytest.fixture
def site() -> Iterator[Site]:
    with serving_site(90) as server:
        yield server


class Crawl:
    """Runs of one spider in a folder."""

    def __init__(self, folder: Path, site: Site, **settings: Any) -> None:
        self.folder = folder
        self.site = site
        self.prelude = ""  # of the spider's module
        self.settings = {**SETTINGS, "ASYNCREC_PAGES": "crawl/pages", **settings}

    def start(self, **settings: Any) -> subprocess.Popen[str]:
        spider = SPIDER.format(root=self.site.root, settings={**self.settings, **settings})
        (self.folder / "spider.py").write_text(self.prelude + textwrap.dedent(spider), "utf-8")
        return subprocess.Popen(
            [sys.executable, "-m", "scrapy", "runspider", "spider.py"],
            cwd=self.folder,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, **settings: Any) -> tuple[int, str]:
        """The exit status of a whole run, and what it logged."""
        process = self.start(**settings)
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def kill_after(self, asked: int) -> None:
        """Start it, and kill it when the site was asked so often in all."""
        process = self.start()
        self.site.wait_for(asked, lambda: process.poll() is not None)
        with suppress(ProcessLookupError):  # a fast machine has crawled all by then
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture
def crawl(tmp_path: Path, site: Site) -> Crawl:
    return Crawl(tmp_path, site)


def stat(output: str, name: str) -> Any:
    """Of Scrapy's statistics, as they are logged in the end."""
    for line in output.splitlines():
        if f"'asyncrec/{name}': " in line:
            return json.loads(line.partition("': ")[2].strip().rstrip(",}").replace("'", '"'))
    return None
