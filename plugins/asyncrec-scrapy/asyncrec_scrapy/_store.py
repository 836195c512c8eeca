"""`Store` manages the data sets of one crawl, which are opened and committed together with its spider.

The task that enters a context must also exit it, but Scrapy calls handlers in many tasks, so one task owns the writers.
If a handler raises an error, Scrapy only logs it and exits with status 0. So an error in the store stops the crawl with
the reason ``asyncrec_failed``, sets ``asyncrec/failed`` in the statistics, and makes the process exit with status 1.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import AsyncExitStack, suppress
from typing import Any
from weakref import WeakKeyDictionary

from scrapy import signals

import asyncrec
from asyncrec.pages import PAGE

_log = logging.getLogger(__name__)
_stores: WeakKeyDictionary[Any, Store] = WeakKeyDictionary()

# The values of ASYNCREC_KNOWN with which pages of earlier runs are not fetched again.
FETCHED_ONCE = ("replay", "skip")
_SHARD_BYTES = 64 << 20
# The options that apply to opening a path for writing, for reading, and for recovery.
_OPENING = ("storage", "storage_options")
# The maximum number of iterations of the event loop between the engine's start signal and its running state.
_MOST_TURNS = 1000
# The reason of a crawl that a failed store has stopped.
_FAILED = "asyncrec_failed"


def store_of(crawler: Any) -> Store:
    """Return a crawler's store. The first call creates it."""
    store = _stores.get(crawler)
    if store is None:
        store = _stores[crawler] = Store(crawler)
    return store


class _Writer:
    """A writer whose `write` returns whether a record was stored."""

    def __init__(self, inner: asyncrec.ShardedWriter) -> None:
        self.inner = inner
        self._last = 0

    async def write(self, record: Any, key: str | bytes | None) -> bool:
        """Write a record. Return whether it was stored; a duplicate is not."""
        ticket = await self.inner.write(record, key=key)
        stored = ticket > self._last  # a duplicate returns the ticket of an earlier write
        self._last = ticket
        return stored


