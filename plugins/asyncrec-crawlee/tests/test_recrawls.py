"""A repeated crawl asks the server through a Crawlee hook which pages have changed, and stores only their bodies."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from linked_site import Site, serving_site

from asyncrec import blocking

PROGRAM = Path(__file__).parent / "recrawl_pages.py"


@pytest.fixture
def site() -> Iterator[Site]:
    with serving_site(30) as server:
        server.tagged = True
        yield server


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_second_run_stores_revisits_and_finds_all_pages(site: Site, tmp_path: Path) -> None:
    for text in ("", "new"):
        site.texts = ["", "", text]  # for every third page
        done = subprocess.run(
            [sys.executable, "-P", str(PROGRAM), site.root, str(tmp_path)],
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert site.unchanged == 20
    with blocking.open_dataset(tmp_path / "crawl/default") as dataset:
        found = list(dataset.examples())
        whole = blocking.resolve(dataset, found)
    assert Counter((page["type"], page["status"]) for page in found) == {("response", 200): 40, ("revisit", 304): 20}
    assert Counter(page["url"] for page in whole if b"<title>Page" in page["content"]).most_common()[-1][1] == 2
