"""What is counted as stored was stored, and as known was there, also of pages that are taken at the same time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

from asyncrec_scrapy._store import Store
from scrapy.settings import Settings
from scrapy.signalmanager import SignalManager
from scrapy.statscollectors import MemoryStatsCollector


def test_a_record_is_counted_as_what_it_was_whatever_else_is_written_while_it_waits(tmp_path: Path) -> None:
    async def crawl() -> dict[str, int]:
        settings = Settings({"ASYNCREC_ITEMS": str(tmp_path / "items"), "ASYNCREC_ITEM_KEY": "key"})
        settings["ASYNCREC_OPTIONS"] = {"compression": ""}
        crawler = SimpleNamespace(settings=settings, signals=SignalManager(), engine=None, spider=None)
        crawler.stats = MemoryStatsCollector(SimpleNamespace(settings=settings))  # type: ignore[arg-type]  # all it takes
        store = Store(crawler)
        await store._open()
        await store.write("items", b"first", "a")
        # A large record is checksummed in a thread; meanwhile one that is known comes.
        large = asyncio.ensure_future(store.write("items", bytes(8 << 20), "b"))
        await asyncio.sleep(0)
        await store.write("items", b"again", "a")
        await large
        await store._close()
        return {name: number for name, number in crawler.stats.get_stats().items() if isinstance(number, int)}

    counts = asyncio.run(crawl())
    assert (counts["asyncrec/items/stored"], counts["asyncrec/items/known"]) == (2, 1)
    assert counts["asyncrec/items/committed"] == 2