class Store:
    """The data sets of a crawl.

    Attributes:
        known: the pages of earlier runs; `None` in the first run, or if stored pages are not used.
        error: the error that stopped the crawl; `None` if there was none.
    """

    def __init__(self, crawler: Any) -> None:
        settings = crawler.settings
        self._crawler = crawler
        self._paths = {"pages": settings.get("ASYNCREC_PAGES"), "items": settings.get("ASYNCREC_ITEMS")}
        self._key = settings.get("ASYNCREC_ITEM_KEY")
        self._known = settings.get("ASYNCREC_KNOWN", "replay")
        self._options = {"max_shard_bytes": _SHARD_BYTES, "compression": "GZIP", **settings.getdict("ASYNCREC_OPTIONS")}
        self._writers: dict[str, _Writer] = {}
        self._task: asyncio.Task[None] | None = None
        self._opened = asyncio.Event()
        self._end = asyncio.Event()
        self._started = asyncio.Event()
        self.known: asyncrec.Dataset | None = None
        self.error: BaseException | None = None
        crawler.signals.connect(self._open, signals.spider_opened)
        crawler.signals.connect(self._note_start, signals.engine_started)
        crawler.signals.connect(self._close, signals.spider_closed)
        crawler.signals.connect(self._tell, signals.engine_stopped)

    @property
    def ready(self) -> bool:
        """Whether all data sets are open and no error has occurred."""
        return self.error is None and self._opened.is_set()

    async def opened(self) -> bool:
        """Wait until all data sets are open or have failed to open. Return `ready`."""
        await self._opened.wait()
        return self.ready

    async def write(self, name: str, record: Any, key: str | bytes | None) -> None:
        """Write a record to ``"pages"`` or ``"items"``. An error stops the crawl but is not raised."""
        if not self.ready and not await self.opened():
            return
        try:
            stored = await self._writers[name].write(record, key)
        except Exception as error:
            self._failed(error)
        else:
            self.count(f"{name}/stored" if stored else f"{name}/known")

    def has(self, key: str) -> bool:
        """Return whether a page with this key was written in this run or an earlier one."""
        return "pages" in self._writers and self._writers["pages"].inner.has(key)

    def count(self, name: str, number: int = 1) -> None:
        self._crawler.stats.inc_value(f"asyncrec/{name}", number)

    async def _open(self) -> None:
        try:
            self._task = asyncio.get_running_loop().create_task(self._own())
        except RuntimeError:
            self._failed(
                RuntimeError(
                    "asyncrec requires Scrapy's asyncio reactor; set TWISTED_REACTOR to "
                    '"twisted.internet.asyncioreactor.AsyncioSelectorReactor"'
                )
            )
            self._opened.set()
            return
        await self._opened.wait()

    async def _own(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                for name, path in self._paths.items():
                    if path:
                        await self._enter(stack, name, str(path))
                self._opened.set()
                await self._end.wait()
        except BaseException as error:
            self._failed(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self._opened.set()
            for name, writer in self._writers.items():
                stats = writer.inner.stats()
                self._crawler.stats.set_value(f"asyncrec/{name}/committed", stats.committed_records)
                self._crawler.stats.set_value(f"asyncrec/{name}/committed_bytes", stats.committed_bytes)

    async def _enter(self, stack: AsyncExitStack, name: str, path: str) -> None:
        opening = {option: self._options[option] for option in _OPENING if option in self._options}
        own = dict(self._options)
        places: list[tuple[str, str | None]] = [(path, None)]
        if spool := own.get("spool"):
            # A spool belongs to one writer.
            own["spool"] = os.fspath(spool) + ("-items" if name == "items" and self._paths["pages"] else "")
            places.append((own["spool"], path))
        for place, to in places:
            with suppress(asyncrec.ObjectNotFoundError):  # the first run
                if records := (await asyncrec.recover(place, to=to, **opening)).records:
                    self.count(f"{name}/recovered", records)
        by_key = self._known in FETCHED_ONCE if name == "pages" else self._key is not None
        options: dict[str, Any] = {"schema": PAGE, "validate": "none"} if name == "pages" else {}
        options |= {"on_duplicate": "skip" if by_key else "write", **own}
        # The writer is opened first, because it may commit more records that earlier runs left.
        self._writers[name] = _Writer(await stack.enter_async_context(asyncrec.open_sharded_writer(path, **options)))
        if name == "pages" and self._known != "fetch":
            with suppress(asyncrec.ObjectNotFoundError):  # the first run
                self.known = await stack.enter_async_context(asyncrec.open_dataset(path, **opening))

    def _failed(self, error: BaseException) -> None:
        if self.error is not None:
            return
        self.error = error
        self._crawler.stats.set_value("asyncrec/failed", f"{type(error).__name__}: {error}")
        _log.error(
            "asyncrec: the crawled pages could not be stored, so the crawl stops: %s",
            error,
            exc_info=error,
            extra={"spider": self._crawler.spidercls.name},
        )
        engine = self._crawler.engine
        if self._end.is_set() or engine is None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # with a reactor that is not asyncio's
            _stop_without_asyncio(engine, _MOST_TURNS)
            return
        task = loop.create_task(self._stop(engine))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._stopping = task

    async def _stop(self, engine: Any) -> None:
        """Close the spider once the engine is running. Runs in a task, because the engine waits for the failed handler.

        If the spider were closed earlier, the engine would stop without a message.
        """
        await self._started.wait()
        for _ in range(_MOST_TURNS):
            if engine.running:
                break
            await asyncio.sleep(0)
        if hasattr(engine, "close_spider_async"):
            await engine.close_spider_async(reason=_FAILED)
        else:  # before 2.14
            engine.close_spider(self._crawler.spider, _FAILED)

    def _note_start(self) -> None:
        self._started.set()

    async def _close(self) -> None:
        self._end.set()
        if self._task is not None:
            await asyncio.wait({self._task})

    def _tell(self) -> None:
        """Remove the crawler's spider after an error, so that Scrapy's commands exit with status 1."""
        if self.error is not None:
            self._crawler.spider = None


def _stop_without_asyncio(engine: Any, turns: int) -> None:
    """Close the spider once the engine is running, as `Store._stop` does, with a reactor that has no asyncio loop."""
    from twisted.internet import reactor  # the import would install a reactor if Scrapy had not done so
    from twisted.internet.defer import ensureDeferred

    if not engine.running and turns:
        reactor.callLater(0, _stop_without_asyncio, engine, turns - 1)  # type: ignore[arg-type]  # zope's own types
    elif hasattr(engine, "close_spider_async"):
        ensureDeferred(engine.close_spider_async(reason=_FAILED))
    else:  # before 2.14
        engine.close_spider(engine.spider, _FAILED)
