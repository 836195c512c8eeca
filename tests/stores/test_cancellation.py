"""Cancel writes and reads at every await: no tasks, files, connections or unfinished uploads may remain."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from places import Place

import asyncrec
from asyncrec.storage._base import Storage
from asyncrec.testing._cancellation import cancel_at_every_checkpoint
from asyncrec.testing._checks import content

pytestmark = pytest.mark.anyio

OPTIONS: dict[str, Any] = {"max_shard_records": 3, "on_error": "discard"}


def tasks() -> int:
    """Return the number of tasks of this event loop."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        import trio

        todo, count = [trio.lowlevel.current_root_task()], 0
        while todo:
            task = todo.pop()
            if task is not None:
                count += 1
                todo += [child for nursery in task.child_nurseries for child in nursery.child_tasks]
        return count


def open_files(below: Path) -> list[str]:
    """Return the files below a folder that this process has open."""
    targets = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor of listdir itself
            targets.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [target for target in targets if target.startswith(str(below))]


def bridges() -> int:
    return sum("bridge" in thread.name for thread in threading.enumerate())


async def write(storage: Storage, path: str, records: list[bytes], **options: Any) -> None:
    async with asyncrec.open_sharded_writer(path, storage=storage, **(OPTIONS | options)) as writer:
        for number, record in enumerate(records):
            await writer.write(record, key=f"{number}")


async def read(storage: Storage, path: str, records: list[bytes]) -> None:
    manifest = await asyncrec.read_manifest(path, storage=storage)
    found = []
    async with asyncrec.open_reader(manifest.shards[0].path, storage=storage) as reader:
        async for record in reader:
            found.append(record)
    async with asyncrec.open_dataset(manifest, storage=storage) as dataset:
        assert await dataset.get_many(range(len(records))) == records
    assert found == records[:3]


