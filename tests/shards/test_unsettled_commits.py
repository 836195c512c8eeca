"""With a spool, a commit is retried until its outcome is known, and never after that."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec._framing.compression import parse_compression
from asyncrec._shards.commit.manifest_writer import ManifestWriter
from asyncrec._shards.manifest.segment import ShardEntry, format_time
from asyncrec._shards.writing.ordered_writer import KeyedBatch, Limits, write_ordered
from asyncrec.errors import ConflictError, StorageError, TransientStorageError, UnsettledError
from asyncrec.storage._base import Buffer, ObjectInfo, Storage
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing._faults import Call, T, _Around

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


class Dark(_Around):
    """A store that creates the first segment but responds to no request for it for some minutes."""

    def __init__(self, storage: Storage) -> None:
        super().__init__(storage)
        self.until = math.inf

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        if not key.endswith("-000001.jsonl") or operation not in ("publish", "open_source"):
            return await call()
        if operation == "publish" and self.until == math.inf:
            await call()
            self.until = anyio.current_time() + 300
        if anyio.current_time() < self.until:
            raise TransientStorageError(f"{operation} {key}: no answer, as asked")
        return await call()


async def write(storage: Storage, spool: Path, **options: Any) -> None:
    async with asyncrec.open_sharded_writer(
        "pages", storage=storage, spool=spool, max_shard_records=2, **options
    ) as writer:
        for number in range(6):
            await writer.write(b"record %d" % number)
        await writer.commit()


async def test_writer_leaves_no_mark_after_eventual_full_commit(tmp_path: Path) -> None:
    storage = MemoryStorage()
    store = Dark(storage)
    await write(store, tmp_path)
    assert store.until < math.inf
    assert (await asyncrec.read_manifest("pages", storage=storage)).records == 6
    assert [info.key async for info in storage.list_objects("_manifest/") if info.key.endswith("-000000.jsonl")] == []
    assert [path.name for path in tmp_path.rglob("*") if path.name.endswith(".partial")] == []


async def test_on_commit_error_ends_writer_without_upload_retry(tmp_path: Path) -> None:
    storage = MemoryStorage()
    calls: list[str] = []

    async def told(entry: asyncrec.ShardEntry) -> None:
        calls.append(entry.path)
        raise TransientStorageError("of another store")

    with pytest.raises(TransientStorageError, match="of another store"):
        await write(storage, tmp_path, on_commit=told)
    assert len(calls) == len(set(calls)) == 1
    await asyncrec.recover(tmp_path, to="pages", storage=storage)
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    assert (manifest.records, manifest.conflicts) == (6, ())
    assert [path.name for path in tmp_path.rglob("*") if "pages" in path.name] == []


class Silent(_Around):
    """A store that accepts the segment of a commit but never responds to a request for it."""

    silent = True

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        if not (self.silent and key.endswith("-000001.jsonl") and operation in ("publish", "open_source")):
            return await call()
        if operation == "publish":
            await call()
        raise TransientStorageError(f"{operation} {key}: no answer, as asked")


async def test_shards_of_unsettled_job_are_kept() -> None:
    """The shards may already be part of the data set, as they are here."""

    async def batches() -> AsyncIterator[KeyedBatch]:
        yield KeyedBatch([b"record %d" % number for number in range(6)])

    storage = Silent(MemoryStorage())
    with pytest.raises(StorageError, match="as asked"):
        await write_ordered(
            storage,
            "pages",
            batches(),
            limits=Limits(max_records=2),
            compression=parse_compression(""),
            schema=None,
            metadata={},
        )
    storage.silent = False
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert await dataset.get_many(range(6)) == [b"record %d" % number for number in range(6)]


def shard(path: str) -> ShardEntry:
    return ShardEntry(path=path, records=1, bytes=17, crc32c=0, end_crc32c=0, compression="", committed=format_time(0))


async def unsettled_close(storage: Silent) -> ManifestWriter:
    """Return a manifest writer whose last commit, of two shards, took effect, although the writer does not know it."""
    writer = ManifestWriter(storage, "pages", "w", promised=lambda: False)
    with pytest.raises(UnsettledError):
        await writer.close([shard("a"), shard("b")])
    assert writer.unsettled
    return writer


async def test_repeated_last_commit_detects_effective_first_attempt() -> None:
    storage = Silent(MemoryStorage())
    writer = await unsettled_close(storage)
    storage.silent = False
    await writer.close([shard("a"), shard("b")])
    assert (writer.closed, writer.unsettled, writer.records) == (True, False, 2)
    manifest = await asyncrec.read_manifest("pages", storage=storage)
    assert [each.path for each in manifest.shards] == ["a", "b"]


async def test_last_commit_stays_unsettled_while_store_is_unreadable() -> None:
    storage = Silent(MemoryStorage())
    writer = await unsettled_close(storage)
    with pytest.raises(StorageError):
        await writer.close([shard("a"), shard("b")])
    assert writer.unsettled


async def test_differing_retry_of_last_commit_raises_conflict() -> None:
    """The first attempt is therefore not undone."""
    storage = Silent(MemoryStorage())
    writer = await unsettled_close(storage)
    storage.silent = False
    with pytest.raises(ConflictError):
        await writer.close([shard("a")])
    assert writer.closed or writer.unsettled


class Slow(MemoryStorage):
    async def put(self, key: str, data: Buffer, *, exclusive: bool = False) -> ObjectInfo:
        await anyio.sleep(1)
        return await super().put(key, data, exclusive=exclusive)


async def test_shards_finished_during_commit_share_next_segment() -> None:
    storage = Slow()
    writer = ManifestWriter(storage, "pages", "w")
    async with anyio.create_task_group() as group:
        for name in "abcde":
            group.start_soon(writer.commit, shard(name))
    assert [each.path for each in (await asyncrec.read_manifest("pages", storage=storage)).shards] == list("abcde")
    keys = [info.key async for info in storage.list_objects()]
    assert keys == [f"_manifest/pages/w-{number:06d}.jsonl" for number in (1, 2)]


async def test_idle_report_after_end_of_log_is_dropped() -> None:
    """An idle writer reports how far its flush log has come, but it may end at that very moment."""
    storage = Slow()
    writer = ManifestWriter(storage, "pages", "w")
    async with anyio.create_task_group() as group:
        group.start_soon(writer.close, [shard("a")])
        await anyio.sleep(0.5)
        group.start_soon(writer.say)
    assert [info.key async for info in storage.list_objects()] == ["_manifest/pages/w-000001.jsonl"]


async def test_commit_cancelled_before_its_turn_has_no_effect() -> None:
    storage = Slow()
    writer = ManifestWriter(storage, "pages", "w")
    async with anyio.create_task_group() as group:
        group.start_soon(writer.commit, shard("a"))
        await anyio.sleep(0.5)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await writer.commit(shard("b"))
    await writer.commit(shard("c"))
    assert [each.path for each in (await asyncrec.read_manifest("pages", storage=storage)).shards] == ["a", "c"]
    assert (writer.records, writer.unsettled) == (2, False)
