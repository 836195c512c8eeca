"""Crawlee's datasets on asyncrec: pushed items are on disk, are read back unchanged, and are never purged."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest
from asyncrec_crawlee import AsyncrecStorageClient
from crawlee.configuration import Configuration
from crawlee.storage_clients import MemoryStorageClient
from crawlee.storages import Dataset, KeyValueStore, RequestQueue

import asyncrec
from asyncrec import pages
from asyncrec.errors import SchemaError

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # Crawlee supports only asyncio


def client(folder: Path | str, **options: Any) -> AsyncrecStorageClient:
    return AsyncrecStorageClient(folder, others=MemoryStorageClient(), **options)


ITEMS: list[dict[str, Any]] = [
    {"url": f"https://example.org/{number}", "price": 99.99, "tags": ["a"], "no": None, "deep": {"x": [number]}}
    for number in range(7)
]


async def test_dataset_reads_pushed_items_back_during_crawl(tmp_path: Path) -> None:
    async with client(tmp_path) as storage:
        dataset = await Dataset.open(storage_client=storage)
        assert (await dataset.get_data()).items == []
        await dataset.push_data(ITEMS[0])
        await dataset.push_data(ITEMS[1:])
        assert (await dataset.get_metadata()).item_count == 7
        assert list((await dataset.get_data()).items) == ITEMS
        page = await dataset.get_data(offset=2, limit=3, desc=True)
        assert (page.total, page.count, list(page.items)) == (7, 3, ITEMS[4:1:-1])
        assert [item async for item in dataset.iterate_items(offset=5)] == ITEMS[5:]
        await dataset.export_to("all.json", content_type="json", to_kvs_storage_client=storage)
    assert (await asyncrec.read_manifest(tmp_path / "default")).records == 7


async def test_item_pages_match_list_slices(tmp_path: Path) -> None:
    async with client(tmp_path) as storage:
        data = await storage.create_dataset_client(name="items")
        await data.push_data(ITEMS)
        for desc in (False, True):
            whole = ITEMS[::-1] if desc else ITEMS
            for offset in (0, 1, 6, 7, 9):
                for limit in (None, 1, 3, 7, 20):
                    page = await data.get_data(offset=offset, limit=limit, desc=desc)
                    assert list(page.items) == whole[offset:][:limit], (desc, offset, limit)
                    assert (page.total, page.count) == (7, len(whole[offset:][:limit]))


async def test_metadata_reports_dataset_modification_time(tmp_path: Path) -> None:
    async with client(tmp_path) as storage:
        data = await storage.create_dataset_client(name="items")
        before = await data.get_metadata()
        assert before.created_at == before.modified_at <= before.accessed_at
        await data.push_data(ITEMS)
        after = await data.get_metadata()
    assert after.created_at == before.created_at
    assert after.modified_at > before.modified_at
    assert (before.name, before.item_count, after.item_count) == ("items", 0, 7)


async def test_key_may_be_number_or_missing(tmp_path: Path) -> None:
    items = [{"id": 7}, {"id": 7}, {"id": "7"}, {"other": 1}, {"other": 2}, {"id": b"7"}]
    async with client(tmp_path, keys={"items": "id"}) as storage:
        data = await storage.create_dataset_client(name="items")
        await data.push_data(items)
        assert list((await data.get_data()).items) == [{"id": 7}, {"other": 1}, {"other": 2}]


async def test_push_data_flushes_items_before_returning(tmp_path: Path) -> None:
    async with client(tmp_path) as storage:
        data = await storage.create_dataset_client(name="items")
        before = asyncrec.stats.writer_totals().buffered_bytes
        await data.push_data(ITEMS)
        assert asyncrec.stats.writer_totals().buffered_bytes == before


async def test_second_run_continues_dataset_without_purging(tmp_path: Path) -> None:
    configuration = Configuration(purge_on_start=True)
    for _ in range(2):
        async with client(tmp_path, keys={"default": "url"}) as storage:
            dataset = await Dataset.open(storage_client=storage, configuration=configuration)
            await dataset.push_data(ITEMS)
            assert (await dataset.get_data()).total == 7
            with pytest.raises(NotImplementedError, match="by hand"):
                await dataset.purge()
            with pytest.raises(NotImplementedError, match="by hand"):
                await dataset.drop()


async def test_pages_are_checked_against_schema_and_deduplicated(tmp_path: Path) -> None:
    page = pages.page("https://example.org/1", b"<html>", status=200)
    async with client(tmp_path, schemas={"default": pages.PAGE}) as storage:
        dataset = await Dataset.open(storage_client=storage)
        await dataset.push_data(page)
        await dataset.push_data([page, {**page, "url": "https://example.org/2"}])
        found = (await dataset.get_data()).items
        assert [each["url"] for each in found] == ["https://example.org/1", "https://example.org/2"]
        assert found[0]["content"] == b"<html>"
        await dataset.push_data({**page, "url": "https://example.org/4", "status": 503})
        assert (await dataset.get_data()).total == 2
        with pytest.raises(SchemaError, match="status"):
            await dataset.push_data({**page, "url": "https://example.org/3", "status": "two hundred"})
    async with asyncrec.open_dataset(tmp_path / "default") as stored:
        assert stored.schema == pages.PAGE
        assert pages.PAGE.decode(await stored.get_by_key("https://example.org/2"))["status"] == 200


async def test_queues_and_key_value_stores_use_fallback_client(tmp_path: Path) -> None:
    async with client(tmp_path) as storage:
        queue = await RequestQueue.open(storage_client=storage)
        await queue.add_request("https://example.org/1")
        values = await KeyValueStore.open(storage_client=storage)
        await values.set_value("a", 1)
        assert await values.get_value("a") == 1
    assert list(tmp_path.iterdir()) == []


async def test_client_rejects_remote_store_without_flush_interval(tmp_path: Path) -> None:
    async with client(f"memory://{tmp_path.name}", flush_seconds=None) as storage:
        with pytest.raises(ValueError, match="local disk"):
            await storage.create_dataset_client()
    async with client(f"memory://{tmp_path.name}/flushed") as storage:
        data = await storage.create_dataset_client()
        await data.push_data(ITEMS)
        assert (await data.get_data()).total == 7
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as store:
        async with client("crawl", storage=store, spool=tmp_path / "spool") as storage:
            data = await storage.create_dataset_client()
            await data.push_data(ITEMS)
            assert (await data.get_data()).total == 7
        assert (await asyncrec.read_manifest("crawl/default", storage=store)).records == 7


async def test_datasets_of_client_share_spool_folder(tmp_path: Path) -> None:
    async with client(tmp_path / "crawl", spool=tmp_path / "spool") as storage:
        for name in ("a", "b"):
            data = await storage.create_dataset_client(name=name)
            await data.push_data(ITEMS)
    for name in ("a", "b"):
        assert (await asyncrec.read_manifest(tmp_path / "crawl" / name)).records == 7


async def test_item_count_includes_items_left_in_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with asyncrec.open_storage(f"memory://{tmp_path.name}") as store:
        options: dict[str, Any] = {"storage": store, "spool": tmp_path / "spool", "keys": {"default": "url"}}

        open_sink = store.open_sink

        def fail_for_shards(key: str, **exclusive: bool) -> Any:
            if ".tfrecord" in key:
                raise OSError("no more")
            return open_sink(key, **exclusive)

        async def counts(items: list[dict[str, Any]]) -> tuple[int, int]:
            async with client("crawl", **options) as storage:
                data = await storage.create_dataset_client()
                before = (await data.get_metadata()).item_count
                await data.push_data(items)
                return before, (await data.get_metadata()).item_count

        with monkeypatch.context() as patch:
            patch.setattr(store, "open_sink", fail_for_shards)
            with pytest.raises(OSError, match="no more"):
                await counts(ITEMS[:5])
        assert await counts(ITEMS) == (5, 7)
        assert await counts(ITEMS[:2]) == (7, 7)


async def test_client_requires_context_and_cleans_up_failed_open(tmp_path: Path) -> None:
    storage = client(tmp_path, compression="BZIP")
    with pytest.raises(RuntimeError, match="async with"):
        await storage.create_dataset_client()
    async with storage:
        with pytest.raises(ValueError, match="BZIP"):
            await storage.create_dataset_client()
    assert list(tmp_path.iterdir()) == []


async def test_disk_error_reaches_push_data_and_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="no more"):
        async with client(tmp_path) as storage:
            data = await storage.create_dataset_client()

            async def fail(*_: Any, **__: Any) -> int:
                raise OSError("no more")

            monkeypatch.setattr(asyncrec.ShardedWriter, "write", fail)
            await data.push_data(ITEMS)


async def test_concurrent_opens_of_dataset_share_one_client(tmp_path: Path) -> None:
    async with client(tmp_path) as storage:
        first, second = await asyncio.gather(storage.create_dataset_client(), storage.create_dataset_client())
        assert first is second


async def test_cancelled_commit_leaves_no_task_running(tmp_path: Path) -> None:
    """The pushed items are on disk, where the next run finds them."""
    before = asyncio.all_tasks()
    with anyio.CancelScope() as scope:
        async with client(tmp_path) as storage:
            for name in ("a", "b"):
                data = await storage.create_dataset_client(name=name)
                await data.push_data(ITEMS)
            scope.cancel()
    assert asyncio.all_tasks() == before
    for name in ("a", "b"):
        await asyncrec.recover(tmp_path / name)
        assert (await asyncrec.read_manifest(tmp_path / name)).records == 7
