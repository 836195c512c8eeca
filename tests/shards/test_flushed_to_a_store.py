"""A writer without a disk flushes to its store: acknowledged records are found exactly once, however it ends."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import (
    ArgumentValueError,
    ManifestError,
    StorageError,
    StoragePermissionError,
    TransientStorageError,
)
from asyncrec.storage._memory import MemoryStorage
from asyncrec.testing import FlakyStorage

from . import mortal
from .flushing import RECORDS, flush_entries, recovered, stored, write

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("open_shards", [1, 3])
async def test_flushed_records_survive_kill(compression: Any, open_shards: int) -> None:
    storage = MemoryStorage()
    options = {"compression": compression, "open_shards": open_shards, "writer_id": "w"}
    async with mortal.killed(storage, **options) as writer:
        for at in range(0, 100, 10):
            await write(writer, RECORDS[at : at + 10])
            assert await writer.flush() == "spooled"
        await write(writer, [b"not flushed"])
    assert await flush_entries(storage) != []
    assert await recovered(storage) == RECORDS
    assert await flush_entries(storage) == []
    assert (await tools.verify("pages", storage=storage)).orphans == []


async def test_fence_number_follows_deleted_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the fence would have a number that the writer has already used, and the writer could still flush."""
    storage = MemoryStorage()
    with mortal.elsewhere(monkeypatch, tmp_path / "elsewhere"):
        async with mortal.killed(storage, writer_id="w") as writer:
            for record in RECORDS[:5]:
                await writer.write(record)
                await writer.flush()
            await writer.commit()
            await anyio.sleep(1)  # unneeded entries are deleted
    assert await flush_entries(storage) == []
    await asyncrec.recover("pages", storage=storage, dead=["w"])
    assert await flush_entries(storage) == ["_flush/pages/w-000006.frames"]


@pytest.mark.parametrize("said", ["dead", "abandon"])
async def test_operator_settles_writer_on_lost_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    storage = MemoryStorage()
    with mortal.elsewhere(monkeypatch, tmp_path / "elsewhere"):
        async with mortal.killed(storage, writer_id="w") as writer:
            await write(writer, RECORDS)
            await writer.flush()
    assert [job.id for job in (await asyncrec.recover("pages", storage=storage)).unfinished] == ["w"]
    done = await asyncrec.recover("pages", storage=storage, **{said: ["w"]})
    assert done.records == (100 if said == "dead" else 0)
    # The writer is not proven dead, so the fence stays. Without it, the writer could acknowledge a flush that is never
    # read.
    assert len(await flush_entries(storage)) == 1


async def test_records_are_flushed_automatically_within_flush_seconds() -> None:
    storage = MemoryStorage()
    async with mortal.killed(storage, flush_seconds=10) as writer:
        pass
    process = mortal.Process(storage)
    with pytest.raises((mortal.Killed, StorageError)):
        async with asyncrec.open_sharded_writer("pages", storage=process.storage, flush_seconds=10) as writer:
            for record in RECORDS:
                await writer.write(record, key=record)
                await anyio.sleep(1)
            process.kill()
            raise mortal.Killed
    found = await recovered(storage)
    assert found == RECORDS[: len(found)]
    assert len(found) >= 89


async def test_idle_writer_sends_heartbeats_until_commit() -> None:
    storage = FlakyStorage(MemoryStorage())
    async with asyncrec.open_sharded_writer("pages", storage=storage, flush_seconds=1) as writer:
        await writer.write_many(RECORDS)
        await anyio.sleep(70)
        for _ in range(10):
            await anyio.sleep(60)
            assert len(await flush_entries(storage)) == 2
        await anyio.sleep(1000)
        assert await stored(storage) == RECORDS
        assert await flush_entries(storage) == []
        storage.operations.clear()
        await anyio.sleep(10_000)
        assert storage.operations == []


async def test_commit_deletes_flush_entries() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, open_shards=2) as writer:
        for at in range(0, 100, 10):
            await write(writer, RECORDS[at : at + 10])
            await writer.flush()
        assert len(await flush_entries(storage)) in range(1, 20)
        await writer.commit()
        await anyio.sleep(1)
        assert await flush_entries(storage) == []
        await write(writer, [b"one more"])
        await writer.flush()
        assert len(await flush_entries(storage)) == 1
    assert await flush_entries(storage) == []
    assert await stored(storage) == sorted([*RECORDS, b"one more"])


