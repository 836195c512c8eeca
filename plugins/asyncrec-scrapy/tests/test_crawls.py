"""Real crawls by Scrapy, in separate processes that are killed and restarted."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from asyncrec_scrapy import StartDiskQueue
from local_crawls import Crawl, stat
from scrapy import Request

from asyncrec import blocking, pages


def urls(path: Path) -> list[str]:
    with blocking.open_dataset(path) as dataset:
        return [page["url"] for page in dataset.examples()]


def test_crawl_stores_each_response_as_page_with_request(crawl: Crawl, tmp_path: Path) -> None:
    status, output = crawl.run()
    assert status == 0, output
    assert stat(output, "pages/stored") == stat(output, "pages/committed") == 90
    with blocking.open_dataset(tmp_path / "crawl/pages") as dataset:
        assert dataset.schema == pages.PAGE
        page = pages.PAGE.decode(dataset.get_by_key(f"{crawl.site.root}/7"))
        assert len(dataset) == 90
    assert page["url"] == f"{crawl.site.root}/7"
    assert b"<title>Page 7</title>" in page["content"]
    assert (page["status"], page["depth"], page["charset"]) == (200, 2, "utf-8")
    assert b"Content-Type: text/html" in page["headers"]
    assert b"User-Agent" in page["request_headers"]


@pytest.mark.slow
def test_second_run_replays_stored_pages_without_requests(crawl: Crawl, tmp_path: Path) -> None:
    crawl.settings |= {"ASYNCREC_ITEMS": "crawl/items", "ASYNCREC_ITEM_KEY": "url"}
    assert crawl.run()[0] == 0
    asked = dict(crawl.site.asked)
    status, output = crawl.run()
    assert status == 0, output
    assert crawl.site.asked == asked
    assert stat(output, "pages/replayed") == 90
    assert stat(output, "items/known") == 90
    assert len(urls(tmp_path / "crawl/pages")) == 90
    with blocking.open_dataset(tmp_path / "crawl/items") as dataset:
        titles = sorted(example["title"][0] for example in dataset.examples())
    assert titles == sorted(b"Page %d" % number for number in range(90))


@pytest.mark.slow
def test_skip_mode_refetches_only_start_page(crawl: Crawl) -> None:
    assert crawl.run()[0] == 0
    status, output = crawl.run(ASYNCREC_KNOWN="skip")
    assert status == 0, output
    assert stat(output, "pages/skipped") == 3
    assert Counter(crawl.site.asked.values()) == {1: 89, 2: 1}


@pytest.mark.slow
def test_fetch_mode_stores_all_pages_again(crawl: Crawl, tmp_path: Path) -> None:
    assert crawl.run(ASYNCREC_KNOWN="fetch")[0] == 0
    assert crawl.run(ASYNCREC_KNOWN="fetch")[0] == 0
    assert Counter(Counter(urls(tmp_path / "crawl/pages")).values()) == {2: 90}


@pytest.mark.slow
@pytest.mark.parametrize("jobdir", [False, True])
def test_restarted_crawl_stores_each_page_once(crawl: Crawl, tmp_path: Path, jobdir: bool) -> None:
    crawl.settings |= {"ASYNCREC_ITEMS": "crawl/items", "ASYNCREC_ITEM_KEY": "url"}
    crawl.settings["ASYNCREC_OPTIONS"] = {"flush_seconds": 0.05}
    crawl.site.pause = 0.02
    if jobdir:
        crawl.settings["JOBDIR"] = "job"
    for asked in (20, 50, 80):
        crawl.kill_after(asked)
    status, output = crawl.run()
    assert status == 0, output
    wanted = sorted(f"{crawl.site.root}/{number}" for number in range(90))
    assert sorted(urls(tmp_path / "crawl/pages")) == wanted
    with blocking.open_dataset(tmp_path / "crawl/items") as dataset:
        assert sorted(example["url"][0].decode() for example in dataset.examples()) == wanted
    # Only pages that were not on disk when the crawl was killed were requested again, far from all of them.
    assert sum(crawl.site.asked.values()) < 180


@pytest.mark.slow
@pytest.mark.parametrize("stopped_before", [False, True])
def test_killed_queue_without_count_loses_no_page(crawl: Crawl, tmp_path: Path, stopped_before: bool) -> None:
    """Scrapy's queues count in memory, and write the count to disk only when they are closed."""
    crawl.settings["JOBDIR"] = "job"
    if stopped_before:
        assert crawl.run(CLOSESPIDER_PAGECOUNT=20)[0] == 0
        assert list((tmp_path / "job/requests.queue").rglob("0"))
    crawl.site.pause = 0.02
    crawl.kill_after(sum(crawl.site.asked.values()) + 20)
    for path in (tmp_path / "job/requests.queue").rglob("0"):
        path.write_bytes(path.read_bytes()[: 4 if stopped_before else 0])
    status, output = crawl.run()
    assert status == 0, output
    assert "Traceback" not in output
    assert sorted(urls(tmp_path / "crawl/pages")) == sorted(f"{crawl.site.root}/{number}" for number in range(90))


