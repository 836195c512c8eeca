"""`Addon`: one line in ``ADDONS`` switches on what the settings ask for.

ASYNCREC_PAGES           the data set of pages; without it none are stored
ASYNCREC_ITEMS           the data set of items; without it none are stored
ASYNCREC_KNOWN           what becomes of a request whose page is there from an earlier run: "replay" (the default)
                         serves it from the data set, "skip" ignores it, "fetch" fetches and stores it again, "revisit"
                         asks the server whether it has changed, and stores a revisit if it has not
ASYNCREC_ITEM_KEY        the field that names an item: one that is there is not stored again
ASYNCREC_OPTIONS         of `asyncrec.open_sharded_writer`, for both
"""

from __future__ import annotations

from typing import Any

from scrapy.exceptions import NotConfigured

from asyncrec.errors import ArgumentValueError

from ._jobdir import drop_torn_state
from ._store import FETCHED_ONCE

KNOWN = (*FETCHED_ONCE, "fetch", "revisit")

# Behind Redirect, HttpCompression, MetaRefresh and Retry: responses are final, and decoded.
_PAGES_ORDER = 545
# Behind pipelines that clean and drop.
_ITEMS_ORDER = 900


class Addon:
    """For ``ADDONS``; see the module."""

    def update_settings(self, settings: Any) -> None:
        if not settings.get("ASYNCREC_PAGES") and not settings.get("ASYNCREC_ITEMS"):
            raise NotConfigured("asyncrec_scrapy: set ASYNCREC_PAGES or ASYNCREC_ITEMS to the path of a data set")
        known = settings.get("ASYNCREC_KNOWN", "replay")
        if known not in KNOWN:
            raise ArgumentValueError(f"ASYNCREC_KNOWN must be 'replay', 'skip', 'fetch' or 'revisit', not {known!r}")
        if settings.get("ASYNCREC_PAGES"):
            _add(settings, "DOWNLOADER_MIDDLEWARES", "asyncrec_scrapy.PagesMiddleware", _PAGES_ORDER)
            if settings.get("JOBDIR"):
                drop_torn_state(settings["JOBDIR"])
                settings.set("SCHEDULER_DISK_QUEUE", "asyncrec_scrapy.DiskQueue", priority="addon")
                settings.set("SCHEDULER_START_DISK_QUEUE", "asyncrec_scrapy.StartDiskQueue", priority="addon")
                if known in FETCHED_ONCE:
                    settings.set("DUPEFILTER_CLASS", "asyncrec_scrapy.DupeFilter", priority="addon")
        if settings.get("ASYNCREC_ITEMS"):
            _add(settings, "ITEM_PIPELINES", "asyncrec_scrapy.ItemsPipeline", _ITEMS_ORDER)


def _add(settings: Any, name: str, component: str, order: int) -> None:
    """Unless the user has it at another place."""
    components = dict(settings.getdict(name))
    if component not in components:
        settings.set(name, {**components, component: order}, priority=max(20, settings.getpriority(name) or 0))