async def whole(storage: Storage, path: str, records: list[bytes]) -> None:
    """Check that the shards in the manifest exist, and that their records are the first of ``records``, in order."""
    try:
        manifest = await asyncrec.read_manifest(path, storage=storage)
    except asyncrec.ObjectNotFoundError:
        return
    shards = await asyncrec.list_shards(manifest)
    found = [record for shard in shards for record in await asyncrec.read_records(shard, storage=storage)]
    assert found == records[: len(found)]
    assert len(found) == manifest.records


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds: the servers run in threads, and are slow to notice that a connection is closed."""
    with anyio.fail_after(10):
        while not condition():  # noqa: ASYNC110  # another thread makes it true
            await anyio.sleep(0.002)


class TestStores:
    """Cancellation of requests to stores over HTTP."""

    @pytest.mark.slow
    async def test_write_cancelled_at_any_await_leaves_nothing_behind(self, place: Place) -> None:
        records = [content(30, n) for n in range(5)] + [content(place.chunk + 9, 5)]
        async with place.open() as storage:
            await write(storage, "warm", records)
            before = tasks(), bridges()
            path = ""

            async def job() -> None:
                nonlocal path
                path = f"k{place.requests}/pages"
                await write(storage, path, records)

            async def nothing_left() -> None:
                await until(lambda: place.busy == 0)
                assert (tasks(), bridges()) == before
                assert await anyio.to_thread.run_sync(place.unfinished) == []
                await whole(storage, path, records)

            assert await cancel_at_every_checkpoint(job, after=nothing_left) > 5
        await until(lambda: place.connections == 0)

    @pytest.mark.slow
    @pytest.mark.parametrize("on_error", ["discard", "commit"])
    async def test_write_cancelled_at_any_request_leaves_nothing_behind(self, place: Place, on_error: str) -> None:
        """Cancel while the shards' own tasks wait for the store. With ``on_error="commit"``, all accepted records are
        still committed."""
        records = [content(30, n) for n in range(5)] + [content(place.chunk + 9, 5)]
        token = anyio.lowlevel.current_token()
        async with place.open() as storage:
            await write(storage, "warm", records)
            before, count = (tasks(), bridges()), place.requests
            for k in range(count):
                place.calm()
                scope = anyio.CancelScope()
                place.when(k, partial(anyio.from_thread.run_sync, scope.cancel, token=token))
                with scope:
                    await write(storage, f"k{k}/pages", records, on_error=on_error)
                await until(lambda: place.busy == 0)
                place.calm()
                assert (tasks(), bridges()) == before
                assert await anyio.to_thread.run_sync(place.unfinished) == []
                await whole(storage, f"k{k}/pages", records)
                if k > 2 and on_error == "commit":
                    manifest = await asyncrec.read_manifest(f"k{k}/pages", storage=storage)
                    assert manifest.records == len(records)
        assert count > 8
        await until(lambda: place.connections == 0)

    @pytest.mark.slow(but=["asyncio-gcs"])
    async def test_read_cancelled_at_any_await_leaves_nothing_behind(self, place: Place) -> None:
        records = [content(30, n) for n in range(5)] + [content(place.chunk + 9, 5)]
        async with place.open() as storage:
            await write(storage, "pages", records)
            await read(storage, "pages", records)
            before = tasks(), bridges()

            async def nothing_left() -> None:
                await until(lambda: place.busy == 0)
                assert (tasks(), bridges()) == before

            assert await cancel_at_every_checkpoint(partial(read, storage, "pages", records), after=nothing_left) > 5
        await until(lambda: place.connections == 0)

    @pytest.mark.slow(but=["asyncio-gcs", "trio-gcs"])
    async def test_opening_cancelled_at_any_await_leaves_nothing_behind(self, place: Place) -> None:
        """Check the client, the bridge's thread and the connections."""
        async with place.open() as storage:
            await storage.put("x", b"x")
        await until(lambda: place.connections == 0)
        before = tasks(), bridges()

        async def job() -> None:
            async with place.open() as storage:
                assert await storage.get("x") == b"x"

        async def nothing_left() -> None:
            await until(lambda: place.connections == 0)
            assert (tasks(), bridges()) == before

        assert await cancel_at_every_checkpoint(job, after=nothing_left) > 3


@pytest.mark.parametrize(
    ("anyio_backend", "url"), [("asyncio", "file://{}"), ("trio", "file://{}"), ("asyncio", "file+aiofiles://{}")]
)
class TestFiles:
    """Cancellation of work on a disk, where no file descriptors or unfinished files may remain."""

    def opened(self, url: str, folder: Path) -> AbstractAsyncContextManager[Storage]:
        return asyncrec.open_storage(url.format(folder))

    @pytest.mark.slow
    async def test_write_cancelled_at_any_await_leaves_nothing_behind(self, url: str, tmp_path: Path) -> None:
        records = [content(30, n) for n in range(6)]
        async with self.opened(url, tmp_path) as storage:
            await write(storage, "warm/pages", records)
            before = tasks()
            run = 0

            async def job() -> None:
                nonlocal run
                run += 1
                await write(storage, f"k{run}/pages", records)

            async def nothing_left() -> None:
                assert (tasks(), open_files(tmp_path)) == (before, [])
                assert [path for path in tmp_path.rglob("*") if path.name.endswith(".partial")] == []
                await whole(storage, f"k{run}/pages", records)

            assert await cancel_at_every_checkpoint(job, after=nothing_left) > 5

    async def test_read_cancelled_at_any_await_leaves_nothing_behind(self, url: str, tmp_path: Path) -> None:
        records = [content(30, n) for n in range(6)]
        async with self.opened(url, tmp_path) as storage:
            await write(storage, "pages", records)
            await read(storage, "pages", records)
            before = tasks()

            async def nothing_left() -> None:
                assert (tasks(), open_files(tmp_path)) == (before, [])

            assert await cancel_at_every_checkpoint(partial(read, storage, "pages", records), after=nothing_left) > 5
