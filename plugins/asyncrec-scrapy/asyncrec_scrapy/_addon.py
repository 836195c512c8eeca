"""`Addon`: an add-on that installs the plugin's components with one line in ``ADDONS``. Its settings are:

ASYNCREC_PAGES           the data set of pages; if unset, pages are not stored
ASYNCREC_ITEMS           the data set of items; if unset, items are not stored
ASYNCREC_KNOWN           how to handle a request whose page was stored by an earlier run: "replay" (the default)
                         serves the stored page, "skip" ignores the request, "fetch" fetches and stores the page again,
                         and "revisit" asks the server whether the page has changed, and stores a revisit if it has not
ASYNCREC_ITEM_KEY        the field that identifies an item; an item with a stored key is not stored again
ASYNCREC_OPTIONS         options of `asyncrec.open_sharded_writer` for both data sets
"""

from __future__ import annotations

from typing import Any

from scrapy.exceptions import NotConfigured

from asyncrec.errors import ArgumentValueError

from ._jobdir import drop_torn_state
from ._store import FETCHED_ONCE

KNOWN = (*FETCHED_ONCE, "fetch", "revisit")

# Closer to the engine than Redirect, HttpCompression, MetaRefresh and Retry, so that responses are final and decoded.
_PAGES_ORDER = 545
# After the pipelines that clean and discard items.
_ITEMS_ORDER = 900


class Addon:
    """A Scrapy add-on for ``ADDONS``. The module's docstring lists its settings."""

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
    """Add a component to a setting, unless the user has already added it, in any order."""
    components = dict(settings.getdict(name))
    if component not in components:
        settings.set(name, {**components, component: order}, priority=max(20, settings.getpriority(name) or 0))
