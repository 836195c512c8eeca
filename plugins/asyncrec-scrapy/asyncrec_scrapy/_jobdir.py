"""Versions of Scrapy's JOBDIR components that survive a kill: the filter of seen requests, and the request queues.

`DupeFilter` keeps no list of seen requests on the disk. Such a list would contain the requests in progress when a
process was killed, and they would never be repeated. The stored pages replace the list. With "replay", pages are
crawled again from the data set, faster than the original crawl. With "skip", each page is found by its key.

`DiskQueue` and `StartDiskQueue` are Scrapy's own queues, made safe. Scrapy's queues keep the count of their requests in
memory, write the count on closing, and trust it on opening (queuelib 1.10). After a kill, the count may be missing, and
then each push fails and its request is lost. Or the count may be outdated, and then more requests are popped than
exist. Here, a queue without a count begins empty, and the count is removed from the disk while a process uses the
queue. JSON that was truncated by a kill while Scrapy closed the queue is treated as missing.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from scrapy.dupefilters import RFPDupeFilter
from scrapy.squeues import PickleFifoDiskQueue, PickleLifoDiskQueue

_NO_REQUESTS = bytes(4)  # the count at the beginning of a queue's file


class DupeFilter(RFPDupeFilter):
    """A filter for ``DUPEFILTER_CLASS``. `Addon` sets it if a JOBDIR is used and stored pages are not fetched again."""

    def __init__(self, path: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(None, *args, **kwargs)


class DiskQueue(PickleLifoDiskQueue):  # type: ignore[misc,valid-type]
    """A queue for ``SCHEDULER_DISK_QUEUE``. `Addon` sets it if a JOBDIR is used."""

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


class StartDiskQueue(PickleFifoDiskQueue):  # type: ignore[misc,valid-type]
    """A queue for ``SCHEDULER_START_DISK_QUEUE``. `Addon` sets it if a JOBDIR is used."""

    def __init__(self, crawler: Any, key: str) -> None:
        count = Path(key, "info.json")
        if not _is_json(count):
            shutil.rmtree(key, ignore_errors=True)
        super().__init__(crawler, key)
        count.unlink(missing_ok=True)


def drop_torn_state(jobdir: str) -> None:
    """Remove the list of non-empty queues if a kill truncated it, because Scrapy could not start with it."""
    active = Path(jobdir, "requests.queue", "active.json")
    if not _is_json(active):
        active.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True
