"""What Scrapy keeps in a JOBDIR, made safe against a kill: the requests that were seen, and those that wait.

`DupeFilter` keeps no list on the disk. A request that was under way when a process was killed would be in it, and
would never be made again. The pages that are there say what was: replayed, they give the list again, faster than the
crawl was; skipped, each is known by itself.

`DiskQueue` and `StartDiskQueue` are Scrapy's own, made safe. Scrapy's keep the count of the requests in a queue in
memory, write it down when they are closed, and believe it when they are opened (queuelib 1.10). After a kill it is
missing, and then each push fails and its request is lost; or it is an older one, and then more is popped than is there.
Here a queue whose count is missing begins empty, and the count is gone from the disk as long as a process uses the
queue. A kill may also come while Scrapy closes them: JSON that it cut short counts as missing.
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
    """For ``DUPEFILTER_CLASS``; `Addon` sets it where there is a JOBDIR."""

    def __init__(self, path: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(None, *args, **kwargs)


class DiskQueue(PickleLifoDiskQueue):  # type: ignore[misc,valid-type]
    """For ``SCHEDULER_DISK_QUEUE``; `Addon` sets it where there is a JOBDIR."""

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
    """For ``SCHEDULER_START_DISK_QUEUE``; `Addon` sets it where there is a JOBDIR."""

    def __init__(self, crawler: Any, key: str) -> None:
        count = Path(key, "info.json")
        if not _is_json(count):
            shutil.rmtree(key, ignore_errors=True)
        super().__init__(crawler, key)
        count.unlink(missing_ok=True)


def drop_torn_state(jobdir: str) -> None:
    """Remove the list of the queues that are not empty where a kill cut it short: Scrapy would not start."""
    active = Path(jobdir, "requests.queue", "active.json")
    if not _is_json(active):
        active.unlink(missing_ok=True)


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        return False
    return True
