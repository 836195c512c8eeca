"""With ``on_duplicate="skip"``, each key is written once, and a key is only skipped if it was really written."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

import asyncrec
from asyncrec.errors import AsyncRecError
from asyncrec.storage import MemoryStorage, Storage

from .met_storage import MetStorage

pytestmark = pytest.mark.anyio


def opened(storage: Storage, **options: Any) -> Any:
    return asyncrec.open_sharded_writer(
        "pages",
        storage=storage,
        on_duplicate="skip",
        exit_timeout=5,
        **{"writer_id": "w"} | options,
    )


async def records(storage: Storage) -> list[bytes]:
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        return sorted([record async for record in dataset])


async def test_replacement_may_reuse_keys_of_old_data_set() -> None:
    storage = MemoryStorage()
    async with opened(storage) as writer:
        await writer.write(b"old", key="a")
    async with opened(storage, mode="replace", writer_id="x") as writer:
        assert not writer.has("a")
        await writer.write(b"new", key="a")
        await writer.write(b"twice", key="a")
    assert await records(storage) == [b"new"]


async def test_waiting_tasks_with_same_key_write_one_record() -> None:
    """All tasks try to write the key before there is room for the first one's record."""
    go = anyio.Event()

    async def hold(operation: str, key: str) -> None:
        if operation == "send" and key.endswith(".tfrecord"):
            await go.wait()

    storage = MemoryStorage(chunk_size=1 << 16)
    async with opened(MetStorage(storage, before=hold), memory_limit=1 << 20, index=False) as writer:
        waiting = 0

        async def write(record: bytes, key: str) -> None:
            nonlocal waiting
            waiting += 1
            await writer.write(record, key=key)
            waiting -= 1

        async with anyio.create_task_group() as group:
            for number in range(20):  # until there is no room
                group.start_soon(write, bytes(1 << 17), f"filling {number}")
            await anyio.wait_all_tasks_blocked()
            for number in range(3):
                group.start_soon(write, b"%d" % number, "one key")
            await anyio.wait_all_tasks_blocked()
            waited = waiting
            go.set()
        assert waited > 3
        assert writer.stats().duplicates == 2
    assert len(await records(storage)) == 21


async def test_keys_file_with_wrong_checksum_is_rejected() -> None:
    storage = MemoryStorage()
    async with opened(storage) as writer:
        await writer.write(b"old", key="a")
    (key,) = [info.key async for info in storage.list_objects("_keys/")]
    await storage.put(key, b"another key, 16b")
    with pytest.raises(AsyncRecError, match="checksum"):
        async with opened(storage, writer_id="x"):
            pass
    async with asyncrec.open_dataset("pages", storage=storage) as dataset:
        with pytest.raises(AsyncRecError, match="checksum"):
            await dataset.get_by_key("a")
