"""`AsyncrecDatasetClient` is a Crawlee dataset stored as an asyncrec data set."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any, TypeAlias

from crawlee.storage_clients._base import DatasetClient
from crawlee.storage_clients.models import DatasetItemsListPage, DatasetMetadata

import asyncrec
from asyncrec.pages import PAGE, is_temporary

from ._items import features_of, item_of

_log = logging.getLogger("asyncrec.crawlee")

Key: TypeAlias = "str | Callable[[Mapping[str, Any]], str | bytes | None]"

# The number of items read at a time: 10 MB if pages have 100 KB.
_TOGETHER = 100


class AsyncrecDatasetClient(DatasetClient):
    """A dataset with a single writer, created by `AsyncrecStorageClient`."""

    def __init__(
        self,
        writer: asyncrec.ShardedWriter,
        *,
        dataset: str,
        name: str | None,
        key: Key | None,
        before: int,
        opening: Mapping[str, Any],
    ) -> None:
        """Initialize the client.

        ``before`` is the number of items already stored. ``opening`` contains the options for reading the path.
        """
        self._writer = writer
        self._pages = writer.schema == PAGE
        self._dataset = dataset
        self._name = name
        self._key = key
        self._before = before
        self._opening = opening
        self._created = self._modified = datetime.now(UTC)

    async def get_metadata(self) -> DatasetMetadata:
        """Return the metadata. The count excludes items that other processes wrote after this client was opened."""
        return DatasetMetadata(
            id=self._dataset,
            name=self._name,
            created_at=self._created,
            modified_at=self._modified,
            accessed_at=datetime.now(UTC),
            item_count=self._before + self._writer.stats().records,
        )

    async def push_data(self, data: Sequence[Mapping[str, Any]] | Mapping[str, Any]) -> None:
        """Store items and wait until they are on disk. Concurrent calls share one flush.

        In a dataset with keys, discard items whose key is already stored. In a dataset of pages, also discard pages
        with a temporary status (`asyncrec.pages.is_temporary`), so that a later crawl fetches them again.

        Raises:
            SchemaError: an item does not match the dataset's schema. The preceding items are stored.
            OSError: the disk or the store failed.
        """
        items = data if isinstance(data, Sequence) else [data]
        ticket = 0
        for item in items:
            if self._pages and isinstance(status := item.get("status"), int) and is_temporary(status):
                extra = {"path": self._writer.path, "status": status}
                _log.warning(
                    "%s: the status %d is temporary, so the page is not stored", item.get("url"), status, extra=extra
                )
                continue
            record = asyncrec.encode_example(features_of(item)) if self._writer.schema is None else item
            ticket = await self._writer.write(record, key=self._key_of(item))
        self._modified = datetime.now(UTC)
        await self._writer.wait(ticket, "spooled")

    async def get_data(
        self,
        *,
        offset: int = 0,
        limit: int | None = 999_999_999_999,
        clean: bool = False,
        desc: bool = False,
        fields: list[str] | None = None,
        omit: list[str] | None = None,
        unwind: list[str] | None = None,
        skip_empty: bool = False,
        skip_hidden: bool = False,
        flatten: list[str] | None = None,
        view: str | None = None,
    ) -> DatasetItemsListPage:
        """Commit the open shard and return a page of items. Later items are written to a new shard."""
        _warn(clean=clean, fields=fields, omit=omit, unwind=unwind, skip_hidden=skip_hidden, flatten=flatten, view=view)
        async with self._open() as dataset:
            total = len(dataset) if dataset is not None else 0
            items = [item async for item in _items(dataset, offset, limit, desc=desc, skip_empty=skip_empty)]
        return DatasetItemsListPage(
            count=len(items), offset=offset, limit=limit or max(0, total - offset), total=total, desc=desc, items=items
        )

    async def iterate_items(
        self,
        *,
        offset: int = 0,
        limit: int | None = None,
        clean: bool = False,
        desc: bool = False,
        fields: list[str] | None = None,
        omit: list[str] | None = None,
        unwind: list[str] | None = None,
        skip_empty: bool = False,
        skip_hidden: bool = False,
    ) -> AsyncIterator[Mapping[str, Any]]:
        """Commit the open shard and iterate over items. At most a hundred are in memory at a time."""
        _warn(clean=clean, fields=fields, omit=omit, unwind=unwind, skip_hidden=skip_hidden)
        async with self._open() as dataset:
            async for item in _items(dataset, offset, limit, desc=desc, skip_empty=skip_empty):
                yield item

    async def drop(self) -> None:
        """Raise NotImplementedError, because a crawler must not delete the data set that it has written."""
        raise NotImplementedError(f"{self._writer.path}: asyncrec does not delete data sets; delete the files by hand")

    async def purge(self) -> None:
        """Raise NotImplementedError, like `drop`."""
        await self.drop()

    def _key_of(self, item: Mapping[str, Any]) -> str | bytes | None:
        if self._key is None:
            return None
        found = self._key(item) if callable(self._key) else item.get(self._key)
        return found if found is None or isinstance(found, str | bytes) else str(found)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[asyncrec.Dataset | None]:
        await self._writer.commit()
        async with AsyncExitStack() as stack:
            dataset = None
            with suppress(asyncrec.ObjectNotFoundError):  # nothing was ever pushed
                dataset = await stack.enter_async_context(asyncrec.open_dataset(self._writer.path, **self._opening))
            yield dataset


async def _items(
    dataset: asyncrec.Dataset | None, offset: int, limit: int | None, *, desc: bool, skip_empty: bool
) -> AsyncIterator[dict[str, Any]]:
    if dataset is None:
        return
    total = len(dataset)
    numbers = range(offset, total if limit is None else min(total, offset + limit))
    if desc:
        numbers = range(total - 1 - offset, max(-1, total - 1 - offset - len(numbers)), -1)
    schema = dataset.schema
    for begin in range(0, len(numbers), _TOGETHER):
        for record in await dataset.get_many(numbers[begin : begin + _TOGETHER]):
            item = item_of(record) if schema is None else schema.decode(record)
            if item or not skip_empty:
                yield item


def _warn(**given: Any) -> None:
    if unsupported := [name for name, value in given.items() if value]:
        _log.warning("%s is not supported and is ignored", ", ".join(unsupported), extra={"arguments": unsupported})