async def test_small_flush_entries_are_merged_into_larger_ones() -> None:
    storage = FlakyStorage(MemoryStorage())
    async with asyncrec.open_sharded_writer("pages", storage=storage) as writer:
        for number in range(256):
            await writer.write(b"%06d" % number * 20)
            await writer.flush()
        assert len(await flush_entries(storage)) <= 16


async def test_record_longer_than_flush_entry_is_split() -> None:
    storage = MemoryStorage()
    long = [bytes([number]) * (9 << 20) for number in range(3)]
    async with mortal.killed(storage, compression="") as writer:
        for record in long:
            await writer.write(record)
        assert await writer.flush() == "spooled"
    assert max([info.size async for info in storage.list_objects("_flush/")]) < 5 << 20
    await asyncrec.recover("pages", storage=storage)
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        assert [record async for record in dataset] == long


async def test_published_uncommitted_shard_is_recovered_once() -> None:
    storage = MemoryStorage()
    process = mortal.Process(storage, "-000001.jsonl")
    with pytest.raises((StorageError, anyio.ClosedResourceError)):
        async with asyncrec.open_sharded_writer("pages", storage=process.storage, max_shard_records=50) as writer:
            await write(writer, RECORDS[:30])
            await writer.flush()
            await write(writer, RECORDS[30:70])
            await writer.commit()
    assert await recovered(storage) == RECORDS[:50]


@pytest.mark.parametrize("flushed", [0, 30])
async def test_flushed_records_of_damaged_shard_are_recovered(flushed: int) -> None:
    """The writer was killed before it could commit the shard or report that it is damaged."""
    storage = MemoryStorage()
    process = mortal.Process(storage, "-000001.jsonl")
    with pytest.raises((StorageError, anyio.ClosedResourceError)):
        async with asyncrec.open_sharded_writer("pages", storage=process.storage, max_shard_records=50) as writer:
            await write(writer, RECORDS[:flushed])
            await writer.flush()
            await write(writer, RECORDS[flushed:70])
            await writer.commit()
    [shard] = [info.key async for info in storage.list_objects("pages-") if info.key.endswith("-000000.tfrecord")]
    await storage.put(shard, (await storage.get(shard))[:-1])
    assert await recovered(storage) == RECORDS[:flushed]
    assert shard not in [info.key async for info in storage.list_objects()]


@pytest.mark.parametrize("again", [False, True])
async def test_late_flush_entries_are_ignored(again: bool) -> None:
    """No record appears twice if an entry is sent again late or never deleted."""
    storage = MemoryStorage()
    kept: dict[str, bytes] = {}
    async with mortal.killed(storage, open_shards=2, max_shard_records=25) as writer:
        for at in range(0, 100, 5):
            await write(writer, RECORDS[at : at + 5])
            await writer.flush()
            await anyio.sleep(1)  # unneeded entries are deleted
            for key in await flush_entries(storage):
                kept[key] = await storage.get(key)
    for key, data in kept.items() if again else ():
        await storage.put(key, data)
    assert await recovered(storage) == RECORDS


