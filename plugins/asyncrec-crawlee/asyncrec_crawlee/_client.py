"""`AsyncrecStorageClient` is a client whose datasets are asyncrec data sets. Another client provides other storages.

The task that enters a context must also exit it, but Crawlee opens datasets from many tasks. So each writer has its own
task, which keeps the writer open until the client's context exits.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Hashable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

import anyio
from crawlee.configuration import Configuration
from crawlee.storage_clients import FileSystemStorageClient, StorageClient
from crawlee.storage_clients._base import KeyValueStoreClient, RequestQueueClient

import asyncrec
from asyncrec.pages import PAGE, page_key

from ._dataset import AsyncrecDatasetClient, Key

_SHARD_BYTES = 64 << 20
# The name of Crawlee's unnamed dataset, also in ``schemas`` and ``keys``.
_DEFAULT = "default"
# The options that apply to opening a path both for writing and for reading.
_OPENING = ("storage", "storage_options")


class AsyncrecStorageClient(StorageClient):
    """A storage client whose datasets are asyncrec data sets in one folder. Enter it around ``crawler.run()``.

    When a dataset is opened, records of killed processes are recovered.

    Args:
        folder: the folder of the data sets, a local path or a URL. The unnamed dataset has the name ``default``.
        schemas: the schemas of the datasets, by name. For pages, use `asyncrec.pages.PAGE`. Without a schema, items may
            have any fields.
        keys: for each dataset, by name, the field that identifies an item, or a function that returns an item's key.
            Items whose key was stored in this run or an earlier one are discarded. By default, the key of a page is its
            `page_key`.
        others: the client for request queues and key-value stores; by default, Crawlee's file-based client.
        options: options of `asyncrec.open_sharded_writer`, such as ``compression`` or, if ``folder`` is in a store,
            ``spool``, in which each dataset has a folder of its name.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        schemas: Mapping[str, asyncrec.Schema] | None = None,
        keys: Mapping[str, Key] | None = None,
        others: StorageClient | None = None,
        **options: Any,
    ) -> None:
        self._folder = os.fspath(folder).rstrip("/")
        self._schemas = dict(schemas or {})
        self._keys = dict(keys or {})
        self._others = others if others is not None else FileSystemStorageClient()
        self._options = {"max_shard_bytes": _SHARD_BYTES, "compression": "GZIP", **options}
        self._open: dict[str, _OpenWriter] = {}
        self._opening = asyncio.Lock()  # so that concurrent calls for a dataset return the same client
        self._entered = False
        self._identity = object()  # distinguishes this client's writers from those of other clients

    async def __aenter__(self) -> AsyncrecStorageClient:
        self._entered = True
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Commit all datasets. Records that cannot be committed remain on disk for `asyncrec.recover`."""
        self._entered = False
        opened = list(self._open.values())
        for each in opened:
            each.end()
        try:
            for each in opened:
                await each.wait()
        except asyncio.CancelledError:
            for each in opened:
                each.cancel()
            with anyio.CancelScope(shield=True):
                for each in opened:
                    await each.wait()
            raise
        failures = [failure for each in opened if (failure := each.failure()) is not None]
        if not failures:
            return
        raised = failures.pop(0) if exc is None else exc
        for failure in failures:
            raised.add_note(f"in addition, a dataset could not be committed: {failure}")
        if exc is None:
            raise raised

    def get_storage_client_cache_key(self, configuration: Configuration) -> Hashable:
        """Return a key for Crawlee's cache, unique to this client."""
        return super().get_storage_client_cache_key(configuration), self._folder, self._identity

    async def create_dataset_client(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> AsyncrecDatasetClient:
        """Open a data set. An existing data set is never purged.

        Raises:
            RuntimeError: the client's context has not been entered.
            ValueError: flushed records would not survive this process, as in a store with ``flush_seconds=None``.
        """
        dataset = id or name or (alias if alias and alias != "__default__" else _DEFAULT)
        async with self._opening:
            if not self._entered:
                raise RuntimeError(
                    "AsyncrecStorageClient must be entered before use: run the crawler inside `async with "
                    "AsyncrecStorageClient(...)`"
                )
            if dataset not in self._open:
                named = alias is None and dataset != _DEFAULT
                await self._begin(dataset, name=dataset if named else None)
            return self._open[dataset].client

    async def _begin(self, dataset: str, *, name: str | None) -> None:
        schema = self._schemas.get(dataset)
        key = self._keys.get(dataset, page_key if schema == PAGE else None)
        options = {"schema": schema, "on_duplicate": "write" if key is None else "skip", **self._options}
        if spool := options.get("spool"):
            options["spool"] = os.path.join(spool, dataset)  # a spool belongs to one writer
        opened = self._open[dataset] = _OpenWriter(f"{self._folder}/{dataset}", options)
        try:
            writer, before = await opened.begin()
        except BaseException:
            del self._open[dataset]
            raise
        opening = {option: value for option, value in options.items() if option in _OPENING}
        opened.client = AsyncrecDatasetClient(
            writer,
            dataset=dataset,
            name=name,
            key=key,
            before=before,
            opening=opening,
        )

    async def create_kvs_client(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> KeyValueStoreClient:
        """Open a key-value store through the other client."""
        return await self._others.create_kvs_client(id=id, name=name, alias=alias, configuration=configuration)

    async def create_rq_client(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        alias: str | None = None,
        configuration: Configuration | None = None,
    ) -> RequestQueueClient:
        """Open a request queue through the other client."""
        return await self._others.create_rq_client(id=id, name=name, alias=alias, configuration=configuration)


class _OpenWriter:
    """A writer, and the task that enters and exits its context.

    Attributes:
        client: the dataset client that uses the writer.
    """

    client: AsyncrecDatasetClient

    def __init__(self, path: str, options: Mapping[str, Any]) -> None:
        self._path = path
        self._options = options
        self._ending = asyncio.Event()

    async def begin(self) -> tuple[asyncrec.ShardedWriter, int]:
        """Open the writer. Return the writer and the number of records already in the data set."""
        opened: asyncio.Future[tuple[asyncrec.ShardedWriter, int]] = asyncio.get_running_loop().create_future()
        self._task = asyncio.get_running_loop().create_task(self._own(opened))

        def tell(task: asyncio.Task[None]) -> None:
            if not opened.done():
                opened.set_exception(_failure(task))

        self._task.add_done_callback(tell)
        try:
            return await opened
        except BaseException:
            self._ending.set()
            await asyncio.wait({self._task})
            raise

    def end(self) -> None:
        """Request that the task commit all records and exit the context."""
        self._ending.set()

    def cancel(self) -> None:
        self._task.cancel()

    async def wait(self) -> None:
        """Wait until the task has ended, even with an error."""
        await asyncio.wait({self._task})

    def failure(self) -> Exception | None:
        """Return the error of the ended task, or `None` if the task succeeded."""
        failure = self._task.exception()
        if failure is not None and not isinstance(failure, Exception):
            raise failure
        return failure

    async def _own(self, opened: asyncio.Future[tuple[asyncrec.ShardedWriter, int]]) -> None:
        opening = {option: value for option, value in self._options.items() if option in _OPENING}
        before = 0
        with suppress(asyncrec.ObjectNotFoundError):  # the first run
            await asyncrec.recover(self._path, **opening)
        async with asyncrec.open_sharded_writer(self._path, **self._options) as writer:
            await writer.flush(require="spooled")  # raises if flushed records would not survive the process
            with suppress(asyncrec.ObjectNotFoundError):  # the first run
                # The records are counted now, because the writer may have committed more from its spool.
                before = (await asyncrec.read_manifest(self._path, **opening)).records
            if not opened.done():  # otherwise, the caller was cancelled
                opened.set_result((writer, before))
            await self._ending.wait()


def _failure(task: asyncio.Task[None]) -> BaseException:
    """Return the error of a task that ended before opening its writer."""
    return asyncio.CancelledError() if task.cancelled() else task.exception() or RuntimeError("the context ended early")
