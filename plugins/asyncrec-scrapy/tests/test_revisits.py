"""A repeated crawl asks the server which pages have changed, and stores only their bodies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from local_crawls import Crawl, stat

from asyncrec import blocking, pages


@pytest.fixture
def again(crawl: Crawl) -> Crawl:
    crawl.site.tagged = True
    crawl.settings |= {"ASYNCREC_KNOWN": "revisit", "ASYNCREC_ITEMS": "crawl/items"}
    return crawl


def kinds(path: Path) -> Counter[tuple[str, int]]:
    with blocking.open_dataset(path) as dataset:
        return Counter((page["type"], page["status"]) for page in dataset.examples())


def test_second_run_stores_revisits_but_yields_whole_pages(again: Crawl, tmp_path: Path) -> None:
    status, output = again.run()
    assert status == 0, output
    assert (stat(output, "pages/stored"), stat(output, "pages/unchanged")) == (90, None)
    again.site.texts = ["", "", "new"]  # for every third page
    status, output = again.run()
    assert status == 0, output
    assert (stat(output, "pages/stored"), stat(output, "pages/unchanged")) == (90, 60)
    assert again.site.unchanged == 60
    assert kinds(tmp_path / "crawl/pages") == {("response", 200): 120, ("revisit", 304): 60}
    with blocking.open_dataset(tmp_path / "crawl/items") as dataset:
        titles = Counter(example["title"][0] for example in dataset.examples())
    assert titles == {b"Page %d" % number: 2 for number in range(90)}, "its links were followed, and it was parsed"
    with blocking.open_dataset(tmp_path / "crawl/pages") as dataset:
        whole = blocking.resolve(dataset, list(dataset.examples()))
    assert all(b"<title>Page " in page["content"] and page["status"] == 200 for page in whole)


@pytest.mark.slow
def test_revisits_of_third_run_refer_to_first(again: Crawl, tmp_path: Path) -> None:
    for _ in range(3):
        assert again.run()[0] == 0
    with blocking.open_dataset(tmp_path / "crawl/pages") as dataset:
        found = list(dataset.examples())
        bodies = {(page["url"], page["date"]) for page in found if not pages.is_revisit(page)}
        revisits = [page for page in found if pages.is_revisit(page)]
    assert (len(bodies), len(revisits)) == (90, 180)
    assert {(page["refers_to_url"], page["refers_to_date"]) for page in revisits} == bodies


@pytest.mark.slow
def test_equal_bodies_without_etag_are_stored_as_revisits(again: Crawl, tmp_path: Path) -> None:
    again.site.tagged = False
    for _ in range(2):
        status, output = again.run()
        assert status == 0, output
    assert stat(output, "pages/unchanged") == 90
    assert kinds(tmp_path / "crawl/pages") == {("response", 200): 90, ("revisit", 200): 90}
    with blocking.open_dataset(tmp_path / "crawl/items") as dataset:
        assert len(dataset) == 180
