"""Many objects through a store that fails one request in four, by seed."""

from __future__ import annotations

import random

import anyio
import pytest
from fake_gcs import UNIT, FakeGcs, chaos
from opening import open_quick

from asyncrec.errors import StorageError
from asyncrec.storage._chunk_writer import ResumingSource
from asyncrec.testing._checks import content, receive_all, send_all

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("seed", range(3))
async def test_what_succeeded_is_there_and_whole_and_what_failed_is_not(gcs: FakeGcs, seed: int) -> None:
    draw = random.Random(seed)
    bodies = {
        f"shard-{n:03}": content(draw.choice([0, 1, UNIT, 2 * UNIT, draw.randrange(6 * UNIT)]), n) for n in range(60)
    }
    wrote: dict[str, object] = {}
    failed: list[str] = []
    limiter = anyio.CapacityLimiter(8)
    gcs.plan = chaos(seed)

    async def one(key: str, data: bytes) -> None:
        async with limiter:
            try:
                async with storage.open_sink(key, exclusive=True) as sink:
                    await send_all(sink, data)
                wrote[key] = sink.published
            except StorageError:
                failed.append(key)
                return
            async with ResumingSource(storage, key, read_ahead=2 * UNIT) as source:
                assert await receive_all(source) == data

    async with open_quick() as storage:
        async with anyio.create_task_group() as group:
            for key, data in bodies.items():
                group.start_soon(one, key, data)
        gcs.plan = lambda kind, n: None
        listed = {info.key: info async for info in storage.list_objects()}
    assert listed == wrote
    assert all(gcs.objects["bucket", key].data == bodies[key] for key in wrote)
    # Ten tries each: with one request in four failing, hardly any runs out.
    assert len(failed) <= 1
    # Sessions whose address was lost cannot be taken away; every other is completed or aborted.
    assert len(gcs.unfinished) <= gcs.counts["open"] - len(bodies)
