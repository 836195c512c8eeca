"""Real crawls by Crawlee in separate processes are killed with -9 and restarted; each page is stored once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from linked_site import Site, serving_site

from asyncrec import blocking, pages

PROGRAM = Path(__file__).parent / "crawl_pages.py"
KILLS = int(os.environ.get("ASYNCREC_CRAWLEE_KILLS", "2"))  # 20 of them take some minutes
PAGES = 60 + 30 * KILLS


@pytest.fixture
def site() -> Iterator[Site]:
    with serving_site(PAGES) as server:
        yield server


@contextmanager
def crawling(site: Site, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a crawl in a separate process, which is killed at the end if it is still running."""
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), site.root, str(folder)],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def stored(folder: Path) -> list[dict[str, Any]]:
    with blocking.open_dataset(folder / "crawl/default") as dataset:
        assert dataset.schema == pages.PAGE
        return list(dataset.examples())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_repeatedly_killed_crawl_stores_each_page_once(site: Site, tmp_path: Path) -> None:
    for kill in range(1, KILLS + 1):
        with crawling(site, tmp_path) as process:
            site.wait_for(kill * PAGES // (KILLS + 1), lambda: process.poll() is not None)
    with crawling(site, tmp_path) as process:
        assert process.wait() == 0, (tmp_path / "log").read_text()
    found = stored(tmp_path)
    assert sorted(page["url"] for page in found) == sorted(f"{site.root}/{number}" for number in range(PAGES))
    for page in found:
        assert page["status"] == 200
        assert page["content"].startswith(b"<html><title>Page ")
        assert page["date"]
    # After a kill, little more is requested again than the requests that were in progress.
    assert sum(site.asked.values()) <= PAGES + KILLS * 8 * 2
