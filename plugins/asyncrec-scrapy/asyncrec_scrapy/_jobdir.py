"""Scrapy's files in a JOBDIR, made safe against a kill: the requests that were seen, and the requests that wait.

`DupeFilter` keeps no list on the disk. A request in progress when a process is killed would be in that list, and would
never be repeated. The stored pages replace the list: with "replay" they are crawled again from the data set, faster
than the original crawl, and with "skip" each one is found by its key.

`DiskQueue` and `StartDiskQueue` are Scrapy's own queues, made safe. Scrapy's queues keep the count of their requests in
memory, write it on closing, and trust it on opening (queuelib 1.10). After a kill, the count may be missing, so that
each push fails and its request is lost; or it may be outdated, so that more requests are popped than exist. Here a
queue without a count begins empty, and the count is removed from the disk while a process uses the queue. JSON that a
kill cut short while Scrapy closed the queue counts as missing.
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
    """A filter for ``DUPEFILTER_CLASS``, which `Addon` sets if there is a JOBDIR."""

    def __init__(self, path: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(None, *args, **kwargs)


class DiskQueue(PickleLifoDiskQueue):  # type: ignore[misc,valid-type]
    """A queue for ``SCHEDULER_DISK_QUEUE``, which `Addon` sets if there is a JOBDIR."""

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
    """A queue for ``SCHEDULER_START_DISK_QUEUE``, which `Addon` sets if there is a JOBDIR."""

    def __init__(self, crawler: Any, key: str) -> None:
        count = Path(key, "info.json")
        if not _is_json(count):
            shutil.rmtree(key, ignore_errors=True)
        super().__init__(crawler, key)
        count.unlink(missing_ok=True)


def drop_torn_state(jobdir: str) -> None:
    """Remove the list of non-empty queues if a kill cut it short, because Scrapy would not start with it."""
    active = Path(jobdir, "requests.queue", "active.json")
    if not _is_json(active):
        active.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True
