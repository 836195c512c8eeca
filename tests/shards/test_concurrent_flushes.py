"""All callers that flush at the same time return, even if their shard ends or fails in the meantime."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import anyio
import pytest

import asyncrec
from asyncrec.errors import StorageError
from asyncrec.storage import MemoryStorage

from .met_storage import MetStorage

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("fails_at", [0, 1, 3])
@pytest.mark.parametrize("limit", [1 << 17, 1 << 18, 1 << 30])
async def test_all_waiting_flushes_return(limit: int, fails_at: int) -> None:
    go = anyio.Event()
    sent = 0

    async def hold(operation: str, key: str) -> None:
        nonlocal sent
        if key.endswith(".tfrecord"):
            await go.wait()
            sent += operation == "send"
            if fails_at and sent == fails_at:
                raise StorageError("no room, as asked")

    async def write_and_flush(writer: asyncrec.ShardedWriter) -> None:
        with suppress(StorageError):
            await writer.write(bytes(100_000))
            await writer.flush()
            flushed.append(1)

    storage = MetStorage(MemoryStorage(), before=hold)
    flushed: list[int] = []
    expected = pytest.raises(StorageError, match="as asked") if fails_at else nullcontext()
    with anyio.fail_after(20), expected:
        async with asyncrec.open_sharded_writer(
            "pages", storage=storage, max_shard_bytes=limit, exit_timeout=5
        ) as writer:
            async with anyio.create_task_group() as group:
                for _ in range(10):
                    group.start_soon(write_and_flush, writer)
                await anyio.wait_all_tasks_blocked()
                go.set()
    assert fails_at or len(flushed) == 10
