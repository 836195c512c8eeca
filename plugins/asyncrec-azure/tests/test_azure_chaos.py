"""Many objects through a store that fails one request in four, by seed."""

from __future__ import annotations

import random

import anyio
import pytest
from azure_api import FakeAzure
from azure_opening import CHUNK, open_quick
from serving import chaos, nothing

from asyncrec.errors import StorageError
from asyncrec.storage._resuming_source import ResumingSource
from asyncrec.testing._checks import content, receive_all, send_all

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("seed", range(3))
async def test_what_succeeded_is_there_and_whole_and_what_failed_is_not(azure: FakeAzure, seed: int) -> None:
    draw = random.Random(seed)
    bodies = {
        f"shard-{n:03}": content(draw.choice([0, 1, CHUNK, 2 * CHUNK, draw.randrange(6 * CHUNK)]), n) for n in range(60)
    }
    wrote: dict[str, object] = {}
    failed: list[str] = []
    limiter = anyio.CapacityLimiter(8)
    azure.plan = chaos(seed)

    async def one(key: str, data: bytes) -> None:
        async with limiter:
            try:
                async with storage.open_sink(key, exclusive=True) as sink:
                    await send_all(sink, data)
                wrote[key] = sink.published
            except StorageError:
                failed.append(key)
                return
            async with ResumingSource(storage, key, read_ahead=2 * CHUNK) as source:
                assert await receive_all(source) == data

    async with open_quick(azure.endpoint) as storage:
        async with anyio.create_task_group() as group:
            for key, data in bodies.items():
                group.start_soon(one, key, data)
        azure.plan = nothing
        listed = {info.key: info async for info in storage.list_objects()}
    assert listed == wrote
    assert all(azure.blobs[key].data == bodies[key] for key in wrote)
    # Ten tries each: with one request in four failing, hardly any runs out.
    assert len(failed) <= 1
