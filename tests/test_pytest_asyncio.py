"""asyncrec works under pytest-asyncio, without anyio's pytest plugin. Nothing here uses tests/conftest.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

import asyncrec


@pytest_asyncio.fixture
async def pages(tmp_path: Path) -> Path:
    """Write a data set in a fixture, so that one task both opens and closes its writer."""
    async with asyncrec.open_sharded_writer(tmp_path / "pages", max_shard_records=4) as writer:
        for n in range(10):
            await writer.write(b"page %d" % n)
    return tmp_path / "pages"


@asynccontextmanager
async def crawl(folder: Path) -> AsyncIterator[asyncrec.ShardedWriter]:
    """Write with several tasks inside a user's own context manager."""
    async with asyncrec.open_sharded_writer(folder) as writer, asyncio.TaskGroup() as tasks:
        for n in range(20):
            tasks.create_task(writer.write(b"%d" % n))
        yield writer


@pytest.mark.asyncio
async def test_fixture_writes_what_test_reads(pages: Path) -> None:
    manifest = await asyncrec.read_manifest(pages)
    assert (manifest.records, len(manifest.shards)) == (10, 3)
    async with asyncrec.open_dataset(pages) as dataset:
        assert await dataset.get_many([9, 0]) == [b"page 9", b"page 0"]


@pytest.mark.asyncio
async def test_asyncio_tasks_share_one_writer(tmp_path: Path) -> None:
    async with crawl(tmp_path / "pages") as writer:
        await asyncio.gather(*(writer.write(b"%d" % n) for n in range(20, 40)))
        await writer.flush()
    assert (await asyncrec.read_manifest(tmp_path / "pages")).records == 40


@pytest.mark.asyncio
async def test_asyncio_timeout_keeps_written_records(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(None) as timeout:
            async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
                await writer.write(b"page")
                timeout.reschedule(0)
                await asyncio.Event().wait()
    assert (await asyncrec.read_manifest(tmp_path / "pages")).records == 1


@pytest.mark.asyncio
async def test_cancelled_task_commits_and_stays_cancelled(tmp_path: Path) -> None:
    written = asyncio.Event()

    async def work() -> None:
        async with asyncrec.open_sharded_writer(tmp_path / "pages") as writer:
            await writer.write(b"page")
            written.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    await written.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await asyncrec.read_manifest(tmp_path / "pages")).records == 1


def test_synchronous_test_uses_blocking_api(tmp_path: Path) -> None:
    with asyncrec.blocking.open_writer(tmp_path / "page.tfrecord") as writer:
        writer.write(b"page")
    assert [*asyncrec.blocking.read_records(tmp_path / "page.tfrecord")] == [b"page"]
