"""Versions of Scrapy's JOBDIR components that survive a kill: the filter of seen requests, and the request queues.

`DupeFilter` does not keep a list of seen requests on disk, because it would contain requests that were in progress when
a process was killed, which would never be repeated. The stored pages replace the list. With "replay", pages are crawled
again from the data set, faster than originally. With "skip", each page is looked up by its key.

After a clean stop, however, requests remain in the queues, and the next run finds them again by following the links of
stored pages. So a queue passes the requests of an earlier run to the filter as they are taken out, and drops those that
this run has already found.

`DiskQueue` and `StartDiskQueue` are safe versions of Scrapy's own queues, which keep the count of their requests in
memory, write it on closing, and trust it on opening (queuelib 1.10). After a kill, the count may be missing, so each
push fails and its request is lost, or outdated, so more requests are popped than exist. Here, a queue without a count
begins empty, and the count on disk is removed while a process uses the queue. JSON that was truncated by a kill during
closing is treated as missing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from scrapy.dupefilters import RFPDupeFilter
from scrapy.squeues import PickleFifoDiskQueue, PickleLifoDiskQueue

_NO_REQUESTS = bytes(4)  # a count of 0, at the beginning of a queue's file
_filters: WeakKeyDictionary[Any, DupeFilter] = WeakKeyDictionary()


class DupeFilter(RFPDupeFilter):
    """A filter for ``DUPEFILTER_CLASS``, set by `Addon` if a JOBDIR is used and stored pages are not fetched again."""

    def __init__(self, path: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(None, *args, **kwargs)

    @classmethod
    def from_crawler(cls, crawler: Any) -> Any:
        made = _filters[crawler] = super().from_crawler(crawler)
        return made


class _FilteredQueue:
    """A queue whose requests of an earlier run are filtered when they are taken out."""

    crawler: Any
    earlier = 0

    def is_dropped(self, request: Any) -> bool:
        """Return whether this run has already found a request of an earlier run."""
        dupe_filter = _filters.get(self.crawler)
        if request.dont_filter or dupe_filter is None or not dupe_filter.request_seen(request):
            return False
        dupe_filter.log(request, self.crawler.spider)
        return True


class DiskQueue(_FilteredQueue, PickleLifoDiskQueue):  # type: ignore[misc,valid-type]
    """A queue for ``SCHEDULER_DISK_QUEUE``, set by `Addon` if a JOBDIR is used."""

    def __init__(self, crawler: Any, key: str) -> None:
        path = Path(key)
        if path.exists():
            with path.open("rb") as file:
                count = file.read(len(_NO_REQUESTS))
            if len(count) < len(_NO_REQUESTS) or count == _NO_REQUESTS:
                path.unlink()
        super().__init__(crawler, key)
        with path.open("rb+") as file:
            file.write(_NO_REQUESTS)
        self.crawler = crawler
        self.earlier = len(self)

    def pop(self) -> Any:
        while (request := super().pop()) is not None:
            if len(self) >= self.earlier:
                return request
            self.earlier = len(self)  # the last one in is the first one out
            if not self.is_dropped(request):
                return request
        return None


class StartDiskQueue(_FilteredQueue, PickleFifoDiskQueue):  # type: ignore[misc,valid-type]
    """A queue for ``SCHEDULER_START_DISK_QUEUE``, set by `Addon` if a JOBDIR is used."""

    def __init__(self, crawler: Any, key: str) -> None:
        count = Path(key, "info.json")
        if not _is_json(count):
            shutil.rmtree(key, ignore_errors=True)
        super().__init__(crawler, key)
        count.unlink(missing_ok=True)
        self.crawler = crawler
        self.earlier = len(self)

    def pop(self) -> Any:
        while (request := super().pop()) is not None:
            if not self.earlier:
                return request
            self.earlier -= 1
            if not self.is_dropped(request):
                return request
        return None


def drop_torn_state(jobdir: str) -> None:
    """Remove the list of non-empty queues if a kill truncated it, because Scrapy could not start with such a list."""
    active = Path(jobdir, "requests.queue", "active.json")
    if not _is_json(active):
        active.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True
