"""Storage of Scrapy's pages and items in asyncrec data sets.

    ADDONS = {"asyncrec_scrapy.Addon": 500}
    ASYNCREC_PAGES = "crawl/pages"      # each response, as a page (asyncrec.pages)
    ASYNCREC_ITEMS = "crawl/items"      # each item, as an Example

_addon      the add-on and its settings
_store      the data sets of one crawl, held open by a task
_pages      the downloader middleware, which stores responses, and replays or skips stored pages
_first      the request that the spider made, before any redirect
_items      the item pipeline, and the conversion of items to Examples
_jobdir     Scrapy's files in a JOBDIR, made safe against a kill
"""

from ._addon import Addon
from ._items import ItemsPipeline, features_of
from ._jobdir import DiskQueue, DupeFilter, StartDiskQueue
from ._pages import PagesMiddleware

__all__ = [
    "Addon",
    "DiskQueue",
    "DupeFilter",
    "ItemsPipeline",
    "PagesMiddleware",
    "StartDiskQueue",
    "features_of",
]
