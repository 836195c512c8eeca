"""Objects are not deleted if another process just committed them, or if they are promised or belong elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import AsyncRecError, IntegrityError, StorageError, TransientStorageError
from asyncrec.storage import ByteSink, MemoryStorage, Storage
from asyncrec.testing import virtual_backend

from .met_storage import MetStorage

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", [virtual_backend("asyncio")])]


async def write(storage: Storage, path: str, records: list[bytes], **options: Any) -> None:
    async with asyncrec.open_sharded_writer(path, storage=storage, **options) as writer:
        await writer.write_many(records)


async def adopt(storage: Storage) -> None:
    await tools.verify("pages", adopt=True, min_age=-60, storage=storage)


async def take_marks_away(storage: Storage) -> None:
    for key in [info.key async for info in storage.list_objects("_manifest/")]:
        if key.endswith("-000000.jsonl"):
            await storage.delete(key)


async def test_verify_keeps_shard_committed_during_deletion() -> None:
    """While one `verify` deletes the shard, another one adopts it, just before each of the requests in turn."""

    async def race(step: int) -> tuple[MetStorage, bool]:
        storage = MemoryStorage()
        await write(storage, "pages", [b"1"])
        await asyncrec.write_records("pages-w-000000.tfrecord", [b"2"], storage=storage)
        committing, committed, go = anyio.Event(), anyio.Event(), anyio.Event()

        async def hold(operation: str, key: str) -> None:
            if operation == "publish":
                committing.set()
                await go.wait()

        async def adopt_late() -> None:
            with suppress(AsyncRecError):  # the other `verify` ended the job first
                await adopt(MetStorage(storage, before=hold))
            committed.set()

        async def meet(operation: str, key: str) -> None:
            if len(deleting.operations) + 1 == step:
                go.set()
                await committed.wait()

        deleting = MetStorage(storage, before=meet)
        async with anyio.create_task_group() as group:
            group.start_soon(adopt_late)
            await committing.wait()
            await tools.verify("pages", delete=True, min_age=-60, storage=deleting)
            go.set()
        found = await tools.verify("pages", min_age=-60, storage=storage)
        assert found.ok, step
        return deleting, found.records == 2

    alone, _ = await race(0)
    first = next(at for at, (what, _) in enumerate(alone.operations, 1) if what == "publish")
    last = next(at for at, (what, _) in enumerate(alone.operations, 1) if what == "delete")
    assert {(await race(step))[1] for step in range(first, last + 1)} == {True, False}


class Denying(MetStorage):
    """A store that reports a wrong checksum for each shard."""

    @asynccontextmanager
    async def open_sink(self, key: str, *, exclusive: bool = False) -> AsyncIterator[ByteSink]:
        async with super().open_sink(key, exclusive=exclusive) as sink:
            yield sink
        if key.endswith(".tfrecord"):
            assert sink.published is not None
            sink.published = replace(sink.published, crc32c=(sink.published.crc32c or 0) ^ 1)


async def test_adopted_shard_survives_failure_of_its_writer() -> None:
    """The writer's mark was removed by hand, and `verify --adopt` found the shard intact."""
    storage = MemoryStorage()
    await write(storage, "pages", [b"1"])

    async def meet(operation: str, key: str) -> None:
        if operation == "publish" and key.endswith(".tfrecord"):
            await take_marks_away(storage)
            await adopt(storage)

    with pytest.raises(IntegrityError):
        await write(Denying(storage, after=meet), "pages", [b"2"])
    found = await tools.verify("pages", min_age=-60, storage=storage)
    assert (found.ok, found.records) == (True, 2)


class Failing(MetStorage):
    """A store that goes down as soon as ``when`` returns true, and stays down."""

    def __init__(self, storage: Storage, when: Callable[[str, str], bool] = lambda operation, key: False) -> None:
        super().__init__(storage, before=self._fail)
        self.down, self._when = False, when

    async def _fail(self, operation: str, key: str) -> None:
        self.down = self.down or self._when(operation, key)
        if self.down:
            raise TransientStorageError(f"{operation} {key}: no answer, as asked")


async def test_abandoned_writer_keeps_data_set_with_longer_name() -> None:
    """``train-v2-00000-of-00002`` could be a shard of ``train-v2``, or of ``train`` made by the writer ``v2``."""
    storage = MemoryStorage()
    await write(storage, "train", [b"1"], num_shards=2)
    dying = Failing(storage)
    with pytest.raises(TransientStorageError):
        async with asyncrec.open_sharded_writer(
            "train", storage=dying, num_shards=2, mode="replace", writer_id="v2"
        ) as writer:
            await write(storage, "train-v2", [b"2"], num_shards=2)
            await writer.write(b"3")
            dying.down = True
    recovered = await asyncrec.recover("train", storage=storage)
    assert recovered.abandoned == ("v2",)
    for path, record in ("train", b"1"), ("train-v2", b"2"):
        assert (await tools.verify(path, storage=storage)).ok
        async with asyncrec.open_dataset(path, storage=storage) as dataset:
            assert [each async for each in dataset] == [record]


async def test_acknowledged_fixed_shards_survive_failed_exit(tmp_path: Path) -> None:
    path, records = tmp_path / "pages", [b"%d" % number for number in range(10)]
    with pytest.raises((StorageError, OSError)):
        async with asyncrec.open_sharded_writer(path, num_shards=2) as writer:
            await writer.write_many(records)
            assert await writer.flush() == "spooled"
            in_the_way = tmp_path / "_manifest"
            away = in_the_way.rename(tmp_path / "_away")
            in_the_way.write_bytes(b"no folder, so nothing can be committed")
    in_the_way.unlink()
    away.rename(in_the_way)
    await asyncrec.recover(path)
    async with asyncrec.open_dataset(path) as dataset:
        assert sorted([record async for record in dataset]) == records