@pytest.mark.slow
def test_queued_requests_of_stopped_crawl_are_made_once(crawl: Crawl, tmp_path: Path) -> None:
    """The next run finds them again, in the pages that are replayed."""
    crawl.settings |= {"JOBDIR": "job", "ASYNCREC_ITEMS": "crawl/items"}
    assert crawl.run(CLOSESPIDER_PAGECOUNT=20, CONCURRENT_REQUESTS=2)[0] == 0
    fetched = sum(crawl.site.asked.values())
    assert fetched < 90
    status, output = crawl.run()
    assert status == 0, output
    assert Counter(crawl.site.asked.values()) == {1: 90}
    assert (stat(output, "pages/replayed"), stat(output, "pages/stored")) == (fetched, 90 - fetched)
    assert stat(output, "items/stored") == 90
    assert sorted(urls(tmp_path / "crawl/pages")) == sorted(f"{crawl.site.root}/{number}" for number in range(90))


@pytest.mark.slow
def test_crawl_resumes_after_truncated_queue_state(crawl: Crawl, tmp_path: Path) -> None:
    crawl.settings["JOBDIR"] = "job"
    assert crawl.run(CLOSESPIDER_PAGECOUNT=20)[0] == 0
    (tmp_path / "job/requests.queue/active.json").write_text("")
    status, output = crawl.run()
    assert status == 0, output
    assert "Traceback" not in output
    assert sorted(urls(tmp_path / "crawl/pages")) == sorted(f"{crawl.site.root}/{number}" for number in range(90))


@pytest.mark.parametrize("count", ["", '{"chunksize": 100000, "size'])
def test_start_queue_with_truncated_count_begins_empty(tmp_path: Path, count: str) -> None:
    crawler = SimpleNamespace(spider=None)
    (tmp_path / "0s").mkdir()
    (tmp_path / "0s/q00000").write_bytes(b"0000")
    (tmp_path / "0s/info.json").write_text(count)
    queue = StartDiskQueue(crawler, str(tmp_path / "0s"))
    assert (len(queue), queue.pop()) == (0, None)
    queue.push(Request("http://a/"))
    assert queue.pop().url == "http://a/"
    queue.close()


@pytest.mark.slow
def test_skip_mode_fetches_pages_seen_but_never_fetched(crawl: Crawl, tmp_path: Path) -> None:
    """The crawl is stopped, and later killed: the list of seen pages is on disk, but the queue is not."""
    crawl.settings |= {"JOBDIR": "job", "ASYNCREC_KNOWN": "skip"}
    assert crawl.run(CLOSESPIDER_PAGECOUNT=1, CONCURRENT_REQUESTS=1)[0] == 0
    crawl.site.pause = 1.0
    crawl.kill_after(sum(crawl.site.asked.values()) + 1)
    crawl.site.pause = 0.0
    status, output = crawl.run()
    assert status == 0, output
    found = urls(tmp_path / "crawl/pages")
    assert {f"{crawl.site.root}/{number}" for number in (1, 2)} <= set(found)
    assert len(found) == len(set(found))


def test_failing_store_stops_crawl_with_exit_status(crawl: Crawl, tmp_path: Path) -> None:
    (tmp_path / "crawl").write_text("a file where a folder should be")
    status, output = crawl.run()
    assert status == 1
    assert "the crawled pages could not be stored" in output
    assert "asyncrec/failed" in output
    assert "(asyncrec_failed)" in output
    assert sum(crawl.site.asked.values()) <= 1


def test_reactor_without_asyncio_stops_crawl(crawl: Crawl) -> None:
    reactor = "twisted.internet.selectreactor.SelectReactor"
    crawl.arguments = ["-s", f"TWISTED_REACTOR={reactor}"]
    status, output = crawl.run(TWISTED_REACTOR=reactor)
    assert status == 1
    assert "asyncrec requires Scrapy's asyncio reactor" in output
    assert "(asyncrec_failed)" in output
    assert "no running event loop" not in output
    assert "Error downloading" not in output


@pytest.mark.slow
def test_store_failing_midway_stops_crawl(crawl: Crawl, tmp_path: Path) -> None:
    spider = "import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\nimport signal\n"
    spider += "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    crawl.prelude = spider
    crawl.site.pause = 0.3  # longer than the store takes to fail
    status, output = crawl.run(ASYNCREC_OPTIONS={"flush_seconds": 0.05, "compression": ""})
    assert status == 1, output
    assert "(asyncrec_failed)" in output
    assert sum(crawl.site.asked.values()) < 90


def test_addon_disables_itself_without_dataset_and_logs_why(crawl: Crawl) -> None:
    status, output = crawl.run(ASYNCREC_PAGES=None)
    assert status == 0
    assert "set ASYNCREC_PAGES or ASYNCREC_ITEMS" in output


def test_addon_rejects_invalid_setting(crawl: Crawl) -> None:
    status, output = crawl.run(ASYNCREC_KNOWN="some")
    assert "ASYNCREC_KNOWN" in output
    assert not sum(crawl.site.asked.values()) or status == 0