async def test_flush_missed_during_store_outage_succeeds_later() -> None:
    inner = MemoryStorage()
    down = False

    class Down(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            if down and key.startswith("_flush/"):
                raise TransientStorageError("down, as asked")
            return await call()

    process = mortal.Process(inner)
    with pytest.raises((mortal.Killed, StorageError)):
        async with asyncrec.open_sharded_writer("pages", storage=Down(process.storage), on_error="discard") as writer:
            await write(writer, RECORDS[:50])
            assert await writer.flush() == "spooled"
            down = True
            await write(writer, RECORDS[50:])
            assert await writer.flush() == "buffered"
            with pytest.raises(TransientStorageError, match="the records from ticket 51 on are not safe yet"):
                await writer.flush(require="spooled")
            down = False
            assert await writer.flush(require="spooled") == "spooled"
            process.kill()
            raise mortal.Killed
    assert await recovered(inner) == RECORDS


async def test_failure_note_counts_records_flushed_to_store() -> None:
    """The exit fails because the store is down; the error says where the records are and how to commit them."""
    storage = MemoryStorage()
    process = mortal.Process(storage)
    with pytest.raises(StorageError) as caught:
        async with asyncrec.open_sharded_writer("pages", storage=process.storage) as writer:
            await write(writer, RECORDS[:60])
            await writer.flush()
            await write(writer, RECORDS[60:])
            process.kill()
    said = (
        "0 records were committed, 60 more are flushed to the store (to commit them, run 'asyncrec recover "
        "memory://pages'), 40 accepted records are not safe: write them again"
    )
    assert any(note.endswith(said) for note in caught.value.__notes__), caught.value.__notes__
    assert await recovered(storage) == RECORDS[:60]


async def test_damaged_flush_entry_raises_and_loses_no_records() -> None:
    storage = MemoryStorage()
    async with mortal.killed(storage, writer_id="w") as writer:
        await write(writer, RECORDS)
        await writer.flush()
    [key] = await flush_entries(storage)
    whole = await storage.get(key)
    versions = [whole.replace(b'"version":1,', b'"version":%s,' % other, 1) for other in (b"2", b"true")]
    for content, problem in [(whole[:-7], "is damaged"), *((each, "has version") for each in versions)]:
        assert content != whole
        await storage.put(key, content)
        with pytest.raises(ManifestError, match=rf"w-000001\.frames: the flush entry {problem}"):
            await asyncrec.recover("pages", storage=storage)
    await storage.put(key, whole)
    assert await recovered(storage) == RECORDS


@pytest.mark.parametrize("refused", ["publish", "delete"])
async def test_denied_flush_request_is_reported(refused: str, caplog: pytest.LogCaptureFixture) -> None:
    class Refusing(FlakyStorage):
        async def perform(self, operation: str, key: str, call: Callable[[], Awaitable[Any]], **_: Any) -> Any:
            if operation == refused and key.startswith("_flush/"):
                raise StoragePermissionError("refused, as asked")
            return await call()

    inner = MemoryStorage()
    if refused == "publish":
        with pytest.raises(StoragePermissionError) as caught:
            async with asyncrec.open_sharded_writer("pages", storage=Refusing(inner)) as writer:
                await write(writer, RECORDS)
                await writer.flush()
        assert any("flush_seconds=None" in note for note in getattr(caught.value, "__notes__", ()))
    else:
        async with asyncrec.open_sharded_writer("pages", storage=Refusing(inner)) as writer:
            for at in range(0, 100, 10):
                await write(writer, RECORDS[at : at + 10])
                assert await writer.flush() == "spooled"
        assert caplog.text.count("flushed records cannot be deleted") == 1
        assert await recovered(inner) == RECORDS
        assert await flush_entries(inner) == []


async def test_many_small_records_with_keys_fit_into_entries() -> None:
    storage = MemoryStorage()
    async with mortal.killed(storage, flush_seconds=None) as writer:
        pass
    async with mortal.killed(storage) as writer:
        for number in range(300_000):
            await writer.write(b"", key=number.to_bytes(4, "little"))
        await writer.flush()
    assert max([info.size async for info in storage.list_objects("_flush/")]) < 5 << 20
    assert (await asyncrec.recover("pages", storage=storage)).records == 300_000


async def test_store_flush_is_disabled_without_flush_seconds() -> None:
    storage = MemoryStorage()
    async with asyncrec.open_sharded_writer("pages", storage=storage, flush_seconds=None) as writer:
        ticket = await writer.write(b"record")
        assert await writer.flush() == "buffered"
        with pytest.raises(ArgumentValueError, match="spooled"):
            await writer.wait(ticket, "spooled")
        assert await flush_entries(storage) == []


@pytest.mark.parametrize(
    "options",
    [{"dead_after": 1}, {"dead_after": 50, "flush_seconds": 30}, {"flush_seconds": "soon"}, {"dead_after": math.nan}],
    ids=str,
)
async def test_invalid_arguments_are_rejected_before_any_write(options: dict[str, Any]) -> None:
    storage = MemoryStorage()
    with pytest.raises(ArgumentValueError):
        async with asyncrec.open_sharded_writer("pages", storage=storage, **options):
            pass
    assert [info.key async for info in storage.list_objects()] == []
