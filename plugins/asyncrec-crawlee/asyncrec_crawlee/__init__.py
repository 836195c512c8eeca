"""Crawlee's datasets as asyncrec data sets: a request is marked handled once its results are on the disk.

    async with AsyncrecStorageClient("crawl", schemas={"default": pages.PAGE}) as storage:
        crawler = HttpCrawler(storage_client=storage)
        ...

_client     the storage client, which holds the writers open
_dataset    one dataset: what is pushed to it, and what is read back
_items      what becomes of an item that has no schema, and back
"""

from ._client import AsyncrecStorageClient
from ._dataset import AsyncrecDatasetClient
from ._items import features_of, item_of

__all__ = ["AsyncrecDatasetClient", "AsyncrecStorageClient", "features_of", "item_of"]
