"""Each message is stored once even if writers take sources from each other again and again."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack, suppress

import pytest

import asyncrec
from asyncrec import tools
from asyncrec.errors import ConflictError
from asyncrec.storage._memory import MemoryStorage

from .messages import stored
from .test_lost_sources import SMALL, messages, progress, write

pytestmark = [pytest.mark.anyio, pytest.mark.virtual_clock]


async def let_go(writers: list[asyncrec.ShardedWriter], *sources: str) -> None:
    for writer in writers:
        with suppress(ConflictError):
            await writer.release(*sources)


@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 60))])
async def test_consumers_contesting_sources_store_each_message_once(seed: int) -> None:
    """Consumers resume at their last position or a few messages earlier; a zombie continues until it gets an error."""
    rng = random.Random(seed)
    storage = MemoryStorage()
    last = dict.fromkeys("pqr", -1)
    async with AsyncExitStack() as stack:
        writers = [
            await stack.enter_async_context(
                asyncrec.open_sharded_writer("pages", storage=storage, compression=rng.choice(["", "GZIP"]), **SMALL)
            )
            for _ in range(3)
        ]
        owner = dict.fromkeys("pqr", writers[0])
        for _ in range(150):
            writer = rng.choice(writers)
            source = rng.choice("pqr")
            try:
                match rng.randrange(10):
                    case 0:
                        await writer.flush()
                    case 1:
                        await writer.commit()
                    case 2:
                        await writer.release(source)
                    case 3:
                        owner[source] = writer
                    case _:
                        reader = owner[source] if rng.random() < 0.9 else writer
                        known = await reader.take(source)
                        known = -1 if known is None else known
                        begin = max(0, known + 1 - rng.randrange(3))
                        for position in range(begin, known + 1 + rng.randrange(1, 5)):
                            await write(reader, source, position)
                            last[source] = max(last[source], position)
            except ConflictError as error:
                if not error.sources:
                    raise
                await let_go(writers, *error.sources)
        await let_go(writers, *"pqr")
        for source in "pqr":
            await writers[0].take(source)
            await write(writers[0], source, *range(last[source] + 1))
        await writers[0].flush()
    assert await stored(storage) == messages(**last)
    assert await progress(storage) == {source: end for source, end in last.items() if end >= 0}
    assert (await tools.verify("pages", storage=storage)).ok
