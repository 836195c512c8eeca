"""Operations that read an unchanging source with many interruptions. Each record must be returned once, in order."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

import asyncrec

from .book import identity
from .operations import operation
from .writing import Limited

__all__: list[str] = []


@asynccontextmanager
async def _stream(spec: dict[str, Any]) -> AsyncIterator[Any]:
    path, how, options = spec["path"], spec["how"], spec["options"]
    if how == "shard":
        shards = await asyncrec.list_shards(path)
        async with asyncrec.open_reader(shards[spec["shard"] % len(shards)], **options) as reader:
            yield reader
    elif how == "interleave":
        async with asyncrec.interleave(await asyncrec.list_shards(path), **options) as stream:
            yield stream
    elif how == "shuffled":
        async with asyncrec.open_dataset(path) as dataset:
            async with dataset.shuffled(**options) as stream:
                yield stream
    else:
        folder = path.rpartition("/")[0]
        async with asyncrec.InterleaveSampler(folder, bytes, num_repeat=1, **options) as sampler:
            yield sampler


@operation("read")
async def read(world: Any, process: Any, spec: dict[str, Any]) -> None:
    """Read a source with interruptions. A seed in the plan decides which `anext` calls are cancelled, how, and when."""
    rng = random.Random(spec["interruptions"])
    found: list[int | None] = []
    interrupted = 0
    async with _stream(spec) as stream:
        iterator = aiter(stream)
        while True:
            limit = None
            if interrupted < 200 and rng.random() < 0.3:
                limit = [rng.choice(spec["hows"]), rng.choice((0.0, 0.0, 0.001, 0.05))]
            item: Any = None
            try:
                async with Limited(limit):
                    item = await anext(iterator)
            except StopAsyncIteration:
                break
            if item is None:
                interrupted += 1
                continue
            for record in item if isinstance(item, (list, tuple)) else [item]:
                found.append(identity(bytes(record)))
    _compare(world, spec, found, interrupted)
    if spec["how"] == "shuffled":
        await _look_up(world, spec, rng)


def _compare(world: Any, spec: dict[str, Any], found: list[int | None], interrupted: int) -> None:
    base, count, shards = spec["expects"]
    wanted = list(range(base, base + count))
    if spec["how"] == "shard":
        size = -(-count // shards)
        first = base + spec["shard"] % shards * size
        wanted = list(range(first, min(first + size, base + count)))
        ordered: list[int | None] = found
    else:
        ordered = sorted(found, key=lambda number: -1 if number is None else number)
    if ordered != wanted:
        lost, twice = set(wanted) - set(found), len(found) - len(set(found))
        world.book.complain(
            "a cancelled read loses nothing",
            f"{spec['how']} {spec['options']} gave {len(found)} of {len(wanted)} records after {interrupted} "
            f"interruptions: {len(lost)} lost, {twice} twice, in order: {ordered == sorted(found, key=str)}",
        )


async def _look_up(world: Any, spec: dict[str, Any], rng: random.Random) -> None:
    base, count, _ = spec["expects"]
    async with asyncrec.open_dataset(spec["path"]) as dataset:
        for _ in range(3):
            number = rng.randrange(count)
            with anyio.move_on_after(rng.choice((0.0, 100.0))):
                if identity(await dataset.get(number)) != base + number:
                    world.book.complain("a record is found by its number", f"number {number} is another")
                key = f"k{number}"
                if identity(await dataset.get_by_key(key)) != base + number:
                    world.book.complain("a record is found by its key", f"key {key} is another's")
