"""`DupeFilter`: Scrapy's own, without what JOBDIR keeps of it.

A request that was under way when a process was killed is in JOBDIR's list of those seen, and would never be made again.
Where pages are replayed, the list is made anew by replaying them, in less time than the crawl took.
"""

from __future__ import annotations

from typing import Any

from scrapy.dupefilters import RFPDupeFilter

__all__ = ["DupeFilter"]


class DupeFilter(RFPDupeFilter):
    """For ``DUPEFILTER_CLASS``; `Addon` sets it where there is a JOBDIR."""

    def __init__(self, path: str | None = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(None, *args, **kwargs)
