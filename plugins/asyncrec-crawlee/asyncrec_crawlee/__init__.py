"""Crawlee's datasets as asyncrec data sets. A request is marked as handled only once its results are on disk.

    async with AsyncrecStorageClient("crawl", schemas={"default": pages.PAGE}) as storage:
        crawler = HttpCrawler(storage_client=storage)
        ...

_client     the storage client, which keeps the writers open
_dataset    the client of one dataset, for pushing and reading items
_items      the conversion of items without a schema to features and back
"""

from ._client import AsyncrecStorageClient
from ._dataset import AsyncrecDatasetClient
from ._items import features_of, item_of

__all__ = ["AsyncrecDatasetClient", "AsyncrecStorageClient", "features_of", "item_of"]
