"""Versions of Scrapy's JOBDIR components that survive a kill: the filter of seen requests, and the request queues.

`DupeFilter` does not keep a list of seen requests on disk, because it would contain requests that were in progress when
a process was killed, which would never be repeated. The stored pages replace the list. With "replay", pages are crawled
again from the data set, faster than originally. With "skip", each page is looked up by its key.

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

from scrapy.dupefilters import RFPDupeFilter
from scrapy.squeues import PickleFifoDiskQueue, PickleLifoDiskQueue

_NO_REQUESTS = bytes(4)  # a count of 0, at the beginning of a queue's file


class DupeFilter(RFPDupeFilter):
    """A filter for ``DUPEFILTER_CLASS``, set by `Addon` if a JOBDIR is used and stored pages are not fetched again."""

    def __init__(self, path: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(None, *args, **kwargs)


class DiskQueue(PickleLifoDiskQueue):  # type: ignore[misc,valid-type]
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


class StartDiskQueue(PickleFifoDiskQueue):  # type: ignore[misc,valid-type]
    """A queue for ``SCHEDULER_START_DISK_QUEUE``, set by `Addon` if a JOBDIR is used."""

    def __init__(self, crawler: Any, key: str) -> None:
        count = Path(key, "info.json")
        if not _is_json(count):
            shutil.rmtree(key, ignore_errors=True)
        super().__init__(crawler, key)
        count.unlink(missing_ok=True)


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
