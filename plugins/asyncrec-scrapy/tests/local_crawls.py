"""Crawls of a site of linked pages, in separate processes that can be killed."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tests/servers"))

from linked_site import Site, serving_site  # importable because of the line above
from warm_python import Child, WarmPython

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


@pytest.fixture(scope="session")
def warm() -> Iterator[WarmPython]:
    """Starts each crawl in a separate process that has already imported the modules of a crawl."""
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONWARNINGS": "ignore"}
    with (
        tempfile.TemporaryDirectory(prefix="warm-") as folder,
        WarmPython(f"{folder}/socket", "crawl_imports", environment=environment) as python,
    ):
        yield python


@pytest.fixture
def site() -> Iterator[Site]:
    with serving_site(90) as server:
        yield server


class Crawl:
    """Runs one spider repeatedly in a folder."""

    def __init__(self, warm: WarmPython, folder: Path, site: Site, **settings: Any) -> None:
        self._warm = warm
        self.folder = folder
        self.site = site
        self.spider = SPIDER
        self.prelude = ""  # of the spider's module
        self.arguments: list[str] = []  # of the command
        self.settings = {**SETTINGS, "ASYNCREC_PAGES": "crawl/pages", **settings}

    def start(self, **settings: Any) -> tuple[Child, IO[str]]:
        """Begin a run, whose log is read from the pipe."""
        spider = self.spider.format(root=self.site.root, settings={**self.settings, **settings})
        (self.folder / "spider.py").write_text(self.prelude + textwrap.dedent(spider), "utf-8")
        reader, writer = os.pipe()
        with open(os.devnull, "rb") as nothing, open(writer, "wb") as log:
            descriptors = {"stdin": nothing.fileno(), "stdout": log.fileno(), "stderr": log.fileno()}
            child = self._warm.start(
                "scrapy", "runspider", "spider.py", *self.arguments, folder=self.folder, **descriptors
            )
        return child, open(reader, encoding="utf-8")

    def run(self, **settings: Any) -> tuple[int, str]:
        """Run to the end, and return the exit status and the log."""
        process, log = self.start(**settings)
        with log:
            output = log.read()
        return process.wait(120), output

    def kill_after(self, asked: int) -> None:
        """Start a run, and kill it once the site has received this many requests in total."""
        process, log = self.start()
        with log:
            self.site.wait_for(asked, process.has_ended)
            process.kill()  # a fast machine may have crawled everything by now
            process.wait(120)


@pytest.fixture
def crawl(warm: WarmPython, tmp_path: Path, site: Site) -> Crawl:
    return Crawl(warm, tmp_path, site)


def stat(output: str, name: str) -> Any:
    """Return a value from the statistics that Scrapy logs at the end."""
    for line in output.splitlines():
        if f"'asyncrec/{name}': " in line:
            return json.loads(line.partition("': ")[2].strip().rstrip(",}").replace("'", '"'))
    return None
