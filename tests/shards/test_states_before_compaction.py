"""A stream's state from before a compaction can be resumed until the old shards are deleted, and is rejected then."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ObjectNotFoundError
from asyncrec.storage import MemoryStorage, Storage

from .met_storage import MetStorage

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]

COUNT = 40

Mode = Literal["block", "buffer", "global"]


async def write(storage: Storage, first: int, last: int) -> None:
    async with asyncrec.open_sharded_writer("pages", storage=storage, max_shard_records=3) as writer:
        for number in range(first, last):
            await writer.write(asyncrec.encode_example({"n": number}), key=f"{number}")


@asynccontextmanager
async def stream(storage: Storage, path: Any, kind: Mode) -> AsyncIterator[asyncrec.ShuffledStream]:
    async with asyncrec.open_dataset(path, storage=storage) as dataset:
        async with dataset.shuffled(seed=1, mode=kind) as shuffled:
            yield shuffled


@pytest.mark.parametrize("kind", ["block", "buffer", "global"])
async def test_state_before_compaction_resumes_within_grace(kind: Mode) -> None:
    storage = MetStorage(MemoryStorage())
    await write(storage, 0, COUNT)
    async with stream(storage, "pages", kind) as whole:
        expected = [record async for record in whole]
    async with stream(storage, "pages", kind) as begun:
        given = [await anext(begun) for _ in range(COUNT // 3)]
        state = begun.state_dict()
    await tools.compact("pages", storage=storage)
    await write(storage, COUNT, COUNT + 5)
    await storage.age(hours=0.9)
    assert (await tools.compact("pages", storage=storage)).removed == ()
    async with stream(storage, "pages", kind) as other:
        with pytest.raises(ValueError, match=r"read_manifest\(path, at="):
            other.load_state_dict(state)
    snapshot = await asyncrec.read_manifest("pages", at=state["snapshot"], storage=storage)
    async with stream(storage, snapshot, kind) as rest:
        rest.load_state_dict(state)
        assert given + [record async for record in rest] == expected


async def test_state_before_compaction_is_rejected_after_grace() -> None:
    """The state says which records were read, but their shards are gone, and the new shards have a different order."""
    storage = MetStorage(MemoryStorage())
    await write(storage, 0, COUNT)
    async with stream(storage, "pages", "block") as begun:
        await anext(begun)
        state = begun.state_dict()
    await tools.compact("pages", storage=storage)
    await storage.age(hours=1.1)
    assert (await tools.compact("pages", storage=storage)).removed
    snapshot = await asyncrec.read_manifest("pages", at=state["snapshot"], storage=storage)
    with pytest.raises(ObjectNotFoundError, match="pages-"):
        async with stream(storage, snapshot, "block") as rest:
            rest.load_state_dict(state)
            await anext(rest)
