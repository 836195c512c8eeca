"""A shard keeps its index and keys if the response to its publication or commit is missing or wrong."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import ConflictError, ObjectExistsError, StorageError, TransientStorageError
from asyncrec.storage import MemoryStorage, Storage
from asyncrec.testing._faults import Call, T, _Around

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

RECORDS = {f"key {number}": b"record %d" % number for number in range(6)}


async def write(storage: Storage, **options: Any) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, **options) as writer:
        for key, record in RECORDS.items():
            await writer.write(record, key=key)


async def found(storage: Storage) -> dict[str, bytes]:
    """Return the records that can be looked up by their keys, after checking that every record has a key."""
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        count = len(dataset)
        by_key = {}
        for key in RECORDS:
            try:
                by_key[key] = await dataset.get_by_key(key)
            except KeyError:
                continue
    assert count == len(by_key)
    return by_key


class Repeating(_Around):
    """A store whose client publishes a shard, gets no response, and retries, which fails because the shard exists."""

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        done = await call()
        if operation == "publish" and key.startswith("pages-"):
            raise ObjectExistsError(f"{key}: it exists, as asked")
        return done


async def test_unanswered_shard_is_recovered_with_keys() -> None:
    storage = MemoryStorage()
    with pytest.raises(ObjectExistsError, match="as asked"):
        await write(Repeating(storage), max_shard_records=2)
    await asyncrec.recover("pages", storage=storage)
    assert await found(storage) == dict(list(RECORDS.items())[:2])


class Usurped(_Around):
    """A store where another process's end of the log names all the writer's shards, but soon becomes unreadable."""

    ended = False
    answers = 1  # the object can be read only once, and is another process's

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        if key.endswith("-000001.jsonl") and "_removal" not in key:
            if operation == "publish":
                await call()  # the other process's object differs only in its time
                async with self._storage.open_source(key) as source:
                    content = await source.receive(1 << 20)
                await self._storage.put(key, content.replace(b'"time":"2', b'"time":"1'))
                self.ended = True
                raise ObjectExistsError(f"{key}: it exists, as asked")
            if self.ended and operation == "open_source":
                self.answers -= 1
            if self.answers < 0:
                raise TransientStorageError(f"{key}: it cannot be read, as asked")
        return await call()


@pytest.mark.parametrize("options", [{"num_shards": 2}, {"max_shard_records": 2, "mode": "replace"}], ids=str)
async def test_shards_stay_while_closing_segment_is_unreadable(options: dict[str, Any]) -> None:
    storage = MemoryStorage()
    with pytest.raises(StorageError):
        await write(Usurped(storage), **options)
    assert await found(storage) == RECORDS


class Cancelling(_Around):
    """A store that cancels the task that is waiting for the writer, right after the last segment is created."""

    task: asyncio.Task[Any] | None = None

    async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
        done = await call()
        if operation == "publish" and key.endswith("-000001.jsonl") and "_removal" not in key and self.task is not None:
            self.task.cancel()
            self.task = None
            await anyio.sleep(1)
        return done


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("on_error", ["commit", "discard"])
async def test_effective_commit_is_not_retried_by_cancelled_writer(on_error: Any) -> None:
    storage = MemoryStorage()
    cancelling = Cancelling(storage)
    cancelling.task = asyncio.create_task(write(cancelling, num_shards=2, on_error=on_error))
    with pytest.raises(asyncio.CancelledError) as caught:
        await cancelling.task
    assert not [note for note in getattr(caught.value, "__notes__", ()) if "could not be committed" in note]
    assert await found(storage) == RECORDS
    assert [info.key async for info in storage.list_objects("_manifest/") if info.key.endswith("-000000.jsonl")] == []


async def test_unanswered_upload_is_found_by_next_attempt(tmp_path: Path) -> None:
    storage = MemoryStorage()

    class Lost(_Around):
        lost = 0

        async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
            done = await call()
            if operation == "publish" and key.startswith("pages-") and not self.lost:
                self.lost += 1
                raise TransientStorageError(f"{key}: no answer, as asked")
            return done

    await write(Lost(storage), spool=tmp_path, max_shard_records=3)
    assert await found(storage) == RECORDS


async def test_upload_meeting_foreign_shard_stays_in_spool(tmp_path: Path) -> None:
    storage = MemoryStorage()

    class Others(_Around):
        async def perform(self, operation: str, key: str, call: Call[T], *, short: Call[T] | None = None) -> T:
            if operation == "open_sink" and key.startswith("pages-"):
                raise ObjectExistsError(f"{key}: it exists, as asked")
            return await call()

    with pytest.raises((ObjectExistsError, ConflictError), match="as asked"):
        await write(Others(storage), spool=tmp_path)
    await asyncrec.recover(tmp_path, to="pages", storage=storage)
    assert await found(storage) == RECORDS
